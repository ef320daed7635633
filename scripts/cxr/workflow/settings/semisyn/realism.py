"""Settings of the scores of edited images."""

from typing import Literal

from cxr.base.settings import PAPER, Replicates, Section, Share, constraint, key
from cxr.base.vocabulary import BOX_CLASSES

CLASSES = {
    "atelectasis": "Atelectasis",
    "cardiomegaly": "Cardiomegaly",
    "consolidation": "Consolidation",
    "opacity": "Lung Opacity",
    "effusion": "Pleural effusion",
    "pneumothorax": "Pneumothorax",
}
"""VinBigData's names of the findings; it has none for edema."""
EXTRACTORS = ("lite", "xrv", "inception", "clip")


class Clip(Section):
    """The engine clip of the features: how well an image fits its prompt."""

    model: str = key("", "Folder of a CLIP model in transformers' layout, such as XrayCLIP (docs/how-to/models.md).")
    sha256: str = key("", "Digest that its model.safetensors must have; empty: any.", pattern="^([0-9a-f]{64})?$")


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
    reference: str = key(
        "",
        "Reference of semisyn.references whose images of the cohort the edited ones are compared with; empty: no c2st, "
        "and no distance of features.",
    )
    features: list[Literal[EXTRACTORS]] = key(
        lambda: ["lite"],
        "Engines of features. inception: FID and KID; xrv: the same of torchxrayvision's DenseNet-121; clip: the CLIP "
        "score; lite: distances of the embedded detector's features, which are neither.",
    )
    fid_small: Literal["refuse", "allow"] = key(
        "refuse", "Whether a Fréchet distance of fewer images than twice the features is told: it ranks noise."
    )
    clip: Clip = key(Clip, "Settings of the engine clip.")

    @constraint
    def _features_can_be_had(self) -> None:
        if twice := [name for name in self.features if self.features.count(name) > 1]:
            raise ValueError(f"features names {twice[0]!r} twice: leave one out")
        if "clip" in self.features and not self.clip.model:
            raise ValueError("features has clip, but clip.model is empty: name the folder of a CLIP model")
