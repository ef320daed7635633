"""Settings of the stage medground_verification."""

from typing import Literal

from cxr.base.settings import PAPER, Section, key
from cxr.medground.asking.settings import ImageModelSettings


class VerificationSettings(Section):
    """Form, rules that read the text, and a judge."""

    judge: Literal["rules", "vllm", "none"] = key(
        "rules",
        "rules: measures pixels; vllm: a language model that sees the image; none: no third stage.",
        source=PAPER,
    )
    mode: Literal["confirm", "select", "both"] = key(
        "both",
        "Questions to the judge vllm. confirm: it sees the answer and decides whether the query is grounded and "
        "unambiguous (paper); select: it selects the answer from numbered candidates.",
    )
    same_model: bool = key(False, "Whether the judge may be the model that wrote the queries.")
    llm: ImageModelSettings = key(ImageModelSettings, "The language model of the judge vllm.")
    unjudged: Literal["keep", "drop"] = key("keep", "Whether queries on which the judge abstains are kept.")
