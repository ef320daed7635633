"""Feature engine ``lite``: 128 features of the detector shipped with the project, which learnt from painted lesions."""

from collections.abc import Sequence

import cv2
import numpy as np

from cxr.base.engines import Setup
from cxr.base.paths import RESOURCES
from cxr.detection.weights import read_card
from cxr.nets.onnx import compute_layer
from cxr.semisyn.realism.engine import FeatureEngine, Features, digest_of

METRICS = {"frechet": "frechet_lite", "kernel": "kernel_lite"}
RESOURCE_FILES = ("boxes/lite.onnx",)
POOLED = "/ReduceMean_2_output_0"
"""Name, in the detector's ONNX file, of the features averaged over the whole image."""


def load(setup: Setup) -> FeatureEngine:
    """Load the engine. Raise UserError if its weights are missing."""
    path = RESOURCES / RESOURCE_FILES[0]
    side = read_card(path).grid.size

    def compute_features(images: Sequence[np.ndarray], prompts: Sequence[str]) -> Features:
        small = [cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA) for image in images]
        inputs = [image.astype(np.float32)[None, None] / 255 for image in small]
        return Features(np.concatenate([compute_layer(path, POOLED, image=image) for image in inputs]))

    return FeatureEngine(compute_features, digest_of(path))
