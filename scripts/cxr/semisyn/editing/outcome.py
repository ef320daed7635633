"""Check and measure an engine's image: restore the source outside the edit, compute measures, refuse bad edits."""

from dataclasses import dataclass

import cv2
import numpy as np

from cxr.base.vocabulary import HEART, LUNGS
from cxr.geometry.boxes import CORNERS, clip_boxes
from cxr.metrics import edits
from cxr.metrics.appearance import lung_midline
from cxr.semisyn.editing.engine import EditedImage, Job
from cxr.semisyn.shared import BLURS, WARPED_FINDING

CUT = 3
"""Standard deviations at which the kernel of ``gauss`` is cut."""


def soft_mask(boxes: np.ndarray, shape: tuple[int, int], blur: str) -> np.ndarray:
    """Return the edit weight of each pixel, float32 ``shape`` in 0..1. ``boxes`` (N, 4) in pixels, half-open.

    The result is the pixelwise maximum of one mask per box, each with the maximum 1. ``blur``: one of :data:`BLURS`;
    ``none`` is 1 where a pixel's centre lies in the box; ``gauss`` blurs that, with the deviation half the side (whole
    pixels) over r along each axis; ``ggauss`` is exp(-(|t| / (sqrt(2) deviation)) ** exponent) of the distance t from
    the box's centre.
    """
    mask = np.zeros(shape, np.float32)
    for box in np.asarray(boxes, np.float64).reshape(-1, 4):
        np.maximum(mask, _box_mask(box, shape, *BLURS[blur]), out=mask)
    return mask


def _box_mask(box: np.ndarray, shape: tuple[int, int], kind: str, r: float, exponent: float) -> np.ndarray:
    if kind == "ggauss":
        x1, y1, x2, y2 = box
        column, row = (
            _bell_curve(size, low, high, r, exponent) for size, low, high in ((shape[1], x1, x2), (shape[0], y1, y2))
        )
        return (row[:, None] * column[None]).astype(np.float32)
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


def _bell_curve(size: int, low: float, high: float, r: float, beta: float) -> np.ndarray:
    deviation = max(1, (high - low) // 2) / r
    distance = np.abs(np.arange(size) + 0.5 - (low + high) / 2)
    bell = np.exp(-((distance / (np.sqrt(2) * deviation)) ** beta))
    return bell / bell.max()


VISIBLE = 4.0
"""Smallest visible change, grey levels."""
MIN_CHANGED = 0.01
"""Smallest fraction of the boxes' area that must change visibly."""


class EditRefused(ValueError):
    """The edit is refused; ``reason``: code of the reason."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True)
class AcceptedEdit:
    """An edited image uint8 (512, 512), its lesion bool (512, 512), and the table rows of its boxes."""

    image: np.ndarray
    lesion: np.ndarray
    boxes: list[dict]


def evaluate_edit(
    source: np.ndarray, organs: dict[str, np.ndarray], job: Job, edited: EditedImage, max_leak: float
) -> AcceptedEdit:
    """Return the accepted edit of a job. Raises EditRefused.

    ``source`` uint8 (512, 512); ``max_leak``: largest fraction of the squared change outside the boxes, for
    configurations that edit inside a mask until the end.
    """
    support = edited.support if edited.support is not None else job.mask > 0
    image = _composite(source, job, edited, support)
    difference = edits.difference_image(source, image)
    inside = edits.mask_from_boxes(job.boxes, source.shape)
    changed_pixels = edits.visible_pixels(difference, VISIBLE)
    if (changed_pixels & inside).sum() < MIN_CHANGED * inside.sum():
        raise EditRefused(
            "nothing_changed", f"{int((changed_pixels & inside).sum())} of {int(inside.sum())} pixels changed visibly"
        )
    leak = edits.leaked_fraction(difference, inside)
    if job.finding != WARPED_FINDING and job.config["extent"] == 1 and leak > max_leak:
        raise EditRefused("leaked", f"{leak:.2f} of the squared change lies outside of the boxes")
    lesion = edited.lesion if edited.lesion is not None else changed_pixels & support
    measures = {
        "change_inside": edits.mean_change_inside(difference, inside),
        "change_outside_max": edits.largest_change_outside(difference, inside),
        "leak": leak,
        "area": int((changed_pixels & inside).sum()),
    }
    return AcceptedEdit(image, lesion, _box_rows(job, organs, lesion, measures))


def _composite(source: np.ndarray, job: Job, edited: EditedImage, support: np.ndarray) -> np.ndarray:
    """Return the image in grey levels, with the source outside the support if the configuration composites."""
    image = np.asarray(edited.image)
    if image.shape != source.shape or not np.isfinite(image).all():
        raise EditRefused("bad_picture", "the engine's image has another shape, or values that are not finite")
    image = np.clip(np.rint(image), 0, 255).astype(np.uint8)
    if job.config["composite"] == "none" or job.config["extent"] < 1:
        return image
    return np.where(support, image, source)


def _box_rows(job: Job, organs: dict[str, np.ndarray], lesion: np.ndarray, measures: dict) -> list[dict]:
    """Return two rows for each box: as requested, and the tight box of the visible lesion in its lung."""
    rows = []
    for number, (box, side) in enumerate(zip(job.boxes, job.sides, strict=True)):
        kinds = {"conditioning": box, "visible": box}
        if job.finding != WARPED_FINDING:
            opposite_lung = {"right": LUNGS[1], "left": LUNGS[0]}.get(side)
            near = lesion & ~organs[opposite_lung] & ~_opposite_columns(organs, side) if opposite_lung else lesion
            kinds["visible"] = edits.tight_box(near)
        for kind, corners in kinds.items():
            if corners is not None:
                row = {"job_id": job.job_id, "number": number, "kind": kind, "side": side}
                rows.append(row | dict(zip(CORNERS, map(float, corners), strict=True)) | measures)
    return rows


def _opposite_columns(organs: dict[str, np.ndarray], side: str) -> np.ndarray:
    """Return the columns beyond the midline, seen from the lung ``side``, bool (512, 512)."""
    columns = np.broadcast_to(np.arange(organs[HEART].shape[1])[None] + 0.5, organs[HEART].shape)
    middle = lung_midline(np.stack([organs[name] for name in LUNGS]))
    return columns > middle if side == "right" else columns < middle
