"""The interface of engines that turn X-rays into features, in which edited images are compared with real ones.

An engine's module says in ``METRICS`` what its numbers are called: ``frechet`` and ``kernel`` of the distances between
edited and real images, ``similarity`` of how well an image fits its prompt; it has no metric that it does not name.
Only the features of FID's own net give what is called FID.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module


class Features(NamedTuple):
    """``feature`` float32 (N, D) of N images; ``similarity`` float32 (N,) with their prompts, None without such."""

    feature: np.ndarray
    similarity: np.ndarray | None = None


class FeatureEngine(Protocol):
    """Features of X-rays. ``batch``: images that one call takes at most; ``weights``: digest of what it has learnt."""

    batch: int
    weights: str

    def features(self, images: Sequence[np.ndarray], prompts: Sequence[str]) -> Features:
        """Return the features of frames uint8 (512, 512), and how well each fits its prompt.

        No result depends on the other images of a call.
        """
        ...


def load_features(name: str, setup: Setup) -> FeatureEngine:
    """Load an engine with ``load(setup)`` of its module. Raises UserError for one that cannot be used."""
    return engine_module("cxr.semisyn.realism", name).load(setup)


def digest_of(*paths: str) -> str:
    """Return a digest of the files' bytes."""
    return hashlib.blake2b("".join(map(sha256_of, paths)).encode(), digest_size=16).hexdigest()


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
