"""Settings of RadVLM's conversations."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, key
from cxr.llm.settings import revision


class ConversationModels(Section):
    """Models of the engine vllm for parts of the conversations; the paper used GPT-4o-mini, and GPT-4o for test."""

    train_model: str = key("", "Model for train and validate; empty: that of radvlm.llm.")
    test_model: str = key("", "Model for test, whose conversations are scored; empty: that of radvlm.llm.")
    train_revision: str = revision("")
    test_revision: str = revision("")


class Conversations(Section):
    """Conversations about the facts of one image, standard and grounded."""

    engine: Literal["rules", "vllm"] = key(
        "rules", "rules: a grammar over the facts, no download; vllm: a language model under the same check."
    )
    llm: ConversationModels = key(ConversationModels, "Other models of the engine vllm than that of radvlm.llm.")
    per_image: int = key(1, "Conversations of each kind per image.", source=PAPER, ge=1, le=100)
    most: int = key(
        100_000, "Maximum of train images with a standard conversation, selected by hash.", source=AUTHORS, ge=0
    )
    check: Literal["strict", "json"] = key(
        "strict",
        "strict: form, boxes and statements are checked against the facts; json: any valid JSON is accepted, as in the "
        "authors' code.",
    )
