"""Settings of RadVLM's single-image text."""

from typing import Literal

from cxr.base.settings import Section, key
from cxr.llm.settings import Asking, Execution, LanguageModel, context, max_tokens, model, revision


class FilteredLlm(Asking, LanguageModel):
    """The language model of the engines vllm and both; the paper used GPT-4o-mini."""

    model: str = model("mistralai/Mistral-Small-3.1-24B-Instruct-2503")
    revision: str = revision("68faf511d618ef198fef186659617cfd2eb8e33a")
    context: int = context()
    max_tokens: int = max_tokens(2048)
    execution: Execution = key(Execution, "How the model is run.")


class FilteredTexts(Section):
    """Reports and phrases without statements that need another image."""

    engine: Literal["rules", "vllm", "both", "none"] = key(
        "rules",
        "rules: patterns, no download; vllm: a language model, checked by the rules; both: vllm, "
        "compared with the rules "
        "in an agreement table; none: texts stay unchanged, for an ablation.",
    )
    llm: FilteredLlm = key(FilteredLlm, "The language model of the engines vllm and both.")
    phrases: bool = key(True, "Whether phrases with boxes are filtered too; false: as in the paper.")
    resolved: Literal["drop", "state_absence"] = key(
        "drop", "Treatment of a resolved finding. drop: it is removed; state_absence: it is denied."
    )
