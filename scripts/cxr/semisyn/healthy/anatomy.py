"""Boxes of lungs and heart on the frame, and the check whether findings can be placed by them."""

from collections.abc import Mapping

import numpy as np

from cxr.base.vocabulary import HEART, LUNGS
from cxr.geometry.boxes import bounding_box, box_iou
from cxr.semisyn.healthy.criteria import Exclusion

ORGANS = ("right", "left", "heart")
MASKS = dict(zip(ORGANS, (*LUNGS, HEART), strict=True))
Box = tuple[int, int, int, int]
MAX_LUNG_IOU = 0.3
"""IoU of the boxes of both lungs above which an image is excluded as lungs_overlap."""


def organ_boxes(masks: Mapping[str, np.ndarray]) -> dict[str, Box]:
    """Return {right, left, heart: half-open box in frame pixels} of masks, bool (H, W); zeros of an empty mask."""
    return {organ: bounding_box(masks[label]) for organ, label in MASKS.items()}


def cardiothoracic_ratio(boxes: Mapping[str, Box]) -> float | None:
    """Return the cardiothoracic ratio: the heart's width over both lungs', outer edge to outer edge.

    None without heart or lungs. Along x a frame has one scale, so that the ratio is also that of the original pixels.
    """
    (right_lung, left_lung), heart = (boxes["right"], boxes["left"]), boxes["heart"]
    thorax = max(right_lung[2], left_lung[2]) - min(right_lung[0], left_lung[0])
    return (heart[2] - heart[0]) / thorax if thorax > 0 and heart[2] > heart[0] else None


def check_organs(boxes: Mapping[str, Box], most_iou: float) -> Exclusion | None:
    """Return why findings cannot be placed by these organs, or None: an organ is missing, or the lungs overlap.

    ``most_iou``: largest IoU of the lungs' boxes. The right lung lies on the image's left.
    """
    right_lung, left_lung, heart = (np.array(boxes[organ], float) for organ in ORGANS)
    if right_lung[2] <= right_lung[0] or left_lung[2] <= left_lung[0]:
        return Exclusion("no_lungs", "a lung's mask is empty")
    if heart[2] <= heart[0]:
        return Exclusion("no_heart")
    if right_lung[0] + right_lung[2] >= left_lung[0] + left_lung[2]:
        return Exclusion("lungs_overlap", "the right lung's box is not on the picture's left")
    iou = float(box_iou(right_lung[None], left_lung[None])[0, 0])
    return Exclusion("lungs_overlap", f"IoU of the lungs' boxes {iou:.3f} > {most_iou:g}") if iou > most_iou else None
