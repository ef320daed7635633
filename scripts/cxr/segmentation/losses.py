"""Mask losses of LISA and ROSALIA (section 3.2 of the LISA paper, the ROSALIA paper, and the code of both)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

COUNT_EPS = 1e-8  # added to the number of masks in the denominator of a mean (LISA)
DICE_SCALE, DICE_EPS = 1000.0, 1e-6
"""Scale and epsilon of the Dice loss (LISA). Areas are divided by the scale, so the epsilon equals 1e-3 pixels."""


@dataclass(frozen=True)
class LossWeights:
    """Weights of the answer's cross-entropy and of the two mask losses."""

    text: float
    bce: float
    dice: float


def bce_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean binary cross-entropy of each mask, (n,), from logits and target (n, H, W)."""
    return functional.binary_cross_entropy_with_logits(logits.float(), target.float(), reduction="none").mean((1, 2))


def dice_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return one minus the Dice coefficient of each mask, (n,), from logits and target (n, H, W)."""
    chance, target = logits.float().sigmoid() / DICE_SCALE, target.float()
    overlap = (chance * target).sum((1, 2))
    areas = chance.sum((1, 2)) + (target / DICE_SCALE).sum((1, 2))
    return 1 - (2 * overlap + DICE_EPS) / (areas + DICE_EPS)


def mean_loss(
    function: Callable, predictions: list[torch.Tensor], masks: list[torch.Tensor], is_counted: list[bool]
) -> torch.Tensor:
    """Return the mean of ``function`` over all masks of samples that count; a differentiable 0 if there are none."""
    pairs = [pair for pair, counts in zip(zip(predictions, masks, strict=True), is_counted, strict=True) if counts]
    if not pairs:
        return sum(sample_logits.sum() for sample_logits in predictions) * 0.0
    if len({mask.shape[1:] for _, mask in pairs}) == 1:  # a single call is several times faster
        pairs = [(torch.cat([prediction for prediction, _ in pairs]), torch.cat([target for _, target in pairs]))]
    values = torch.cat([function(prediction, target) for prediction, target in pairs])
    return values.sum() / (len(values) + COUNT_EPS)
