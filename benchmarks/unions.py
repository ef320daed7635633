"""What the benchmarks of MedGround and of vision-language models share: core seconds, drawn boxes, IoU of unions."""

import time
from collections.abc import Callable

import numpy as np

from cxr.geometry.unions import union_ious

GRID = 1000


def seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """Return the fastest of several rounds, core seconds."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def boxes(count: int, seed: int) -> np.ndarray:
    """Return boxes on the grid, int64 (count, 4)."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 900, (count, 2))
    return np.concatenate([low, np.minimum(low + rng.integers(10, 200, (count, 2)), GRID)], axis=1)


def raster_iou(first: np.ndarray, second: np.ndarray) -> float:
    """Return the IoU of the unions, counted on a raster of 1000 × 1000."""
    planes = np.zeros((2, GRID, GRID), bool)
    for plane, held in zip(planes, (first, second), strict=True):
        for x1, y1, x2, y2 in held:
            plane[y1:y2, x1:x2] = True
    return float((planes[0] & planes[1]).sum() / (planes[0] | planes[1]).sum())


def of_unions(pairs: int = 40, rounds: int = 3) -> float:
    """Return how many times as long as ours a raster takes for the IoU of the unions of 60 and 60 boxes.

    As in scoring, many pairs are asked at once.
    """
    one, other = ([boxes(60, 2 * at + side) for at in range(pairs)] for side in (1, 2))
    plain = [raster_iou(*pair) for pair in zip(one, other, strict=True)]
    assert union_ious(one, other).tolist() == plain
    ours = seconds(lambda: union_ious(one, other), rounds)
    plainly = seconds(lambda: [raster_iou(*pair) for pair in zip(one, other, strict=True)], rounds)
    return plainly / ours
