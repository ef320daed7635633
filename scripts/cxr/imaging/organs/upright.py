"""Checking with a small net that an image is an upright chest X-ray, neither mirrored nor inverted in grey levels.

The net (resources/organs, trained by train_upright.py) scores how much an image looks like a correctly displayed
frontal X-ray. It scores eight rotations and reflections and their negatives. Without a chest, all scores are low.
"""

import cv2
import numpy as np

from cxr.base.paths import RESOURCES
from cxr.nets import onnx

RESOURCE_FILES = ("organs/upright.onnx",)
SIZE = 64  # side of the net's input, pixels
PERCENTILES = (0.5, 99.5)
MIRRORED = "mirrored"
TURNS = (
    "", MIRRORED, "upside down", "turned by 180 degrees", "turned by 90 degrees to the left",
    "turned by 90 degrees to the right", "turned and mirrored", "turned and mirrored",
)  # fmt: skip
"""Descriptions of a wrong display. Text k applies if version k of :func:`rotate_and_reflect` is the upright one."""
INVERTED = "inverted"
NO_CHEST = "nothing in the image looks like a complete chest"
MIN_NAMED_PROBABILITY = 0.5  # minimum probability for a version to be named in a message


def rotate_and_reflect(picture: np.ndarray) -> np.ndarray:
    """Return the eight rotations and reflections of square images (..., S, S), stacked to (8, ..., S, S)."""
    across = np.swapaxes(picture, -1, -2)
    return np.stack([picture, picture[..., ::-1], picture[..., ::-1, :], picture[..., ::-1, ::-1],
                     across[..., ::-1], across[..., ::-1, :], across, across[..., ::-1, ::-1]])  # fmt: skip


def make_net_input(picture: np.ndarray) -> np.ndarray:
    """Convert an image, uint8 (rows, columns), to float32 (64, 64) in 0..1. Shape and grey range are stretched."""
    small = cv2.resize(picture, (SIZE, SIZE), interpolation=cv2.INTER_AREA).astype(np.float32)
    low, high = np.percentile(small, PERCENTILES).astype(np.float32)
    return np.clip((small - low) / max(high - low, np.float32(1)), 0, 1)


def predict_versions(picture: np.ndarray) -> np.ndarray:
    """Return float64 (16,), sum 1: for each version in :data:`TURNS`, then each negative, how likely it is upright.

    ``picture``: the image without the frame's padding, uint8 (rows, columns).
    """
    versions = rotate_and_reflect(make_net_input(picture))
    versions = np.ascontiguousarray(np.concatenate([versions, 1 - versions])[:, None])
    logits = onnx.run_model(RESOURCES / RESOURCE_FILES[0], image=versions)[0].reshape(-1).astype(np.float64)
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def describe_posture(version_probabilities: np.ndarray) -> str:
    """Say how an image is wrongly displayed, from the probabilities of :func:`predict_versions`."""
    best = int(np.argmax(version_probabilities))
    if version_probabilities[best] < MIN_NAMED_PROBABILITY:
        return NO_CHEST
    inverted, turn = divmod(best, len(TURNS))
    description = " and ".join(filter(None, (INVERTED if inverted else "", TURNS[turn])))
    return f"the image looks {description}, probability {version_probabilities[best]:.3f}"
