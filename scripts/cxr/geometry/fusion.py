"""Weighted boxes fusion: one box for each region that several readers or detectors boxed (Solovyev et al. 2021)."""

from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import box_iou, paired_iou


class Fused(NamedTuple):
    """Fused boxes (M, 4), the most confident first, their confidences (M,), and which one each box joined (N,)."""

    boxes: np.ndarray
    confidence: np.ndarray
    member_of: np.ndarray


def fuse(boxes: np.ndarray, confidence: np.ndarray, iou: float, sources: int | None = None) -> Fused:
    """Fuse the boxes (N, 4) of one class in one image, each of a confidence (N,) above 0.

    The most confident box comes first, of equal ones the first. It joins the fused box of the highest IoU, if that is
    above ``iou``, and else begins one. A fused box is the mean of its members, weighted by their confidences; its
    confidence is the mean of theirs. ``sources``: number of readers; the confidence of a fused box of fewer members is
    lowered in proportion. A box without area is left out: its ``member_of`` is -1.
    """
    order = np.argsort(-confidence, kind="stable")
    order = order[((boxes[:, 2:] > boxes[:, :2]).all(axis=1))[order]]
    members: list[list[int]] = []
    sums, weight = np.zeros((len(order), 4)), np.zeros((len(order), 1))
    means = np.zeros((len(order), 4))
    for index in order:
        overlap = box_iou(boxes[index][None], means[: len(members)])[0]
        best = int(overlap.argmax()) if len(members) else -1
        if best < 0 or overlap[best] <= iou:
            best = len(members)
            members.append([])
        members[best].append(index)
        sums[best] += confidence[index] * boxes[index]
        weight[best] += confidence[index]
        means[best] = sums[best] / weight[best]
    mean = np.array([confidence[indexes].mean() * min(1.0, len(indexes) / (sources or 1)) for indexes in members])
    ranking = np.argsort(-mean, kind="stable")
    member_of = np.full(len(boxes), -1, np.int64)
    for place, cluster in enumerate(ranking):
        member_of[members[cluster]] = place
    return Fused(means[: len(members)][ranking], mean[ranking], member_of)


def fuse_groups(boxes: np.ndarray, group: np.ndarray, iou: float) -> Fused:
    """Fuse the boxes (N, 4) of many groups at once, each box with the same confidence, those of a group in their order.

    ``group``: int (N,), that of each box. In each group it is :func:`fuse`: a box joins the fused box of the highest
    IoU, the first of equal ones, if that is above ``iou``. The k-th boxes of all groups are looked at together. Fused
    boxes stand group by group, in the order in which they began; all confidences are 1.
    """
    order = np.argsort(group, kind="stable")
    order = order[(boxes[:, 2:] > boxes[:, :2]).all(axis=1)[order]]
    sorted_boxes = np.asarray(boxes, np.float64)[order]
    starts = np.flatnonzero(np.diff(group[order], prepend=group[order][:1] - 1)) if len(order) else order
    sizes = np.diff(np.append(starts, len(order)))
    sums, weight, means = np.zeros_like(sorted_boxes), np.zeros((len(sorted_boxes), 1)), np.zeros_like(sorted_boxes)
    begun = np.zeros(len(starts), np.int64)  # fused boxes of each group so far; they lie from its start on
    joined = np.full(len(sorted_boxes), -1, np.int64)
    for turn in range(int(sizes.max(initial=0))):
        active = np.flatnonzero(sizes > turn)
        index, count = starts[active] + turn, begun[active]
        first = np.repeat(np.cumsum(count) - count, count)
        slot = np.repeat(starts[active], count) + np.arange(len(first)) - first
        place = starts[active] + count
        if turn:
            overlap = paired_iou(np.repeat(sorted_boxes[index], count, axis=0), means[slot])
            begins = np.cumsum(count) - count
            best = np.maximum.reduceat(overlap, begins)
            equal = np.where(overlap == np.repeat(best, count), slot, len(sorted_boxes))
            place = np.where(best > iou, np.minimum.reduceat(equal, begins), place)
        begun[active] += place == starts[active] + count
        joined[index] = place
        sums[place] += sorted_boxes[index]
        weight[place] += 1
        means[place] = sums[place] / weight[place]
    occupied_slots = np.flatnonzero(weight[:, 0])
    number = np.full(len(sorted_boxes), -1, np.int64)
    number[occupied_slots] = np.arange(len(occupied_slots))
    member_of = np.full(len(boxes), -1, np.int64)
    member_of[order] = number[joined]
    return Fused(means[occupied_slots], np.ones(len(occupied_slots)), member_of)


def in_order(boxes: np.ndarray, group: np.ndarray, reader: np.ndarray) -> np.ndarray:
    """Return the order by group, reader and corners, in which a fusion does not depend on that of the file."""
    return np.lexsort((*np.asarray(boxes).T[::-1], reader, group))
