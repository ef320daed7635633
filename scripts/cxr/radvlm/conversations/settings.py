"""Settings of RadVLM's conversations."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, key
from cxr.llm.settings import ModelOverride


class Conversations(Section):
    """Conversations about the facts of one image, standard and grounded."""

    engine: Literal["rules", "vllm"] = key(
        "rules", "rules: a grammar over the facts, no download; vllm: a language model under the same check."
    )
    test_llm: ModelOverride = key(
        ModelOverride, "The model of the engine vllm for the split test, which is scored (paper: GPT-4o)."
    )
    per_image: int = key(1, "Conversations of each kind per image.", source=PAPER, ge=1, le=100)
    most: int = key(
        100_000, "Maximum of train images with a standard conversation, selected by hash.", source=AUTHORS, ge=0
    )
    check: Literal["strict", "json"] = key(
        "strict",
        "strict: form, boxes and statements are checked against the facts; json: any valid JSON is accepted "
        "(authors' code).",
    )
