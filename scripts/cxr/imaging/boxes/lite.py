"""The detector ``lite``: a small anchor-free ONNX net, with decoding and non-maximum suppression in numpy.

resources/boxes/CARD.md describes its training and scores, :mod:`cxr.detection.grid` its output. The setting
``boxes.lite.model`` replaces the net by another ONNX file with these outputs, such as one of the semisyn pipeline.
"""

import numpy as np

from cxr.base.engines import Setup
from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import BOX_CLASSES
from cxr.detection.grid import select_boxes
from cxr.detection.weights import DetectorWeights
from cxr.imaging.boxes.engine import Detections, map_class_names
from cxr.imaging.boxes.settings import BoxesSettings

RESOURCE_FILES = ("boxes/lite.onnx",)
WEIGHTS = RESOURCES / RESOURCE_FILES[0]
FILES = ("model",)


class LiteEngine:
    """The detector ``lite``. Settings may name any VinBigData class, but the net finds only the classes ``trained``."""

    class_names = BOX_CLASSES
    image_ids = None

    def __init__(self, options: BoxesSettings, model: object = WEIGHTS):
        self.weights, self.options = DetectorWeights(model), options
        vocabulary_names = map_class_names(self.weights.grid.classes, options.class_names, model)
        self.used = [number for number, name in enumerate(vocabulary_names) if name]
        self.trained = tuple(vocabulary_names[number] for number in self.used)
        self.apart = [index for index, name in enumerate(self.trained) if name in options.excluded_classes]

    def predict(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return boxes (classes, rows, columns, 4) in frame pixels and confidences (…) of all cells of the grid."""
        boxes, confidence = self.weights.predict(image)
        return (boxes, confidence) if len(self.used) == len(boxes) else (boxes[self.used], confidence[self.used])

    def detect(self, image: np.ndarray, image_id: str, to_original: np.ndarray) -> Detections:
        """Return the boxes of a frame; see :class:`cxr.imaging.boxes.engine.BoxEngine`."""
        limits = {"floor": self.options.floor, "iou": self.options.nms_iou, "most": self.options.max_boxes}
        limits |= {"across": self.options.lite.region_iou, "apart": self.apart}
        boxes, confidence, classes = select_boxes(*self.predict(image), **limits)
        return Detections(boxes, confidence, [self.trained[index] for index in classes])


def load(options: BoxesSettings, setup: Setup | None = None) -> LiteEngine:
    """Load the engine. Raises UserError if its weights are missing or in another format."""
    return LiteEngine(options, (setup.files.get("model") if setup else None) or WEIGHTS)
