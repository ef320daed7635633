"""What came with an image as text: made harmless, refused where it gives orders, and held against the masks."""

import re
from collections.abc import Mapping

import cv2
import numpy as np

from cxr.llm.guards import addresses_the_model, neutralize
from cxr.medground.logic.descriptions import parsed, patients_side
from cxr.medground.logic.text import FIELDS

LONGEST = 600
"""Characters of a description that are kept."""
_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def kept(text: str) -> tuple[str, str]:
    """Return (text, state) of a description: none, refused (it speaks to a model), read (LViT's form) or unread.

    The text is harmless and at most :data:`LONGEST` characters; that of a refused one is empty.
    """
    plain = " ".join(neutralize(_INVISIBLE.sub("", text)).split())
    if not plain:
        return "", "none"
    if addresses_the_model(text, FIELDS) or addresses_the_model(plain, FIELDS):
        return "", "refused"
    plain = plain[:LONGEST].rstrip()
    return plain, "unread" if parsed(plain) is None else "read"


def sides_of(masks: Mapping[str, np.ndarray]) -> set[str]:
    """Return the patient's sides of the centroids of masks' components, bool (H, W)."""
    sides: set[str] = set()
    for mask in masks.values():
        _, _, _, centroids = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
        sides |= {patients_side(x + 0.5, mask.shape[1] / 2) for x, _ in centroids[1:].tolist()}
    return sides


def disagrees(text: str, masks: Mapping[str, np.ndarray], radiological: bool) -> bool | None:
    """Return whether a description names a side without a mask, or leaves one with a mask out.

    None where it does not tell: no known form, no side of a body, or sides that are unknown.
    """
    read = parsed(text)
    if read is None or not read.patients or not radiological:
        return None
    return read.sides != sides_of(masks)
