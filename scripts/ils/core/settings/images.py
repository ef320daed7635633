"""Settings of the stages that read images: organs, anomaly, anatomy, boxes."""

from typing import Literal

from pydantic import model_validator

from ils.core.labels import BOX_CLASSES
from ils.core.settings.base import PAPER, Section, Share, key


class Organs(Section):
    """Right lung, left lung and heart of the image."""

    engine: Literal["lite"] = key("lite", "lite: a small U-Net on the CPU.")
    min_lung_share: Share = key(0.02, "Share of the picture each lung must cover, else no_lungs.")
    max_lung_ratio: float = key(
        5.0, "How many times the smaller lung mask the larger may be, else no_lungs.", unit="areas", ge=1, le=1000
    )
    border_margin: Share = key(0.027, "How close to the picture's edge an outline touches it.", unit="frame widths")
    max_border_share: Share = key(0.17, "Share of a lung's outline that may touch the picture's edge, else cut_off.")
    min_contrast: float = key(8.0, "Smallest standard deviation inside the chest.", unit="grey levels", ge=0, le=128)
    max_saturated: Share = key(0.5, "Share of pure black or white pixels in the chest, else extreme_contrast.")


class Anomaly(Section):
    """The counterfactual without a lesion, and the map of what differs."""

    engine: Literal["lite"] = key("lite", "lite: a small network trained to take lesions out, on the CPU.")


class Anatomy(Section):
    """The 15 zone labels and the heart, on the edited image (paper)."""

    engine: Literal["lite"] = key("lite", "lite: the organ net on the edited image, zones by geometry.")
    zone_cuts: tuple[Share, Share, Share] = key(
        (0.17, 0.42, 0.68),
        "Where the apical, upper and mid zone end, from apex (0) to base (1) of each lung.",
        unit="lung heights",
    )
    right_upper_lobe_end: tuple[Share, Share] = key(
        (0.50, 0.55), "Minor fissure: where the right upper lobe ends, (medial, lateral).", unit="lung heights"
    )
    middle_lobe_end: tuple[Share, Share] = key(
        (0.95, 0.70), "Where the middle lobe ends, (medial, lateral).", unit="lung heights"
    )
    left_upper_lobe_end: tuple[Share, Share] = key(
        (0.80, 0.62), "Where the left upper lobe with its lingula ends, (medial, lateral).", unit="lung heights"
    )
    lower_lobe_begin: tuple[Share, Share] = key(
        (0.38, 0.55), "Where both lower lobes begin behind the others, (medial, lateral).", unit="lung heights"
    )
    max_tilt: float = key(
        15.0, "Largest tilt of the chest that the cuts follow; 0 keeps them level.", unit="degrees", ge=0, le=45
    )
    min_labels: int = key(14, "Non-empty masks of 16 an image must have, else missing_anatomy (D.1).", ge=0, le=16)
    disagreement: Share = key(
        0.05, "Largest distance of outer lung or lowest heart edge between organs and anatomy (D.2).", unit="widths"
    )

    @model_validator(mode="after")
    def _cuts_rise(self) -> "Anatomy":
        if not 0 < self.zone_cuts[0] < self.zone_cuts[1] < self.zone_cuts[2] < 1:
            raise ValueError(f"zone_cuts is {list(self.zone_cuts)}: give three rising numbers between 0 and 1")
        return self


class Boxes(Section):
    """Lesion boxes with confidences."""

    engine: Literal["lite", "table"] = key(
        "lite", "lite: a small detector on the CPU; table: boxes from elsewhere (boxes.table)."
    )
    table: str | None = key(None, "CSV or Parquet: image_id, x1, y1, x2, y2, confidence, class_name (engine table).")
    table_pixels: Literal["frame", "original"] = key(
        "frame", "Pixels the table's corners are in: those of the frame or of the original image (engine table)."
    )
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
