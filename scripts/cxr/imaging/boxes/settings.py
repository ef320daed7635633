"""Settings of the boxes stage and of its engines."""

from typing import Literal

from cxr.base.settings import PAPER, Section, Share, constraint, key
from cxr.base.vocabulary import BOX_CLASSES


class LiteSettings(Section):
    region_iou: Share = key(
        0.5,
        "IoU above which the less confident of two boxes of different classes is dropped; 1: no box is dropped. Boxes "
        "of excluded classes do not take part. The paper's Algorithm 1 has no such step.",
    )
    model: str = key("", "ONNX file of your detector (scripts/tools/detector_onnx.py); empty: the included detector.")


class UltralyticsSettings(Section):
    image_size: int = key(1024, "Side of the input, a multiple of the net's stride.", unit="pixels", ge=64, le=4096)


class BoxesSettings(Section):
    """Lesion boxes with confidences."""

    engine: Literal["lite", "table", "ultralytics", "scaled_yolov4"] = key(
        "lite",
        "Source of boxes. lite: a small net; table: a file; ultralytics: a YOLO model; scaled_yolov4: the public "
        "ensemble for VinBigData.",
    )
    lite: LiteSettings = key(LiteSettings, "Settings of the engine lite.")
    ultralytics: UltralyticsSettings = key(UltralyticsSettings, "Settings of the engine ultralytics.")
    table: str | None = key(
        None, "CSV or Parquet (engine: table) with columns image_id, x1, y1, x2, y2, confidence, class_name."
    )
    table_pixels: Literal["frame", "original"] = key(
        "frame", "Pixel grid of the boxes in `table`: the frame or the original image."
    )
    class_names: dict[str, str] = key(
        dict, "{class of the detector: VinBigData name, or '' to drop it}, for the engines lite and ultralytics."
    )
    floor: Share = key(0.001, "Minimum confidence of a kept box. It must not exceed any tau_conf of the masks stage.")
    nms_iou: Share = key(0.5, "IoU above which lite and ultralytics drop the less confident of two boxes of one class.")
    max_boxes: int = key(100, "Maximum number of boxes kept per image.", ge=1, le=1000)
    excluded_classes: list[Literal[BOX_CLASSES]] = key(
        lambda: ["Aortic enlargement", "Other lesion", "Pneumothorax", "Cardiomegaly"],
        "Classes whose boxes are not used. The paper names all of these except Cardiomegaly, which we added.",
        source=PAPER,
    )

    @constraint
    def _has_its_table(self) -> None:
        if self.engine == "table" and not self.table:
            raise ValueError("engine is 'table', so boxes.table must be set")
        if self.engine != "table" and self.table:
            raise ValueError(f"table is given, but engine is {self.engine!r}: set boxes.engine to table")
