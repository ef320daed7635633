"""AP of boxes that have no confidences: those of an answer, in the order in which they are written (RadVLM's mAP)."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import paired_iou


class Written(NamedTuple):
    """What an answer's boxes are worth. precision: its AP; hits: boxes that hit; best: mean over the references of the
    highest IoU of any box.
    """

    precision: float
    hits: int
    best: float


def written(answer: np.ndarray, reference: np.ndarray, iou: float = 0.5) -> Written:
    """Return what an answer's boxes (N, 4) are worth against reference boxes (M, 4), M > 0.

    Each box takes the reference that it overlaps most, the first of equal ones. It hits if their IoU is at least
    ``iou`` and no earlier box hit that reference. The AP is the area under the envelope of precision over recall,
    between (0, 0) and (1, 0); 0 without a box. Raises ValueError without a reference.
    """
    return written_each([answer], [reference], [iou])[0][0]


def written_each(
    answers: Sequence[np.ndarray], references: Sequence[np.ndarray], ious: Sequence[float]
) -> list[list[Written]]:
    """Return of each threshold of ``ious`` what each answer is worth, as :func:`written` has it, to the byte.

    Answers of as many boxes with as many references are measured at once. Raises ValueError without a reference.
    """
    scores: list[list[Written]] = [[Written(0.0, 0, 0.0)] * len(answers) for _ in ious]
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, (answer, reference) in enumerate(zip(answers, references, strict=True)):
        if not len(reference):
            raise ValueError("no reference box")
        if len(answer):
            groups[len(answer), len(reference)].append(place)
    for places in groups.values():
        first, second = (
            np.stack([box_sets[place] for place in places]).astype(float) for box_sets in (answers, references)
        )
        overlap = paired_iou(first[:, :, None], second[:, None])
        best = overlap.max(axis=1).mean(axis=1).tolist()
        for threshold_scores, iou in zip(scores, ious, strict=True):
            hits = _hits(overlap, iou)
            for place, area, count, most in zip(
                places, _areas(hits, overlap.shape[2]).tolist(), hits.sum(axis=1).tolist(), best, strict=True
            ):
                threshold_scores[place] = Written(area, count, most)
    return scores


def _hits(overlap: np.ndarray, iou: float) -> np.ndarray:
    """Return which boxes hit, bool (K, N), of K answers' IoU with their references, (K, N, M)."""
    rows = np.arange(len(overlap))
    free, hits = np.ones(overlap[:, 0].shape, bool), np.zeros(overlap.shape[:2], bool)
    for place, best in enumerate(overlap.argmax(axis=2).T):
        hits[:, place] = (overlap[rows, place, best] >= iou) & free[rows, best]
        free[rows, best] &= ~hits[:, place]
    return hits


def _areas(hits: np.ndarray, references: int) -> np.ndarray:
    """Return the AP of K answers, float64 (K,), from which of their boxes hit, (K, N)."""
    true = np.cumsum(hits, axis=1)
    low = np.zeros((len(hits), 1))
    recall = np.concatenate([low, true / references, low + 1], axis=1)
    precision = np.concatenate([low, true / np.arange(1, hits.shape[1] + 1), low], axis=1)
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    return ((recall[:, 1:] - recall[:, :-1]) * envelope[:, 1:]).sum(axis=1)


def written_precision(answer: np.ndarray, reference: np.ndarray, iou: float = 0.5) -> float:
    """Return the AP of an answer's boxes, as :func:`written` has it. Raises ValueError without a reference."""
    return written(answer, reference, iou).precision


def mean_written_precision(pairs: Sequence[tuple[np.ndarray, np.ndarray]], iou: float = 0.5) -> float:
    """Return the mean of :func:`written_precision` over (answer, reference) pairs; NaN without one."""
    return float(np.mean([written_precision(*pair, iou) for pair in pairs])) if pairs else float("nan")
