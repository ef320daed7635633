"""Weighted boxes fusion of several readers or detectors (Solovyev et al. 2021)."""

from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import box_iou, paired_iou


class FusedBoxes(NamedTuple):
    """Fused boxes (M, 4), most confident first, their confidences (M,), and each input box's fused box (N,) or -1."""

    boxes: np.ndarray
    confidence: np.ndarray
    member_of: np.ndarray


def fuse_boxes(boxes: np.ndarray, confidence: np.ndarray, iou: float, sources: int | None = None) -> FusedBoxes:
    """Fuse the boxes (N, 4) of one class in one image; confidences (N,) are above 0.

    Boxes are taken by decreasing confidence; ties keep their order. Each joins the fused box of the highest IoU if that
    exceeds ``iou``, otherwise it starts a new one. A fused box is the confidence-weighted mean of its members; its
    confidence is their mean. ``sources``: number of readers; with fewer members the confidence is scaled down in
    proportion. A box without area is excluded: its ``member_of`` is -1.
    """
    order = np.argsort(-confidence, kind="stable")
    order = order[np.all(boxes[:, 2:] > boxes[:, :2], axis=1)[order]]
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
    return FusedBoxes(means[: len(members)][ranking], mean[ranking], member_of)


def fuse_groups(boxes: np.ndarray, group: np.ndarray, iou: float) -> FusedBoxes:
    """Fuse the boxes (N, 4) of many groups at once; all confidences are 1.

    ``group``: int (N,), each box's group. The result equals :func:`fuse_boxes` on each group; the k-th boxes of all
    groups are processed together. Fused boxes are ordered by group, then by when they started.
    """
    order = np.argsort(group, kind="stable")
    order = order[np.all(boxes[:, 2:] > boxes[:, :2], axis=1)[order]]
    sorted_boxes = np.asarray(boxes, np.float64)[order]
    starts = np.flatnonzero(np.diff(group[order], prepend=group[order][:1] - 1)) if len(order) else order
    sizes = np.diff(np.append(starts, len(order)))
    sums, weight, means = np.zeros_like(sorted_boxes), np.zeros((len(sorted_boxes), 1)), np.zeros_like(sorted_boxes)
    begun = np.zeros(len(starts), np.int64)  # number of fused boxes of each group so far, stored from its start on
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
    return FusedBoxes(means[occupied_slots], np.ones(len(occupied_slots)), member_of)


def fusion_order(boxes: np.ndarray, group: np.ndarray, reader: np.ndarray) -> np.ndarray:
    """Return the order by group, reader and corners, so that a fusion does not depend on the order of the file."""
    return np.lexsort((*np.asarray(boxes).T[::-1], reader, group))
