"""The losses of LISA and ROSALIA (LISA section 3.2, ROSALIA's paper and both public codes)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from cxr.ils.rosalia.model import Output
from cxr.ils.rosalia.samples import Batch

COUNT_EPS = 1e-8
"""Added to the number of masks that a sum is divided by (LISA)."""
DICE_SCALE, DICE_EPS = 1000.0, 1e-6
"""Scale and epsilon of the Dice loss (LISA): areas are divided by the scale, so the epsilon weighs 1e-3 pixels."""


@dataclass(frozen=True)
class LossWeights:
    """Weights of the answer's cross-entropy and of the mask's two losses."""

    text: float
    bce: float
    dice: float


def bce(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the binary cross-entropy of each mask, mean over its pixels: (n,) of logits and target (n, H, W)."""
    return functional.binary_cross_entropy_with_logits(logits.float(), target.float(), reduction="none").mean((1, 2))


def dice(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return one minus the Dice coefficient of each mask: (n,) of logits and target (n, H, W)."""
    chance, target = logits.float().sigmoid() / DICE_SCALE, target.float()
    overlap = (chance * target).sum((1, 2))
    areas = chance.sum((1, 2)) + (target / DICE_SCALE).sum((1, 2))
    return 1 - (2 * overlap + DICE_EPS) / (areas + DICE_EPS)


def text_loss(output: Output) -> torch.Tensor:
    """Return the cross-entropy of the answers, mean over their tokens; 0 if the batch holds no answer."""
    total = functional.cross_entropy(output.text_logits.float(), output.text_labels, reduction="sum")
    return total / max(1, len(output.text_labels))


def rosalia_loss(
    output: Output, batch: Batch, weights: LossWeights, dice_on: str = "positives"
) -> dict[str, torch.Tensor]:
    """Return the losses of a batch, each already weighted as both codes log them: loss (their sum), ce, bce, dice.

    ``dice_on``: the masks that count in the Dice loss: "all" (LISA) or only the "positives", samples with a lesion
    (ROSALIA: an empty target would always cost nearly 1, however small the prediction).

    Raises ValueError if a sample's masks and predictions differ in number or size.
    """
    if dice_on not in ("positives", "all"):
        raise ValueError(f"dice_on is {dice_on!r}: it must be positives or all")
    # an answer without [SEG] predicts no mask and needs none
    asked = [mask if len(found) else mask[:0] for mask, found in zip(batch.masks, output.masks, strict=True)]
    masks = [mask.to(output.low_res.device) for mask in asked]
    for name, mask, found in zip(batch.pair_ids, masks, output.masks, strict=True):
        if mask.shape != found.shape:
            raise ValueError(f"{name}: its masks are {tuple(mask.shape)}, its predictions {tuple(found.shape)}")
    counted = [dice_on == "all" or some for some in torch.stack([mask.any() for mask in masks]).tolist()]
    parts = {
        "ce": weights.text * text_loss(output),
        "bce": weights.bce * _mean(bce, output.masks, masks, [True] * len(masks)),
        "dice": weights.dice * _mean(dice, output.masks, masks, counted),
    }
    return {"loss": sum(parts.values())} | parts


def _mean(
    function: Callable, found: list[torch.Tensor], masks: list[torch.Tensor], counted: list[bool]
) -> torch.Tensor:
    """Return the mean of a loss over the masks of the samples that count; a zero with a gradient if none counts."""
    pairs = [pair for pair, counts in zip(zip(found, masks, strict=True), counted, strict=True) if counts]
    if not pairs:
        return sum(each.sum() for each in found) * 0.0
    if len({mask.shape[1:] for _, mask in pairs}) == 1:  # one call for all is several times as fast
        pairs = [(torch.cat([one for one, _ in pairs]), torch.cat([two for _, two in pairs]))]
    values = torch.cat([function(one, two) for one, two in pairs])
    return values.sum() / (len(values) + COUNT_EPS)
