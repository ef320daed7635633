"""Weighted boxes fusion of several readers or detectors (Solovyev et al. 2021)."""

from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import box_iou


class FusedBoxes(NamedTuple):
    """M boxes that were fused from N input boxes."""

    boxes: np.ndarray  # (M, 4), most confident first
    confidence: np.ndarray  # (M,)
    member_of: np.ndarray  # (N,), index of the fused box to which each input box belongs; -1 for boxes without area


def fuse_boxes(boxes: np.ndarray, confidence: np.ndarray, iou: float, sources: int | None = None) -> FusedBoxes:
    """Fuse the boxes (N, 4) of one class in one image by their confidences (N,), which must be above 0.

    Boxes are visited by decreasing confidence; ties keep their order. A box joins the fused box with the highest IoU if
    this IoU exceeds ``iou``. Otherwise the box starts a new fused box. A fused box is the confidence-weighted mean of
    its members, with their mean confidence. ``sources`` is the number of readers. The confidence of a fused box with
    fewer members is scaled down in proportion. Boxes without area are excluded.
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
    """Fuse boxes (N, 4) of equal ``group``, int (N,), by :func:`fuse_boxes`, with a confidence of 1 for each box."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order])) + 1
    fused_boxes, member_of = [np.zeros((0, 4))], np.full(len(boxes), -1, np.int64)
    num_fused = 0
    for rows in np.split(order, starts):
        fused = fuse_boxes(boxes[rows], np.ones(len(rows)), iou)
        member_of[rows] = np.where(fused.member_of < 0, -1, fused.member_of + num_fused)
        fused_boxes.append(fused.boxes)
        num_fused += len(fused.boxes)
    return FusedBoxes(np.concatenate(fused_boxes), np.ones(num_fused), member_of)


def fusion_order(boxes: np.ndarray, group: np.ndarray, reader: np.ndarray) -> np.ndarray:
    """Return indices that sort boxes by group, reader and corners, so that their order in a file changes no fusion."""
    return np.lexsort((*np.asarray(boxes).T[::-1], reader, group))
