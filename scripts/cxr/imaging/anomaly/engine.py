"""The interface of engines that remove lesions, and the anomaly map made from their output (paper, section 3.1)."""

from typing import Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.base.vocabulary import HEART, LUNGS
from cxr.imaging.anomaly.settings import AnomalySettings


class BadMap(ValueError):
    """Error for an engine's output that has a wrong shape, or values that are not finite."""


def edit_region(organs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the region that an edit may change, bool (H, W): lungs and heart, as in the paper."""
    return np.logical_or.reduce([organs[label] for label in (*LUNGS, HEART)])


def compose(image: np.ndarray, proposal: np.ndarray, region: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the edited image and the anomaly map, both uint8 (H, W). Raises BadMap for an unusable proposal.

    ``proposal``: the engine's output (H, W) in grey levels. Inside ``region``, bool (H, W), the edited image is the
    proposal, rounded and clipped to 0..255. Outside, it is the original image. The map is max(image - edited, 0),
    because a lesion is brighter than healthy tissue.
    """
    if proposal.shape != image.shape:
        raise BadMap(f"the engine's output has the shape {proposal.shape} instead of {image.shape}")
    if not np.isfinite(proposal).all():
        raise BadMap(f"{np.count_nonzero(~np.isfinite(proposal))} values of the engine's output are not finite")
    edited = np.where(region, np.clip(np.rint(proposal), 0, 255), image).astype(np.uint8)
    return edited, image - np.minimum(edited, image)


class AnomalyEngine(Protocol):
    """An engine that removes lesions from a chest X-ray."""

    def edit(self, image: np.ndarray, organs: dict[str, np.ndarray]) -> np.ndarray:
        """Remove lesions from an image; return uint8 or float (512, 512), grey levels 0..255.

        ``image``: a frame, uint8 (512, 512); ``organs``: its masks {label: bool (512, 512)}, at least right lung, left
        lung and heart. The stage restores the pixels outside the edit region and checks the values, so an engine may
        return any image of this shape. Several threads call this method at once.

        An engine with a large net instead has an attribute ``batch``, the batch size, and a method ``edit_batch(images,
        organs, image_ids)``. It takes lists and is called from one thread. No result may depend on the other images.
        """


def load_engine(name: str, options: AnomalySettings, setup: Setup | None = None) -> AnomalyEngine:
    """Load the engine ``cxr.imaging.anomaly.<name>``. Raises UserError for an unknown name."""
    return engine_module("cxr.imaging.anomaly", name).load(options, setup or Setup())
