"""AP of boxes that have no confidences: those of an answer, in the order in which they are written (RadVLM's mAP)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import box_iou


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
    if not len(reference):
        raise ValueError("no reference box")
    if not len(answer):
        return Written(0.0, 0, 0.0)
    overlap = box_iou(np.asarray(answer, np.float64), np.asarray(reference, np.float64))
    free, hits = np.ones(len(reference), bool), np.zeros(len(answer), bool)
    for place, best in enumerate(overlap.argmax(axis=1)):
        hits[place] = overlap[place, best] >= iou and free[best]
        free[best] &= not hits[place]
    true = np.cumsum(hits)
    recall = np.concatenate([[0.0], true / len(reference), [1.0]])
    precision = np.concatenate([[0.0], true / np.arange(1, len(hits) + 1), [0.0]])
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    area = float(((recall[1:] - recall[:-1]) * envelope[1:]).sum())
    return Written(area, int(hits.sum()), float(overlap.max(axis=0).mean()))


def written_precision(answer: np.ndarray, reference: np.ndarray, iou: float = 0.5) -> float:
    """Return the AP of an answer's boxes, as :func:`written` has it. Raises ValueError without a reference."""
    return written(answer, reference, iou).precision


def mean_written_precision(pairs: Sequence[tuple[np.ndarray, np.ndarray]], iou: float = 0.5) -> float:
    """Return the mean of :func:`written_precision` over (answer, reference) pairs; NaN without one."""
    return float(np.mean([written_precision(*pair, iou) for pair in pairs])) if pairs else float("nan")
