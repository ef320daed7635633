"""The embedded detector: a small anchor-free ONNX net, its boxes decoded and thinned out in numpy.

The net sees the frame at 256 x 256 and gives, for each cell of a 16 x 16 grid, a calibrated logit per class and, per
group of classes, the distances from the cell's centre to the four sides of the box, in cells. How it was made and how
good it is: resources/boxes/CARD.md.
"""

import json

import cv2
import numpy as np

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import BOX_CLASSES
from cxr.geometry.suppression import preference, suppress
from cxr.imaging.boxes.engine import CONFIDENCE_DIGITS, PIXEL_DIGITS, BoxesOptions, Detections
from cxr.nets import onnx

RESOURCE_FILES = ("boxes/lite.onnx",)
WEIGHTS = RESOURCES / RESOURCE_FILES[0]
CANDIDATES = 4
"""Boxes looked at before suppression for each that ``max_boxes`` lets through."""


def decode(distance: np.ndarray, groups: list[int], side: int) -> np.ndarray:
    """Turn distances (2 or more groups x 4, rows, columns) into boxes (classes, rows, columns, 4) in frame pixels.

    ``distance`` holds left, top, right, bottom in cells, per group; ``groups`` gives the group of each class;
    ``side`` is that of the frame. Boxes are clipped to the frame.
    """
    _, rows, columns = distance.shape
    ltrb = distance.reshape(-1, 4, rows, columns).astype(np.float64).transpose(0, 2, 3, 1)
    cell = np.array([side / columns, side / rows])
    centre = np.stack(np.meshgrid(np.arange(columns) + 0.5, np.arange(rows) + 0.5), axis=-1)
    boxes = np.concatenate([centre - ltrb[..., :2], centre + ltrb[..., 2:]], axis=-1) * np.tile(cell, 2)
    return np.clip(boxes, 0.0, side)[groups]


def select(
    boxes: np.ndarray, confidence: np.ndarray, options: BoxesOptions
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Choose among decoded boxes (classes, rows, columns, 4) with confidences (classes, rows, columns).

    Returns boxes (N, 4), confidences (N,) and class indices (N,), best first: at least ``floor``, suppressed within
    each class, at most ``max_boxes``, rounded, none without area.
    """
    classes, rows, columns = np.nonzero(confidence >= options.floor)
    boxes = boxes[classes, rows, columns].round(PIXEL_DIGITS)
    confidence = confidence[classes, rows, columns].astype(np.float64).round(CONFIDENCE_DIGITS)
    solid = np.nonzero((boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]) & (confidence >= options.floor))[0]
    best = solid[preference(boxes[solid], confidence[solid], classes[solid])[: CANDIDATES * options.max_boxes]]
    chosen = best[suppress(boxes[best], confidence[best], classes[best], options.nms_iou, options.max_boxes)]
    return boxes[chosen], confidence[chosen], classes[chosen]


class LiteEngine:
    """The embedded detector. It knows all classes of the set, but was trained on those of ``trained`` only."""

    class_names = BOX_CLASSES
    image_ids = None

    def __init__(self, options: BoxesOptions):
        facts = onnx.metadata(WEIGHTS)
        self.trained: list[str] = json.loads(facts["classes"])
        self.groups: list[int] = json.loads(facts["groups"])
        self.size = int(facts["size"])
        self.options = options

    def predict(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all boxes (classes, rows, columns, 4) in frame pixels and confidences (classes, rows, columns)."""
        small = cv2.resize(image, (self.size, self.size), interpolation=cv2.INTER_AREA)
        logit, distance = onnx.run(WEIGHTS, image=small.astype(np.float32)[None, None] / 255)
        confidence = 1.0 / (1.0 + np.exp(-logit[0].astype(np.float64)))
        return decode(distance[0], self.groups, image.shape[0]), confidence

    def detect(self, image: np.ndarray, image_id: str, to_original: np.ndarray) -> Detections:
        """See :class:`cxr.imaging.boxes.engine.BoxEngine`."""
        boxes, confidence, classes = select(*self.predict(image), self.options)
        return Detections(boxes, confidence, [self.trained[index] for index in classes])


def load(options: BoxesOptions, setup: object = None) -> LiteEngine:
    """Load the engine. Raises UserError if its weights are missing."""
    return LiteEngine(options)
