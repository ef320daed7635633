"""Frames for the tests of the detectors: smooth random pictures, alone or in a shard."""

from pathlib import Path

import cv2
import numpy as np

from cxr.base.hdf5 import ShardWriter


def frames(count: int, spread: float = 120) -> list[np.ndarray]:
    """Smooth pictures uint8 (512, 512); ``spread``: grey levels, at 120 with pure white and black among them."""
    made = []
    for number in range(count):
        rough = np.random.default_rng(number).normal(128, spread, (9, 9))
        made.append(np.clip(cv2.resize(rough, (512, 512), interpolation=cv2.INTER_CUBIC), 0, 255).astype(np.uint8))
    return made


def write_frames(path: Path, count: int, spread: float = 120) -> Path:
    """Write :func:`frames` as a shard of the images i0, i1, …; frame pixels are those of the original."""
    with ShardWriter(path) as writer:
        for number, picture in enumerate(frames(count, spread)):
            writer.append(f"i{number}", image=picture, to_original=np.eye(2, 3))
    return path


def alike_in_any_batch(engine, pictures: list[np.ndarray]) -> list:
    """Return what an engine finds: some boxes in each picture, best first, and the same in a batch or alone."""
    together = engine.detect_batch(pictures)
    for picture, one in zip(pictures, together, strict=True):
        alone = engine.detect_batch([picture])[0]
        assert alone.boxes.tobytes() == one.boxes.tobytes()
        assert alone.confidence.tobytes() == one.confidence.tobytes()
        assert alone.class_names == one.class_names
        assert len(one.boxes) > 0
        assert one.boxes.dtype == one.confidence.dtype == np.float64
        assert (np.diff(one.confidence) <= 0).all()
    assert len({one.boxes.tobytes() for one in together}) == len(pictures)
    return together
