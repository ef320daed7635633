"""Functions shared by the engines with a YOLO net: mapping class names, and converting boxes to detections."""

import numpy as np
import torch

from cxr.base.vocabulary import BOX_CLASSES
from cxr.detection.grid import CONFIDENCE_DIGITS, PIXEL_DIGITS
from cxr.detection.proposals import ScoredBoxes, drop_empty
from cxr.imaging.boxes.engine import Detections, map_class_names
from cxr.nets import tensors


def class_indices(names: list[str], renamed: dict[str, str], path: str) -> np.ndarray:
    """Return the index in ``BOX_CLASSES`` of each of a checkpoint's class names, or -1 if ``renamed`` maps it to ""."""
    vocabulary_names = map_class_names(names, renamed, path)
    return np.array([BOX_CLASSES.index(name) if name else -1 for name in vocabulary_names])


def make_detections(image_proposals: ScoredBoxes) -> Detections:
    """Convert the boxes of an image to detections: round numbers, drop empty boxes, add class names, keep the order."""
    image_proposals = drop_empty(image_proposals._replace(boxes=image_proposals.boxes.round(PIXEL_DIGITS)))
    names = [BOX_CLASSES[index] for index in image_proposals.classes]
    return Detections(image_proposals.boxes, image_proposals.confidence.round(CONFIDENCE_DIGITS), names)


def set_eps(net: torch.nn.Module, eps: float, path: str) -> None:
    """Set ``eps`` in every batch normalisation. Raises UserError if ``eps`` is not a number in (0, 1)."""
    if not isinstance(eps, float) or not 0 < eps < 1:
        tensors.refuse_weights(path, f"has the invalid batch normalisation eps {eps!r}")
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eps = eps
