"""Areas of unions of boxes, exact for integers, of many pairs of sets at once and without a raster of the picture.

The edges of a set's boxes cut the picture into strips. A strip is a row of bits, one bit a column; a box sets the same
bits in a range of strips. A range is two ranges of a power of two, which may overlap: bits are set in those of each
power, and handed down from the greatest power to single strips.
"""

import functools
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

WIDEST = 2048
"""Columns up to which strips are rows of bits."""
TOGETHER = 6000
"""Edges of the boxes that are counted at once: their rows of bits stay in a core's cache."""
Sets = Sequence[np.ndarray]
Flat = tuple[np.ndarray, np.ndarray]
"""Boxes int64 (N, 4), none empty, and the pair of each (N,), which rises."""


def union_overlaps(first: Sets, second: Sets) -> np.ndarray:
    """Return intersection and union, in cells, of the unions of boxes of each pair, int64 (P, 2).

    ``first``, ``second``: of each pair boxes int (N, 4: x1, y1, x2, y2) and (M, 4), half-open. Raises ValueError for
    boxes that are not of integers.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} sets of boxes are no pairs")
    sides = [_flat(first), _flat(second)]
    corners = np.concatenate([boxes for boxes, _ in sides])
    if not len(corners):
        return np.zeros((len(first), 2), np.int64)
    origin = np.array([corners[:, 0].min(), corners[:, 1].min()])
    reach = max(corners[:, 2].max() - origin[0], corners[:, 3].max() - origin[1])
    sides = [(boxes - np.tile(origin, 2), pair) for boxes, pair in sides]
    edges = sum(2 * np.bincount(pair, minlength=len(first)) for _, pair in sides) + 1
    chunk = np.cumsum(edges) // TOGETHER
    starts = [*np.flatnonzero(np.diff(chunk, prepend=-1)).tolist(), len(first)]
    cuts = [(boxes, pair, np.searchsorted(pair, starts)) for boxes, pair in sides]
    room = _Room(int(np.bincount(chunk, edges).max()), int(reach)) if reach <= WIDEST else None
    overlaps = []
    for at, (start, end) in enumerate(pairwise(starts)):
        chunk_sides = [(boxes[cut[at] : cut[at + 1]], pair[cut[at] : cut[at + 1]] - start) for boxes, pair, cut in cuts]
        overlaps.append(_counted(*chunk_sides, end - start, room) if room else _by_cells(*chunk_sides, end - start))
    return np.concatenate(overlaps)


def union_ious(first: Sets, second: Sets) -> np.ndarray:
    """Return the IoU of the unions of each pair, float64 (P,); 0 where both are empty. See :func:`union_overlaps`."""
    both, either = union_overlaps(first, second).T
    return both / np.maximum(either, 1)


def _flat(sets: Sets) -> Flat:
    """Return the boxes of all sets that are not empty. Raises ValueError for boxes that are not of integers."""
    parts = [np.asarray(part).reshape(-1, 4) for part in sets]
    pair = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    boxes = np.concatenate([np.zeros((0, 4), np.int64), *(part for part in parts if len(part))])
    if boxes.dtype.kind not in "iu":
        raise ValueError("unions of boxes are counted in whole cells: give integers")
    full = (boxes[:, 0] < boxes[:, 2]) & (boxes[:, 1] < boxes[:, 3])
    boxes = boxes.astype(np.int64, copy=False)
    return (boxes, pair) if full.all() else (boxes[full], pair[full])


class _Room:
    """Memory that every chunk uses anew: asking the system for it would take longer than the work.

    bits: four planes of a row for each edge and one row more, ``words`` of 64 columns each.
    """

    def __init__(self, edges: int, columns: int):
        self.words = -(-columns // 64)
        self.bits = np.empty((4, edges + 1, self.words), np.uint64)
        self.counts = np.empty((edges, self.words), np.float32)


def _counted(first: Flat, second: Flat, pairs: int, room: _Room) -> np.ndarray:
    """Return intersections and unions, int64 (pairs, 2), of boxes from 0 up to WIDEST at most."""
    (boxes, pair), cut = (np.concatenate(part) for part in zip(first, second, strict=True)), len(first[0])
    if not len(boxes):
        return np.zeros((pairs, 2), np.int64)
    y, of_pair = np.concatenate([boxes[:, 1], boxes[:, 3]]), np.tile(pair, 2)
    order = _order(of_pair * (WIDEST + 1) + y)
    of_first = np.tile(np.arange(len(boxes)) < cut, 2)[order]
    # how many edges of either side there are up to each edge, in order
    before = np.cumsum(of_first)
    behind = np.arange(1, len(order) + 1) - before
    place = np.empty_like(order)
    place[order] = np.where(of_first, before, behind + 2 * cut) - 1
    table = _first_bits(room.words)
    bits = table.take(boxes[:, 2], axis=0)
    bits ^= table.take(boxes[:, 0], axis=0)
    strips = _strips(*place.reshape(2, -1), bits, room)
    # the strip that follows a side's last edge is empty, and so is that before its first, by the row at the end
    first_strips, second_strips = room.bits[2:, : len(order)]
    strips.take(before - 1, axis=0, mode="wrap", out=first_strips)
    strips.take(behind + 2 * cut - 1, axis=0, mode="wrap", out=second_strips)
    heights, of_pair = np.diff(y[order], append=0).astype(np.float64), of_pair[order]
    heights[np.diff(of_pair, append=-1) != 0] = 0
    areas = [
        np.bincount(of_pair, _sizes(operation(first_strips, second_strips, out=strips[:-1]), room) * heights, pairs)
        for operation in (np.bitwise_and, np.bitwise_or)
    ]
    return np.stack(areas, axis=1).astype(np.int64)


def _order(keys: np.ndarray) -> np.ndarray:
    """Return the order of whole numbers from 0, by a sort of numbers that hold their place: faster than argsort."""
    bits = len(keys).bit_length()
    return np.sort((keys << bits) | np.arange(len(keys))) & ((1 << bits) - 1)


@functools.cache
def _first_bits(words: int) -> np.ndarray:
    """Return rows of bits whose first 0, 1, 2 … bits are set, uint64 (64 words + 1, words)."""
    bits = np.arange(64 * words) < np.arange(64 * words + 1)[:, None]
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)


def _sizes(bits: np.ndarray, room: _Room) -> np.ndarray:
    """Return how many bits of each row (N, W) are set, float32 (N,): exact, as there are few."""
    return np.bitwise_count(bits, out=room.counts[: len(bits)]) @ np.ones(room.words, np.float32)


def _strips(low: np.ndarray, high: np.ndarray, bits: np.ndarray, room: _Room) -> np.ndarray:
    """Return the bits of each strip, uint64 (2 N + 1, W), of boxes (N,) from strip ``low`` up to ``high``.

    No two boxes have the same ``low`` or the same ``high``. The last row is empty.
    """
    power = np.frexp(high - low)[1] - 1
    order = np.argsort(power, kind="stable")
    power, low, bits = power[order], low[order], bits[order]
    last = high[order] - (1 << power)
    greatest = int(power.max(initial=0))
    cuts = np.searchsorted(power, np.arange(greatest + 2)).tolist()
    rows, spare = room.bits[:2, : 2 * len(low) + 1]
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


def _by_cells(first: Flat, second: Flat, pairs: int) -> np.ndarray:
    """Return intersections and unions, int64 (pairs, 2), pair by pair, by cells between the edges of the boxes."""
    cuts = [(boxes, np.searchsorted(pair, np.arange(pairs + 1))) for boxes, pair in (first, second)]
    sides = [[boxes[start:end] for start, end in pairwise(cut)] for boxes, cut in cuts]
    return np.array([union_overlap(*pair) for pair in zip(*sides, strict=True)], np.int64).reshape(-1, 2)


def union_overlap(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """Return intersection and union of one pair, in cells. Raises ValueError for boxes that are not of integers."""
    (first, _), (second, _) = _flat([first]), _flat([second])
    xs, ys = (np.unique(np.concatenate([first[:, at::2], second[:, at::2]])) for at in (0, 1))
    # float64 holds every whole number of cells below 2 ** 53
    widths, heights = np.diff(xs).astype(np.float64), np.diff(ys).astype(np.float64)
    first_plane, second_plane = _covered(first, xs, ys), _covered(second, xs, ys)
    intersection, union = (
        int(heights @ (plane @ widths)) for plane in (first_plane & second_plane, first_plane | second_plane)
    )
    return intersection, union


def union_iou(first: np.ndarray, second: np.ndarray) -> float:
    """Return the IoU of the unions of one pair; 0 where both are empty."""
    both, either = union_overlap(first, second)
    return both / either if either else 0.0


def _covered(boxes: np.ndarray, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """Return which cells between neighbouring ``ys`` and ``xs`` some box (N, 4: x1, y1, x2, y2) covers.

    bool (len(ys) - 1, len(xs) - 1); the corners of the boxes must be among ``xs`` and ``ys``, which are sorted.
    """
    plane = np.zeros((max(0, len(ys) - 1), max(0, len(xs) - 1)), bool)
    columns, rows = np.searchsorted(xs, boxes[:, ::2]).tolist(), np.searchsorted(ys, boxes[:, 1::2]).tolist()
    for (x_start, x_stop), (y_start, y_stop) in zip(columns, rows, strict=True):
        plane[y_start:y_stop, x_start:x_stop] = True
    return plane
