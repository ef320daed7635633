"""The embedded detector: a small anchor-free ONNX net, with decoding and non-maximum suppression in numpy.

resources/boxes/CARD.md describes its training and scores, :mod:`cxr.detection.grid` its input and output.
"""

import numpy as np

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import BOX_CLASSES
from cxr.detection.grid import select
from cxr.detection.weights import Weights
from cxr.imaging.boxes.engine import BoxesOptions, Detections

RESOURCE_FILES = ("boxes/lite.onnx",)
WEIGHTS = RESOURCES / RESOURCE_FILES[0]


class LiteEngine:
    """The embedded detector. It has all VinBigData classes, but was trained only on those in ``trained``."""

    class_names = BOX_CLASSES
    image_ids = None

    def __init__(self, options: BoxesOptions):
        self.weights, self.options = Weights(WEIGHTS), options
        self.trained = self.weights.grid.classes
        self.apart = [index for index, name in enumerate(self.trained) if name in options.excluded_classes]

    def predict(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all boxes (classes, rows, columns, 4) in frame pixels and confidences (classes, rows, columns)."""
        return self.weights.predict(image)

    def detect(self, image: np.ndarray, image_id: str, to_original: np.ndarray) -> Detections:
        """See :class:`cxr.imaging.boxes.engine.BoxEngine`."""
        options = self.options
        boxes, confidence, classes = select(
            *self.predict(image),
            floor=options.floor,
            iou=options.nms_iou,
            most=options.max_boxes,
            across=options.own["region_iou"],
            apart=self.apart,
        )
        return Detections(boxes, confidence, [self.trained[index] for index in classes])


def load(options: BoxesOptions, setup: object = None) -> LiteEngine:
    """Load the engine. Raises UserError if its weights are missing."""
    return LiteEngine(options)
