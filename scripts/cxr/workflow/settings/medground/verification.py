"""Settings of the verification."""

from typing import Literal

from cxr.base.settings import PAPER, Section, Share, constraint, key
from cxr.workflow.settings.medground.models import Judge


class JudgeRules(Section):
    """The judge rules, which measures pixels inside the answer's boxes; on films, zones and the anomaly map there."""

    contrast: float = key(0.8, "Effect size against the surroundings from which on something stands out.", gt=0)
    blob_iou: Share = key(0.5, "IoU of a box and the blob in it from which on something stands out.")
    enlarge: Share = key(0.25, "How far around a box is looked, as a fraction of its longer side.")
    stain: Literal["hematoxylin", "none"] = key(
        "hematoxylin",
        "Where nuclei are looked at in coloured pictures. hematoxylin: in the density of that stain, by colour "
        "deconvolution (Ruifrok and Johnston 2001); none: in the luminance, as in all other pictures.",
    )
    zone_no: Share = key(
        0.1,
        "Fraction of a box's lung pixels in a zone or lung that its text names below which it is not there (films).",
    )
    least_lung: Share = key(0.1, "Fraction of a box that must be lung for its zones to be told (films).")
    anomaly_level: int = key(
        26,
        "Value of the anomaly map from which on a pixel counts as anomalous (films).",
        unit="grey levels",
        ge=1,
        le=255,
    )
    anomaly_yes: float = key(
        0.1,
        "By how much a box's fraction of anomalous pixels must exceed the other lung pixels' to stand out.",
        ge=-1,
        le=1,
    )
    anomaly_no: float = key(
        -0.1, "The same below which nothing stands out; between the two it is unjudged.", ge=-1, le=1
    )
    slack: float = key(
        2.0,
        "Margins of size, shape and place as measured in a box, over those of medground.logic.",
        ge=1,
        le=10,
    )

    @constraint
    def _edges_rise(self) -> None:
        if self.anomaly_no > self.anomaly_yes:
            raise ValueError(
                f"anomaly_no is {self.anomaly_no}, above anomaly_yes {self.anomaly_yes}: lower it, or raise the other"
            )


class Verification(Section):
    """Form, rules that read the text, and a judge."""

    judge: Literal["rules", "vllm", "none"] = key(
        "rules",
        "rules: measures pixels; vllm: a language model that sees the image; none: no third stage.",
        source=PAPER,
    )
    mode: Literal["confirm", "select", "both"] = key(
        "both",
        "How the judge vllm is asked. confirm: it sees the answer and says whether the query is grounded and "
        "unambiguous, as in the paper; select: it sees the numbered candidates and finds the answer itself.",
    )
    same_model: bool = key(False, "Whether the judge may be the model that worded the queries.")
    llm: Judge = key(Judge, "The language model of the judge vllm.")
    unjudged: Literal["keep", "drop"] = key("keep", "What to do with queries that the judge cannot judge.")
    strict: bool = key(False, "Whether a text that claims nothing fails on an image with several candidates.")
    rules: JudgeRules = key(JudgeRules, "The judge rules.")

    @constraint
    def _a_model_is_given(self) -> None:
        if self.judge == "vllm" and not self.llm.model:
            raise ValueError("llm.model is empty, but judge is vllm: give a model that takes images")
