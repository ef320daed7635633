"""Settings of the stage semisyn_realism."""

from typing import Literal

from cxr.base.settings import PAPER, Section, constraint, key
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


class ClipSettings(Section):
    """The feature engine clip: similarity of an image and its prompt."""

    model: str = key("", "Folder of a CLIP model in transformers' layout, such as XrayCLIP (docs/how-to/models.md).")
    sha256: str = key("", "Required SHA-256 of model.safetensors; empty: any.", pattern="^([0-9a-f]{64})?$")


class RealismSettings(Section):
    """Similarity of edited images to real ones; the detector is the engine of the boxes stage."""

    classes: dict[str, Literal[BOX_CLASSES]] = key(
        lambda: dict(CLASSES), "Detector class of each finding; findings without one get no AUROC and AP.", source=PAPER
    )
    reference: str = key(
        "",
        "Reference in semisyn.references with whose images in the cohort edited ones are compared; empty: no c2st and "
        "no feature distances.",
    )
    features: list[Literal[EXTRACTORS]] = key(
        lambda: ["lite"],
        "Feature engines. inception: FID and KID; xrv, lite: the same distances with torchxrayvision's "
        "DenseNet-121 or the embedded detector; clip: the CLIP score.",
    )
    clip: ClipSettings = key(ClipSettings, "Settings of the engine clip.")

    @constraint
    def _features_can_be_had(self) -> None:
        if twice := [name for name in self.features if self.features.count(name) > 1]:
            raise ValueError(f"features names {twice[0]!r} twice: remove one")
        if "clip" in self.features and not self.clip.model:
            raise ValueError("features has clip, but clip.model is empty: name the folder of a CLIP model")
