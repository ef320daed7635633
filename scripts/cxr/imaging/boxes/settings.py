"""Settings of the boxes stage and of its engines."""

from typing import Literal

from cxr.base.settings import PAPER, Section, Share, constraint, key
from cxr.base.vocabulary import BOX_CLASSES


class LiteSettings(Section):
    """The engine lite for boxes."""

    region_iou: Share = key(
        0.5,
        "IoU above which the weaker of two boxes of different classes is dropped; 1: no box is dropped. Boxes of "
        "excluded classes are ignored here. The paper's Algorithm 1 has no such step.",
    )
    model: str = key("", "ONNX file of your detector (scripts/tools/detector_onnx.py); empty: the included detector.")


class UltralyticsSettings(Section):
    """The engine ultralytics."""

    image_size: int = key(1024, "Side of the scaled frame, a multiple of the stride.", unit="pixels", ge=64, le=4096)


class BoxesSettings(Section):
    """Lesion boxes with confidences."""

    engine: Literal["lite", "table", "ultralytics", "scaled_yolov4"] = key(
        "lite", "lite: a small net; table: a file; ultralytics: a YOLO model; scaled_yolov4: VinBigData's ensemble."
    )
    lite: LiteSettings = key(LiteSettings, "Settings of the engine lite.")
    ultralytics: UltralyticsSettings = key(UltralyticsSettings, "Settings of the engine ultralytics.")
    table: str | None = key(None, "CSV or Parquet: image_id, x1, y1, x2, y2, confidence, class_name (engine table).")
    table_pixels: Literal["frame", "original"] = key(
        "frame", "Pixel grid of the table's boxes: the frame or the original image (engine table)."
    )
    class_names: dict[str, str] = key(
        dict, "{class of the detector: VinBigData name} (engines lite, ultralytics); '' drops a class."
    )
    floor: Share = key(0.001, "Minimum confidence of a kept box; must not exceed the lowest tau_conf in use.")
    nms_iou: Share = key(0.5, "IoU above which the weaker of two boxes of the same class is dropped.")
    max_boxes: int = key(100, "Maximum number of boxes kept per image.", ge=1, le=1000)
    excluded_classes: list[Literal[BOX_CLASSES]] = key(
        lambda: ["Aortic enlargement", "Other lesion", "Pneumothorax", "Cardiomegaly"],
        "Classes whose boxes are not used (Cardiomegaly is our addition).",
        source=PAPER,
    )

    @constraint
    def _has_its_table(self) -> None:
        if self.engine == "table" and not self.table:
            raise ValueError("engine is 'table', so boxes.table must be set")
        if self.engine != "table" and self.table:
            raise ValueError(f"table is given, but engine is {self.engine!r}: set boxes.engine to table")
