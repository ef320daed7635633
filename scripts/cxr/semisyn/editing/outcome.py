"""Check and measure an engine's image: restore the source outside the edit, compute measures, refuse bad edits."""

from typing import NamedTuple

import cv2
import numpy as np

from cxr.base.vocabulary import LUNGS
from cxr.geometry.boxes import CORNERS, clip_boxes
from cxr.metrics import edits
from cxr.metrics.appearance import lung_midline
from cxr.semisyn.editing.engine import EditedImage, Job
from cxr.semisyn.shared import BLURS, WARPED_FINDING

CUT = 3
"""Standard deviations at which the kernel of ``gauss`` is cut."""


def soft_mask(boxes: np.ndarray, shape: tuple[int, int], blur: str) -> np.ndarray:
    """Return the edit weight of each pixel, float32 ``shape`` in 0..1: the maximum over ``boxes`` (N, 4). ``none`` is 1
    where a pixel's centre lies in the box; ``gauss`` blurs that, with the deviation half the side (whole pixels) over r
    along each axis; ``ggauss`` is exp(-(|t| / (sqrt(2) deviation)) ** exponent) of the distance t from the box's
    centre."""
    mask = np.zeros(shape, np.float32)
    for box in np.asarray(boxes, np.float64).reshape(-1, 4):
        np.maximum(mask, _box_mask(box, shape, *BLURS[blur]), out=mask)
    return mask


def _box_mask(box: np.ndarray, shape: tuple[int, int], kind: str, r: float, exponent: float) -> np.ndarray:
    if kind == "ggauss":
        bells = []
        for size, low, high in zip(shape, box[[1, 0]], box[[3, 2]], strict=True):
            deviation = max(1, (high - low) // 2) / r
            distance = np.abs(np.arange(size) + 0.5 - (low + high) / 2)
            bell = np.exp(-((distance / (np.sqrt(2) * deviation)) ** exponent))
            bells.append(bell / bell.max())
        return np.outer(*bells).astype(np.float32)
    x1, y1, x2, y2 = clip_boxes(box, *shape)[0]
    hard = np.zeros(shape, np.float32)
    hard[y1:y2, x1:x2] = 1
    if kind == "none" or not hard.any():
        return hard
    wide, tall = (max(1, (high - low) // 2) / r for low, high in ((x1, x2), (y1, y2)))
    # beyond the image the weight is 0
    sizes = tuple(2 * int(np.ceil(CUT * sigma)) + 1 for sigma in (wide, tall))
    soft = cv2.GaussianBlur(hard, sizes, wide, sigmaY=tall, borderType=cv2.BORDER_CONSTANT)
    return soft / soft.max()


VISIBLE = 4.0
"""Smallest visible change, grey levels."""
MIN_CHANGED = 0.01
"""Smallest fraction of the boxes' area that must change visibly."""


class EditRefused(ValueError):
    """The edit is refused; ``reason``: code of the reason."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


class AcceptedEdit(NamedTuple):
    """An edited image uint8 (512, 512), its lesion bool (512, 512), and the table rows of its boxes."""

    image: np.ndarray
    lesion: np.ndarray
    boxes: list[dict]


def evaluate_edit(
    source: np.ndarray, organs: dict[str, np.ndarray], job: Job, edited: EditedImage, max_leak: float
) -> AcceptedEdit:
    """Return the accepted edit of a job on a ``source`` uint8 (512, 512). Raises EditRefused, also if more than
    ``max_leak`` of the squared change lies outside the boxes under a configuration that edits inside a mask until the
    end."""
    support = edited.support if edited.support is not None else job.mask > 0
    image = np.asarray(edited.image)
    if image.shape != source.shape or not np.isfinite(image).all():
        raise EditRefused("bad_picture", "the engine's image has another shape, or values that are not finite")
    image = np.clip(np.rint(image), 0, 255).astype(np.uint8)
    if job.config["composite"] != "none" and job.config["extent"] >= 1:
        image = np.where(support, image, source)
    difference = edits.difference_image(source, image)
    inside = edits.mask_from_boxes(job.boxes, source.shape)
    changed_pixels = edits.visible_pixels(difference, VISIBLE)
    area = int((changed_pixels & inside).sum())
    if area < MIN_CHANGED * inside.sum():
        raise EditRefused("nothing_changed", f"{area} of {int(inside.sum())} pixels changed visibly")
    leak = edits.leaked_fraction(difference, inside)
    if job.finding != WARPED_FINDING and job.config["extent"] == 1 and leak > max_leak:
        raise EditRefused("leaked", f"{leak:.2f} of the squared change lies outside of the boxes")
    lesion = edited.lesion if edited.lesion is not None else changed_pixels & support
    measures = {
        "change_inside": edits.mean_change_inside(difference, inside),
        "change_outside_max": edits.largest_change_outside(difference, inside),
        "leak": leak,
        "area": area,
    }
    rows = []
    for number, (box, side) in enumerate(zip(job.boxes, job.sides, strict=True)):
        visible_box = box if job.finding == WARPED_FINDING else edits.tight_box(_lesion_of_side(lesion, organs, side))
        for kind, corners in (("conditioning", box), ("visible", visible_box)):
            if corners is not None:
                row = {"job_id": job.job_id, "number": number, "kind": kind, "side": side}
                rows.append(row | dict(zip(CORNERS, map(float, corners), strict=True)) | measures)
    return AcceptedEdit(image, lesion, rows)


def _lesion_of_side(lesion: np.ndarray, organs: dict[str, np.ndarray], side: str) -> np.ndarray:
    """Return the part of a lesion on the lung ``side`` of the midline and outside of the opposite lung."""
    if not side:
        return lesion
    columns = np.arange(lesion.shape[1])[None] + 0.5
    middle = lung_midline(np.stack([organs[name] for name in LUNGS]))
    is_opposite = columns > middle if side == "right" else columns < middle
    return lesion & ~organs[LUNGS[1] if side == "right" else LUNGS[0]] & ~is_opposite
