"""Exact IoU of the regions that two sets of integer boxes cover, for many pairs of sets at once.

The boxes' horizontal edges divide the image into strips. A strip is stored as one bit per image column. A box covers
the same columns in all its strips, so it is stored as two ranges of 2^k strips that may overlap. Then all ranges are
halved repeatedly, until each is a single strip.
"""

from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise

import numpy as np

MAX_COLUMNS = 2048  # maximum extent of the boxes, pixels, for which strips are stored as rows of bits
EDGES_PER_CHUNK = 6000  # number of box edges processed at once; their rows of bits fit into the cache of a core
BoxSets = Sequence[np.ndarray]
BoxesByPair = tuple[np.ndarray, np.ndarray]  # non-empty boxes, int64 (N, 4), and each box's pair index (N,), ascending


def union_overlaps(first: BoxSets, second: BoxSets) -> np.ndarray:
    """Return (intersection, union) areas of the two regions that each pair of box sets covers, int64 (P, 2), in pixels.

    Pair p has the half-open boxes ``first[p]`` and ``second[p]``, int (N, 4: x1, y1, x2, y2). Raises ValueError for
    numbers that are not integers.
    """
    if len(first) != len(second):
        raise ValueError(f"first and second must have equal numbers of box sets, not {len(first)} and {len(second)}")
    sides = [_flatten(first), _flatten(second)]
    corners = np.concatenate([boxes for boxes, _ in sides])
    if not len(corners):
        return np.zeros((len(first), 2), np.int64)
    origin = np.array([corners[:, 0].min(), corners[:, 1].min()])
    reach = max(corners[:, 2].max() - origin[0], corners[:, 3].max() - origin[1])
    sides = [(boxes - np.tile(origin, 2), pair) for boxes, pair in sides]
    edges = sum(2 * np.bincount(pair, minlength=len(first)) for _, pair in sides) + 1
    chunk = np.cumsum(edges) // EDGES_PER_CHUNK
    starts = [*np.flatnonzero(np.diff(chunk, prepend=-1)).tolist(), len(first)]
    cuts = [(boxes, pair, np.searchsorted(pair, starts)) for boxes, pair in sides]
    buffers = _Buffers(int(np.bincount(chunk, edges).max()), int(reach)) if reach <= MAX_COLUMNS else None
    overlaps = []
    for at, (start, end) in enumerate(pairwise(starts)):
        slices = [(boxes, pair, slice(cut[at], cut[at + 1])) for boxes, pair, cut in cuts]
        parts = [(boxes[part], pair[part] - start) for boxes, pair, part in slices]
        overlap = partial(_overlaps_by_bits, buffers=buffers) if buffers else _overlaps_by_cells
        overlaps.append(overlap(parts[0], parts[1], end - start))
    return np.concatenate(overlaps)


def union_ious(first: BoxSets, second: BoxSets) -> np.ndarray:
    """Return the IoU of the two regions that each pair of box sets covers, float64 (P,); 0 if both are empty."""
    both, either = union_overlaps(first, second).T
    return both / np.maximum(either, 1)


def _flatten(sets: BoxSets) -> BoxesByPair:
    parts = [np.asarray(part).reshape(-1, 4) for part in sets]
    pair = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    boxes = np.concatenate([np.zeros((0, 4), np.int64), *(part for part in parts if len(part))])
    if boxes.dtype.kind not in "iu":
        raise ValueError("boxes must be integers, because areas of unions are counted in pixels")
    full = (boxes[:, 0] < boxes[:, 2]) & (boxes[:, 1] < boxes[:, 3])
    boxes = boxes.astype(np.int64, copy=False)
    return (boxes, pair) if full.all() else (boxes[full], pair[full])


class _Buffers:
    """Memory reused for each chunk of box edges: arrays of a row per edge. A row has one bit per column, as uint64."""

    def __init__(self, edges: int, columns: int):
        self.words = -(-columns // 64)
        self.bits = np.empty((4, edges + 1, self.words), np.uint64)
        self.counts = np.empty((edges, self.words), np.float32)


def _overlaps_by_bits(first: BoxesByPair, second: BoxesByPair, pairs: int, buffers: _Buffers) -> np.ndarray:
    """Return (intersection, union) areas, int64 (pairs, 2). Coordinates must be in 0..:data:`MAX_COLUMNS`."""
    (boxes, pair), cut = (np.concatenate(part) for part in zip(first, second, strict=True)), len(first[0])
    if not len(boxes):
        return np.zeros((pairs, 2), np.int64)
    y, of_pair = np.concatenate([boxes[:, 1], boxes[:, 3]]), np.tile(pair, 2)
    num_bits = len(y).bit_length()  # a stable order: the lowest bits of each key are its index
    keys = (of_pair * (MAX_COLUMNS + 1) + y) << num_bits | np.arange(len(y))
    order = np.sort(keys) & ((1 << num_bits) - 1)
    of_first = np.tile(np.arange(len(boxes)) < cut, 2)[order]
    # number of edges of the first and of the second side up to each edge, in sorted order
    before = np.cumsum(of_first)
    behind = np.arange(1, len(order) + 1) - before
    place = np.empty_like(order)
    place[order] = np.where(of_first, before, behind + 2 * cut) - 1
    table = _prefix_bits(buffers.words)
    bits = table.take(boxes[:, 2], axis=0)
    bits ^= table.take(boxes[:, 0], axis=0)
    low, high = place.reshape(2, -1)
    strips = _fill_strips(low, high, bits, buffers)
    # a side is empty before its first edge: the index then points to an empty row, after a last edge or at the end
    first_strips, second_strips = buffers.bits[2:, : len(order)]
    strips.take(before - 1, axis=0, mode="wrap", out=first_strips)
    strips.take(behind + 2 * cut - 1, axis=0, mode="wrap", out=second_strips)
    heights, of_pair = np.diff(y[order], append=0).astype(np.float64), of_pair[order]
    heights[np.diff(of_pair, append=-1) != 0] = 0
    areas = []
    for operation in (np.bitwise_and, np.bitwise_or):
        combined_strips = operation(first_strips, second_strips, out=strips[:-1])
        counts = np.bitwise_count(combined_strips, out=buffers.counts[: len(combined_strips)])
        areas.append(np.bincount(of_pair, counts @ np.ones(buffers.words, np.float32) * heights, pairs))
    return np.stack(areas, axis=1).astype(np.int64)


@cache
def _prefix_bits(words: int) -> np.ndarray:
    """Return rows of bits, row i with its first i bits set, uint64 (64 * words + 1, words)."""
    bits = np.arange(64 * words) < np.arange(64 * words + 1)[:, None]
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)


def _fill_strips(low: np.ndarray, high: np.ndarray, bits: np.ndarray, buffers: _Buffers) -> np.ndarray:
    """Return the columns that boxes cover in each strip, as bits, uint64 (2 N + 1, W).

    Box n covers the columns ``bits[n]``, uint64 (W,), of the strips low[n] to high[n] (exclusive).
    """
    power = np.frexp(high - low)[1] - 1
    order = np.argsort(power, kind="stable")
    power, low, bits = power[order], low[order], bits[order]
    last = high[order] - (1 << power)
    greatest = int(power.max(initial=0))
    cuts = np.searchsorted(power, np.arange(greatest + 2)).tolist()
    rows, spare = buffers.bits[:2, : 2 * len(low) + 1]
    rows[:] = 0
    for at in range(greatest, -1, -1):
        power_slice = slice(cuts[at], cuts[at + 1])
        for start in (low[power_slice], last[power_slice]):
            rows[start] |= bits[power_slice]
        if at:
            half = 1 << (at - 1)
            np.bitwise_or(rows[half:], rows[:-half], out=spare[half:])
            spare[:half] = rows[:half]
            rows, spare = spare, rows
    return rows


def _overlaps_by_cells(first: BoxesByPair, second: BoxesByPair, pairs: int) -> np.ndarray:
    """Return (intersection, union) areas, int64 (pairs, 2), computed pair by pair by :func:`union_overlap`."""
    cuts = [(boxes, np.searchsorted(pair, np.arange(pairs + 1))) for boxes, pair in (first, second)]
    sides = [[boxes[start:end] for start, end in pairwise(cut)] for boxes, cut in cuts]
    return np.array([union_overlap(*pair) for pair in zip(*sides, strict=True)], np.int64).reshape(-1, 2)


def union_overlap(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """Return (intersection, union) area of the regions of two box sets. Raises ValueError unless boxes are integers."""
    (first, _), (second, _) = _flatten([first]), _flatten([second])
    xs, ys = (np.unique(np.concatenate([first[:, at::2], second[:, at::2]])) for at in (0, 1))
    # float64 is exact for areas below 2 ** 53 cells
    widths, heights = np.diff(xs).astype(np.float64), np.diff(ys).astype(np.float64)
    first_plane, second_plane = _covered_cells(first, xs, ys), _covered_cells(second, xs, ys)
    intersection, union = first_plane & second_plane, first_plane | second_plane
    return int(heights @ (intersection @ widths)), int(heights @ (union @ widths))


def union_iou(first: np.ndarray, second: np.ndarray) -> float:
    """Return the IoU of the regions that two sets of boxes cover; 0 if both are empty."""
    both, either = union_overlap(first, second)
    return both / either if either else 0.0


def _covered_cells(boxes: np.ndarray, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """Return whether a box covers each cell between the grid lines ``xs``, ``ys``, bool (len(ys) - 1, len(xs) - 1)."""
    plane = np.zeros((max(0, len(ys) - 1), max(0, len(xs) - 1)), bool)
    columns, rows = np.searchsorted(xs, boxes[:, ::2]).tolist(), np.searchsorted(ys, boxes[:, 1::2]).tolist()
    for (x_start, x_stop), (y_start, y_stop) in zip(columns, rows, strict=True):
        plane[y_start:y_stop, x_start:x_stop] = True
    return plane
