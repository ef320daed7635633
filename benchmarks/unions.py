"""Functions that the benchmarks of MedGround and of vision-language models share: time, random boxes, IoU of unions."""

import time
from collections.abc import Callable

import numpy as np

from cxr.geometry.unions import union_ious

GRID = 1000


def seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """Return the core seconds of the fastest of several rounds."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def boxes(count: int, seed: int) -> np.ndarray:
    """Return random boxes on a grid of 1000 x 1000 cells, int64 (count, 4)."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 900, (count, 2))
    return np.concatenate([low, np.minimum(low + rng.integers(10, 200, (count, 2)), GRID)], axis=1)


def raster_iou(first: np.ndarray, second: np.ndarray) -> float:
    """Return the IoU of two unions of boxes, computed on a raster of 1000 × 1000 cells."""
    planes = np.zeros((2, GRID, GRID), bool)
    for plane, held in zip(planes, (first, second), strict=True):
        for x1, y1, x2, y2 in held:
            plane[y1:y2, x1:x2] = True
    return float((planes[0] & planes[1]).sum() / (planes[0] | planes[1]).sum())


def of_unions(pairs: int = 40, rounds: int = 3) -> float:
    """Return the time of a raster divided by ours, for the IoU of unions of 60 boxes; many pairs are computed at
    once."""
    one, other = ([boxes(60, 2 * at + side) for at in range(pairs)] for side in (1, 2))
    plain = [raster_iou(*pair) for pair in zip(one, other, strict=True)]
    assert union_ious(one, other).tolist() == plain
    ours = seconds(lambda: union_ious(one, other), rounds)
    plainly = seconds(lambda: [raster_iou(*pair) for pair in zip(one, other, strict=True)], rounds)
    return plainly / ours
