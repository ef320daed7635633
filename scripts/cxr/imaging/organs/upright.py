"""Is the picture an upright, unmirrored, positive chest X-ray? What a small net says of it and its 15 other versions.

The net (resources/organs, made by train_upright.py) scores how much a picture looks like a frontal chest X-ray as it is
displayed. Asked about all eight turns and reflections of a picture, as it is and inverted, it prefers the right one; a
picture without a chest has none. It looks at the picture, not at organ masks, so that it serves every engine.
"""

import cv2
import numpy as np

from cxr.base.paths import RESOURCES
from cxr.nets import onnx

RESOURCE_FILES = ("organs/upright.onnx",)
SIZE = 64
"""Side of the net's input, pixels."""
PERCENTILES = (0.5, 99.5)
MIRRORED = "mirrored"
TURNS = (
    "",
    MIRRORED,
    "upside down",
    "turned by 180 degrees",
    "turned by 90 degrees to the left",
    "turned by 90 degrees to the right",
    "turned and mirrored",
    "turned and mirrored",
)
"""What a picture is if :func:`turned` number k of it is the right one, k = 0 … 7; 8 … 15: the same of its negative."""
INVERTED = "inverted"
NOTHING = "nothing in the picture looks like a whole chest"
SURE = 0.5
"""Probability from which a version is named in a detail."""


def turned(picture: np.ndarray) -> np.ndarray:
    """Return the 8 turns and reflections of square pictures (..., S, S), stacked first: (8, ..., S, S)."""
    across = np.swapaxes(picture, -1, -2)
    return np.stack([picture, picture[..., ::-1], picture[..., ::-1, :], picture[..., ::-1, ::-1],
                     across[..., ::-1], across[..., ::-1, :], across, across[..., ::-1, ::-1]])  # fmt: skip


def shrunk(picture: np.ndarray) -> np.ndarray:
    """Return float32 (64, 64) in 0..1 of a picture uint8 (rows, columns): stretched to a square and in its tones."""
    small = cv2.resize(picture, (SIZE, SIZE), interpolation=cv2.INTER_AREA).astype(np.float32)
    low, high = np.percentile(small, PERCENTILES).astype(np.float32)
    return np.clip((small - low) / max(high - low, np.float32(1)), 0, 1)


def probabilities(picture: np.ndarray) -> np.ndarray:
    """Return float64 (16,), sum 1: that each of the versions of :data:`TURNS`, then of its negative, is the right one.

    ``picture`` uint8 (rows, columns) is the picture without the frame's padding.
    """
    versions = turned(shrunk(picture))
    versions = np.ascontiguousarray(np.concatenate([versions, 1 - versions])[:, None])
    logits = onnx.run(RESOURCES / RESOURCE_FILES[0], image=versions)[0].reshape(-1).astype(np.float64)
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def described(found: np.ndarray) -> str:
    """Return in words what :func:`probabilities` says of a picture that is not shown as it should be."""
    best = int(np.argmax(found))
    if found[best] < SURE:
        return NOTHING
    inverted, turn = divmod(best, len(TURNS))
    named = " and ".join(filter(None, (INVERTED if inverted else "", TURNS[turn])))
    return f"the picture looks {named}, probability {found[best]:.3f}"
