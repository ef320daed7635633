"""Settings of the stages that read images: organs, anomaly, anatomy, boxes."""

from typing import Literal

from pydantic import model_validator

from ils.core.labels import BOX_CLASSES
from ils.core.settings.base import PAPER, Section, Share, key


class Organs(Section):
    """Right lung, left lung and heart of the image."""

    engine: Literal["lite"] = key("lite", "lite: a small U-Net on the CPU.")
    min_lung_share: Share = key(0.02, "Share of the picture each lung must cover, else no_lungs.")
    max_border_share: Share = key(0.2, "Share of a lung's outline that may lie on the picture's edge, else cut_off.")
    min_contrast: float = key(12.0, "Smallest standard deviation inside the chest.", unit="grey levels", ge=0, le=128)


class Anomaly(Section):
    """The counterfactual without a lesion, and the map of what differs."""

    engine: Literal["lite"] = key("lite", "lite: a small network trained to take lesions out, on the CPU.")


class Anatomy(Section):
    """The 15 zone labels and the heart, on the edited image (paper)."""

    engine: Literal["lite"] = key("lite", "lite: the organ net on the edited image, zones by geometry.")
    zone_cuts: tuple[Share, Share, Share] = key(
        (0.15, 0.40, 0.68), "Where apical|upper|mid|base end, from apex (0) to base (1) of each lung."
    )
    min_labels: int = key(14, "Non-empty masks of 16 an image must have, else missing_anatomy (D.1).", ge=0, le=16)
    disagreement: Share = key(
        0.05, "Largest distance of outer lung or lowest heart edge between organs and anatomy (D.2).", unit="widths"
    )


class Boxes(Section):
    """Lesion boxes with confidences."""

    engine: Literal["lite", "table"] = key(
        "lite", "lite: a small detector on the CPU; table: boxes from elsewhere (boxes.table)."
    )
    table: str | None = key(None, "CSV or Parquet: image_id, x1, y1, x2, y2, confidence, class_name (engine table).")
    floor: Share = key(0.001, "Smallest confidence kept; must not exceed the smallest tau_conf in use.")
    nms_iou: Share = key(0.5, "Overlap (IoU) above which the weaker of two boxes of one class is dropped.")
    max_boxes: int = key(100, "Most boxes kept for an image.", ge=1, le=1000)
    excluded_classes: list[Literal[BOX_CLASSES]] = key(
        lambda: ["Aortic enlargement", "Other lesion", "Pneumothorax", "Cardiomegaly"],
        "Classes whose boxes are not used (the first three: paper; Cardiomegaly: ours).",
        source=PAPER,
    )

    @model_validator(mode="after")
    def _has_its_table(self) -> "Boxes":
        if self.engine == "table" and not self.table:
            raise ValueError("engine is 'table', so boxes.table must be set")
        return self
