"""Settings of RadVLM's single-image text: what of a report one image can bear out."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, key
from cxr.llm.settings import Asking, Execution, LanguageModel, context, max_tokens, model, revision


class FilteredLlm(Asking, LanguageModel):
    """The language model of the engines vllm and both; the paper used GPT-4o-mini."""

    model: str = model("mistralai/Mistral-Small-3.1-24B-Instruct-2503")
    revision: str = revision("68faf511d618ef198fef186659617cfd2eb8e33a")
    context: int = context()
    max_tokens: int = max_tokens(2048)
    execution: Execution = key(Execution, "How the model is run.")


class FilteredTexts(Section):
    """Reports and phrases without what needs another image."""

    engine: Literal["rules", "vllm", "both", "none"] = key(
        "rules",
        "rules: patterns, no download; vllm: a language model, whose every sentence the rules check; both: vllm, with "
        "the rules beside it in a table of agreement; none: texts stay as they are, for an ablation.",
    )
    llm: FilteredLlm = key(FilteredLlm, "The language model of the engines vllm and both.")
    keep_view: bool = key(False, "Whether views and projections stay.", source=AUTHORS)
    phrases: bool = key(True, "Whether phrases with boxes are filtered too; the paper asks them as they are.")
    resolved: Literal["drop", "state_absence"] = key(
        "drop", "What becomes of a finding that has gone. state_absence: it is denied."
    )
    min_words: int = key(
        3,
        "Fewer words that are left of a changed text, and name no finding, are nothing.",
        unit="words",
        ge=1,
        le=100,
    )
