"""Settings of RadVLM's conversations."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, key
from cxr.llm.settings import Asking, Execution, LanguageModel, context, max_tokens, revision


class ConversationLlm(Asking, LanguageModel):
    """The language model of the engine vllm; the paper used GPT-4o-mini, and GPT-4o for test."""

    train_model: str = key("", "Model for train and validate; empty: that of radvlm.filtered.llm.")
    test_model: str = key("", "Model for test, whose conversations are scored; empty: that of radvlm.filtered.llm.")
    train_revision: str = revision("")
    test_revision: str = revision("")
    context: int = context()
    max_tokens: int = max_tokens(2048, AUTHORS)
    temperature: float = key(0.7, "Temperature of the first answer; 0 is greedy.", ge=0, le=2)
    execution: Execution = key(Execution, "How the model is run.")


class Conversations(Section):
    """Conversations about the facts of one image, standard and grounded."""

    engine: Literal["rules", "vllm"] = key(
        "rules", "rules: a grammar over the facts, no download; vllm: a language model under the same check."
    )
    llm: ConversationLlm = key(ConversationLlm, "The language model of the engine vllm.")
    per_image: int = key(1, "Conversations of each kind per image.", source=PAPER, ge=1, le=100)
    most: int = key(
        100_000, "Maximum of train images with a standard conversation, selected by hash.", source=AUTHORS, ge=0
    )
    check: Literal["strict", "json"] = key(
        "strict",
        "strict: form, boxes and statements are checked against the facts; json: any valid JSON is accepted, as in the "
        "authors' code.",
    )
