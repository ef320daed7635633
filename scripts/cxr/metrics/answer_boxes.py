"""AP of boxes without confidences, ranked by the order in which a model's answer lists them (RadVLM's mAP)."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import paired_iou

ROUNDING = 1e-9
"""Tolerance of IoU thresholds. Boxes of two decimals often have the IoU 0.5, which rounding errors can lower."""


class AnswerScore(NamedTuple):
    """Scores of an answer's boxes. precision: AP; hits: number of boxes that hit a reference box; best: highest IoU of
    each reference box with any box of the answer, averaged over the reference boxes."""

    precision: float
    hits: int
    best: float


def score_answer(answer: np.ndarray, reference: np.ndarray, iou: float = 0.5) -> AnswerScore:
    """Score an answer's boxes (N, 4) against reference boxes (M, 4), M > 0.

    Each box is compared with the reference of the highest IoU, the first among ties. It hits if that IoU is at least
    ``iou`` and no earlier box hit that reference. AP is the area under the envelope of precision (y) over recall (x),
    with the points (0, 0) and (1, 0) added; 0 if there is no box. Raises ValueError if there is no reference.
    """
    return score_answers([answer], [reference], [iou])[0][0]


def score_answers(
    answers: Sequence[np.ndarray], references: Sequence[np.ndarray], ious: Sequence[float]
) -> list[list[AnswerScore]]:
    """Return a list of scores for each threshold of ``ious``, equal to those of :func:`score_answer` to the last bit.

    Raises ValueError if an answer has no reference box.
    """
    scores: list[list[AnswerScore]] = [[AnswerScore(0.0, 0, 0.0)] * len(answers) for _ in ious]
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, (answer, reference) in enumerate(zip(answers, references, strict=True)):
        if not len(reference):
            raise ValueError(f"answer {place} has no reference box: give at least one for each answer")
        if len(answer):
            groups[len(answer), len(reference)].append(place)
    for places in groups.values():
        first, second = (np.stack([sets[place] for place in places]).astype(float) for sets in (answers, references))
        overlap = paired_iou(first[:, :, None], second[:, None])
        best = overlap.max(axis=1).mean(axis=1).tolist()
        for threshold_scores, iou in zip(scores, ious, strict=True):
            hits = _hits(overlap, iou)
            values = zip(_areas(hits, overlap.shape[2]).tolist(), hits.sum(axis=1).tolist(), best, strict=True)
            for place, value in zip(places, values, strict=True):
                threshold_scores[place] = AnswerScore(*value)
    return scores


def _hits(overlap: np.ndarray, iou: float) -> np.ndarray:
    """Return which boxes hit, bool (K, N). ``overlap`` (K, N, M): IoU of K answers' boxes with their references."""
    rows = np.arange(len(overlap))
    free, hits = np.ones(overlap[:, 0].shape, bool), np.zeros(overlap.shape[:2], bool)
    for place, best in enumerate(overlap.argmax(axis=2).T):
        hits[:, place] = (overlap[rows, place, best] >= iou - ROUNDING) & free[rows, best]
        free[rows, best] &= ~hits[:, place]
    return hits


def _areas(hits: np.ndarray, references: int) -> np.ndarray:
    """Return the AP of K answers, float64 (K,). ``hits`` (K, N): which boxes hit; ``references``: number per answer."""
    true = np.cumsum(hits, axis=1)
    low = np.zeros((len(hits), 1))
    recall = np.concatenate([low, true / references, low + 1], axis=1)
    precision = np.concatenate([low, true / np.arange(1, hits.shape[1] + 1), low], axis=1)
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    return ((recall[:, 1:] - recall[:, :-1]) * envelope[:, 1:]).sum(axis=1)
