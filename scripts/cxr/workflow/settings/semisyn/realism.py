"""Settings of the scores of edited images."""

from typing import Literal

from cxr.base.vocabulary import BOX_CLASSES
from cxr.workflow.settings.base import PAPER, Replicates, Section, Share, key

CLASSES = {
    "atelectasis": "Atelectasis",
    "cardiomegaly": "Cardiomegaly",
    "consolidation": "Consolidation",
    "opacity": "Lung Opacity",
    "effusion": "Pleural effusion",
    "pneumothorax": "Pneumothorax",
}
"""VinBigData's names of the findings; it has none for edema."""


class Realism(Section):
    """How far edited images look like real ones with the finding; the detector is that of the stage boxes."""

    classes: dict[str, Literal[BOX_CLASSES]] = key(
        lambda: dict(CLASSES), "The detector's class of each finding; one without has no AUROC and AP.", source=PAPER
    )
    ious: list[Share] = key(
        lambda: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], "IoUs over which AP is averaged.", source=PAPER, min_length=1
    )
    points: int = key(101, "Recalls at which precision is read.", source=PAPER, ge=2, le=10_001)
    replicates: Replicates = key(
        1000, "Bootstrap replicates, by source patient, for intervals; 0 for none, else 100 or more."
    )
    c2st_replicates: int = key(20, "Replicates of the two-sample test, which fits a model in each.", ge=0, le=1000)
    interval: float = key(0.95, "Coverage of the intervals.", gt=0, lt=1)
