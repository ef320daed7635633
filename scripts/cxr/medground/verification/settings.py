"""Settings of the stage medground_verification."""

from typing import Literal

from cxr.base.settings import PAPER, Section, constraint, key
from cxr.medground.asking.settings import JudgeSettings


class VerificationSettings(Section):
    """Form, rules that read the text, and a judge."""

    judge: Literal["rules", "vllm", "none"] = key(
        "rules",
        "rules: measures pixels; vllm: a language model that sees the image; none: no third stage.",
        source=PAPER,
    )
    mode: Literal["confirm", "select", "both"] = key(
        "both",
        "Questions to the judge vllm. confirm: it sees the answer and says whether the query is grounded and "
        "unambiguous, as in the paper; select: it sees the numbered candidates and selects the answer.",
    )
    same_model: bool = key(False, "Whether the judge may be the model that wrote the queries.")
    llm: JudgeSettings = key(JudgeSettings, "The language model of the judge vllm.")
    unjudged: Literal["keep", "drop"] = key("keep", "Whether queries on which the judge abstains are kept.")
    strict: bool = key(
        False, "Whether a text without a claim about its answer fails on an image with several candidates."
    )

    @constraint
    def _a_model_is_given(self) -> None:
        if self.judge == "vllm" and not self.llm.model:
            raise ValueError("llm.model is empty, but judge is vllm: give a model that takes images")
