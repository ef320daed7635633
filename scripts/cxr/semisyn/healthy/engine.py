"""Criteria of the healthy pool with the reasons for exclusions, and the interface of the classifiers that screen it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from cxr.base.vocabulary import HEART, LUNGS
from cxr.geometry.boxes import bounding_box, box_iou

STAGE = "semisyn_healthy"
CRITERIA: dict[str, tuple[str, ...]] = {
    "frame": (),
    "view": ("not_pa",),
    "position": ("not_erect",),
    "reference": ("in_reference",),
    "split": ("other_split",),
    "labels": ("no_report", "not_labelled"),
    "finding": ("has_finding",),
    "device": ("has_device",),
    "classifier": ("classifier_positive",),
    "organs": ("no_lungs",),
    "heart": ("no_heart",),
    "lungs": ("lungs_overlap",),
}
"""{criterion: reason codes of images that fail it}, in the order of the checks. The first failed criterion counts."""
CRITERION_BY_STAGE = {"frames": "frame", "organs": "organs", "boxes": "classifier"}
"""{earlier stage: criterion under which its excluded images are counted}."""
ORGANS = ("right", "left", "heart")
MAX_LUNG_IOU = 0.3
"""IoU of the boxes of both lungs above which an image is excluded as lungs_overlap."""
Box = tuple[int, int, int, int]
ReadFrame = Callable[[], np.ndarray]


class Exclusion(NamedTuple):
    """An exclusion of an image. reason: a code of ``exclusions.REASONS``; stage: the stage that excluded the image."""

    reason: str
    detail: str = ""
    stage: str = STAGE


def criterion_of(stage: str, reason: str) -> str:
    """Return the criterion under which an exclusion is counted. Raise KeyError for an unknown stage or reason."""
    if stage != STAGE:
        return CRITERION_BY_STAGE[stage]
    return {code: name for name, reasons in CRITERIA.items() for code in reasons}[reason]


def organ_boxes(masks: Mapping[str, np.ndarray]) -> dict[str, Box]:
    """Return {right, left (lungs), heart: half-open box in frame pixels}. An empty mask has a box of zeros."""
    return {organ: bounding_box(masks[label]) for organ, label in zip(ORGANS, (*LUNGS, HEART), strict=True)}


def cardiothoracic_ratio(boxes: Mapping[str, Box]) -> float | None:
    """Return the heart's width divided by the distance of the lungs' outer edges; None without heart or lungs."""
    right_lung, left_lung, heart = (boxes[organ] for organ in ORGANS)
    thorax = max(right_lung[2], left_lung[2]) - min(right_lung[0], left_lung[0])
    return (heart[2] - heart[0]) / thorax if thorax > 0 and heart[2] > heart[0] else None


def check_organs(boxes: Mapping[str, Box]) -> Exclusion | None:
    """Return the exclusion of an image without a lung or heart, or with overlapping lungs, otherwise None."""
    right_lung, left_lung, heart = (np.array(boxes[organ], float) for organ in ORGANS)
    if right_lung[2] <= right_lung[0] or left_lung[2] <= left_lung[0]:
        return Exclusion("no_lungs", "a lung's mask is empty")
    if heart[2] <= heart[0]:
        return Exclusion("no_heart")
    if right_lung[0] + right_lung[2] >= left_lung[0] + left_lung[2]:
        return Exclusion("lungs_overlap", "the right lung's box is not on the picture's left")
    iou = float(box_iou(right_lung[None], left_lung[None])[0, 0])
    if iou > MAX_LUNG_IOU:
        return Exclusion("lungs_overlap", f"IoU of the lungs' boxes {iou:.3f} > {MAX_LUNG_IOU:g}")
    return None


class Classifier(ABC):
    """A classifier of frames. Its module may have ``UNSEEN``, the findings that it cannot detect."""

    thresholds: Mapping[str, float]
    """{finding: score from which an image is positive}."""

    @abstractmethod
    def scores(self, image_id: str, read_frame: ReadFrame) -> dict[str, float] | Exclusion:
        """Return {finding: score, 0 to 1}, or why the image has no scores. ``read_frame``: returns its frame."""

    def explain_positive(self, scores: Mapping[str, float], ctr: float | None, view: str) -> str:
        """Return why an image is positive, or "" if it is not. ``ctr``: cardiothoracic ratio; ``view``: PA or AP."""
        positive = [(finding, low) for finding, low in self.thresholds.items() if scores[finding] >= low]
        return ", ".join(f"{finding} {scores[finding]:.3f} >= {low:g}" for finding, low in positive)
