"""Score the masks of the validation split during a training."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.samples import Pairs, make_loader, unwrap_errors
from cxr.metrics.masks import cumulative_iou, lisa_iou, overlap
from cxr.nets.devices import inference


class Ranks(Protocol):
    """The processes that share the work."""

    rank: int
    ranks: int

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Add up a tensor over the ranks."""
        ...


@dataclass(frozen=True)
class Scores:
    """gIoU and cIoU of positive pairs, fraction of negative pairs with an empty mask; NaN without such pairs."""

    giou: float
    ciou: float
    n_acc: float

    def value(self, keep: str) -> float:
        """Return the score that selects the best epoch (``training.<engine>.keep``): gIoU, or its mean with N-Acc.

        Without negatives gIoU; without positives NaN. Raises ValueError for another ``keep``.
        """
        if keep not in ("giou", "mean"):
            raise ValueError(f"keep is {keep!r}: it must be giou or mean")
        return self.giou if keep == "giou" or math.isnan(self.n_acc) else (self.giou + self.n_acc) / 2


def score_pairs(model: Rosalia, pairs: Pairs, batch: int, workers: int, ranks: Ranks, device: torch.device) -> Scores:
    """Score the masks of all pairs without generating text: answers begin with [SEG], so prompts determine masks.

    Each rank takes every ranks-th batch. Leaves the model in evaluation mode.
    """
    # sums over positives: IoU, intersection, union, number; over negatives: empty masks, number
    sums = torch.zeros(6, dtype=torch.float64)
    rows = [list(range(first, min(first + batch, len(pairs)))) for first in range(0, len(pairs), batch)]
    model.eval()
    with inference():
        for part in unwrap_errors(make_loader(pairs, rows[ranks.rank :: ranks.ranks], workers)):
            device_batch = part.to(device, next(model.sam.parameters()).dtype)
            for logits, reference in zip(model.segment(device_batch), device_batch.masks, strict=True):
                sums += _sum_mask_scores(logits > 0, reference[0] > 0)
    iou, intersection, union, positives, empty, negatives = ranks.sum(sums).tolist()
    return Scores(
        giou=iou / positives if positives else float("nan"),
        ciou=cumulative_iou(np.array([intersection]), np.array([union])) if positives else float("nan"),
        n_acc=empty / negatives if negatives else float("nan"),
    )


def _sum_mask_scores(mask: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    if not reference.any():
        return torch.tensor([0, 0, 0, 0, float(not mask.any()), 1], dtype=torch.float64)
    both = overlap(mask, reference)
    return torch.tensor([float(lisa_iou(*both)), *both, 1, 0, 0], dtype=torch.float64)
