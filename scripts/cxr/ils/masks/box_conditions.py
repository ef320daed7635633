"""Why a box counts for a finding or not, read back from stored results: the failed conditions and the numbers behind.

What was decided is the stored verdict; the numbers are measured anew on the stored arrays, for people to read.
"""

from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from math import ceil

import cv2
import numpy as np

from cxr.base.vocabulary import BOX_CONDITIONS, LUNGS
from cxr.geometry.boxes import clip_boxes

MEASURED = BOX_CONDITIONS[:4]
"""The conditions with a number, c1 to c4 of Algorithm 1, as their thresholds are called."""


def shown(value: float, threshold: float = 0.0) -> str:
    """Return a measured number as text: cut, never rounded, so that .2496 stays below a threshold of .25.

    It has three digits, or as many as ``threshold`` has. Whatever shows a number of a box takes this, so that the page
    and ``explain`` say the same.
    """
    digits = max(3, -_exact(threshold).as_tuple().exponent)
    return f"{_exact(value).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR):f}"


def failed(verdict: int) -> list[str]:
    """Return the conditions whose bits a verdict has (none: the box is productive)."""
    return [name for bit, name in enumerate(BOX_CONDITIONS) if verdict >> bit & 1]


def box_values(
    boxes: Sequence[Mapping],
    place: np.ndarray,
    lungs: Mapping[str, np.ndarray],
    anomaly: np.ndarray,
    *,
    ano: float,
    denoise: str,
) -> list[dict[str, float]]:
    """Return for each box its ``anatomy``, ``conf``, ``signal`` and ``size``, the numbers beside the thresholds.

    ``boxes``: rows with x1, y1, x2, y2 (frame pixels) and confidence; ``place`` bool (H, W), the union of the zones of
    the finding's own labels; ``lungs`` {label: bool (H, W)}, the organs stage's, made on the image; ``anomaly`` uint8
    (H, W); ``ano``: the share of 255 from which a pixel is anomalous; ``denoise``: the setting masks.denoise.
    """
    binary = (anomaly >= ceil(255 * Fraction(repr(ano)))).astype(np.uint8)
    if denoise == "both":
        cross = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
        binary = cv2.morphologyEx(binary, cv2.MORPH_OPEN, cross, borderType=cv2.BORDER_CONSTANT, borderValue=0)
    corners = clip_boxes([[row["x1"], row["y1"], row["x2"], row["y2"]] for row in boxes], *anomaly.shape)
    found = []
    for row, (x1, y1, x2, y2) in zip(boxes, corners, strict=True):
        inside, area = (slice(y1, y2), slice(x1, x2)), int((x2 - x1) * (y2 - y1))
        found.append(
            {
                "anatomy": _iou(place, inside, area),
                "conf": float(row["confidence"]),
                "signal": int(binary[inside].sum()) / area if area else 0.0,
                "size": max(_iou(lungs[name], inside, area) for name in LUNGS),
            }
        )
    return found


def _iou(mask: np.ndarray, inside: tuple[slice, slice], area: int) -> float:
    whole, shared = int(mask.sum()), int(mask[inside].sum())
    return shared / (area + whole - shared) if whole and area else 0.0


def _exact(value: float) -> Decimal:
    return Decimal(repr(float(value)))
