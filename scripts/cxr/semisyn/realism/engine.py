"""Interface of the feature engines, whose features compare edited with real images, and their loader.

An engine's module declares in ``METRICS`` {kind: metric name} of the metrics it provides: ``frechet`` and ``kernel``
distances between edited and real images, ``similarity`` of an image and its prompt. Only features of FID's own net may
be called FID.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module


class Features(NamedTuple):
    """``feature`` float32 (N, D) of N images; ``similarity`` float32 (N,) to their prompts, or None."""

    feature: np.ndarray
    similarity: np.ndarray | None = None


class FeatureEngine(Protocol):
    """Computes features of X-rays. ``batch``: most images per call; ``weights``: digest of the weights."""

    batch: int
    weights: str

    def features(self, images: Sequence[np.ndarray], prompts: Sequence[str]) -> Features:
        """Return the features of frames uint8 (512, 512), and the similarity of each to its prompt.

        Results are independent of the other images of a call.
        """
        ...


def load_features(name: str, setup: Setup) -> FeatureEngine:
    """Call ``load(setup)`` of an engine's module. Raises UserError for an unusable engine."""
    return engine_module("cxr.semisyn.realism", name).load(setup)


def digest_of(*paths: str) -> str:
    """Return a digest of the files' bytes."""
    return hashlib.blake2b("".join(map(sha256_of, paths)).encode(), digest_size=16).hexdigest()


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
