"""Weighted boxes fusion: one box for each region that several readers or detectors boxed (Solovyev et al. 2021)."""

from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import box_iou


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
    mean = np.array([confidence[of].mean() * min(1.0, len(of) / (sources or 1)) for of in members])
    ranking = np.argsort(-mean, kind="stable")
    member_of = np.full(len(boxes), -1, np.int64)
    for place, cluster in enumerate(ranking):
        member_of[members[cluster]] = place
    return Fused(means[: len(members)][ranking], mean[ranking], member_of)
