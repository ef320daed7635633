"""Settings of the verification."""

from typing import Literal

from cxr.workflow.settings.base import Section, Share, key


class JudgeRules(Section):
    """The judge rules, which measures pixels inside the answer's boxes. It says `unjudged` on chest X-rays and CT."""

    contrast: float = key(0.8, "Effect size against the surroundings from which on something stands out.", gt=0)
    blob_iou: Share = key(0.5, "IoU of a box and the blob in it from which on something stands out.")
    enlarge: Share = key(0.25, "How far around a box is looked, as a fraction of its longer side.")


class Verification(Section):
    """Form, rules that read the text, and a judge."""

    judge: Literal["rules", "none"] = key("rules", "rules: measures pixels; none: no third stage.")
    unjudged: Literal["keep", "drop"] = key("keep", "What to do with queries that the judge cannot judge.")
    strict: bool = key(False, "Whether a text that claims nothing fails on an image with several candidates.")
    rules: JudgeRules = key(JudgeRules, "The judge rules.")
