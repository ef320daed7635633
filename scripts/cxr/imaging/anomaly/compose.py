"""Composing the edited image and the anomaly map from an engine's output (paper, section 3.1)."""

import numpy as np

from cxr.base.vocabulary import HEART, LUNGS


class BadMap(ValueError):
    """The engine's output has another shape or values that are not finite."""


def edit_region(organs: dict[str, np.ndarray]) -> np.ndarray:
    """Return bool (H, W): lungs and heart, the region where an edit is allowed (paper)."""
    return np.logical_or.reduce([organs[label] for label in (*LUNGS, HEART)])


def compose(image: np.ndarray, proposal: np.ndarray, region: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the edited image and the anomaly map, both uint8 (H, W).

    ``image`` uint8 (H, W), ``proposal`` the engine's output (H, W) in grey levels 0..255, ``region`` bool (H, W).
    Inside the region the edited image is the proposal, rounded and clipped to 0..255; outside it is the image itself.
    The map is max(image - edited, 0), exact in grey levels, because a lesion is brighter than healthy tissue. Raises
    BadMap.
    """
    if proposal.shape != image.shape:
        raise BadMap(f"shape {proposal.shape} instead of {image.shape}")
    if not np.isfinite(proposal).all():
        raise BadMap(f"{np.count_nonzero(~np.isfinite(proposal))} values are not finite")
    edited = np.where(region, np.clip(np.rint(proposal), 0, 255), image).astype(np.uint8)
    return edited, image - np.minimum(edited, image)
