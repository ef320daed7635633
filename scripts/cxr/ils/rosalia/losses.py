"""Losses of ROSALIA on answers and masks (LISA section 3.2, and the public codes of both)."""

import torch
from torch.nn import functional

from cxr.ils.rosalia.model import Output
from cxr.ils.rosalia.samples import Batch
from cxr.segmentation.losses import LossWeights, bce_loss, dice_loss, mean_loss

WEIGHTS = LossWeights(text=0.5, bce=5.0, dice=1.0)  # weights of the losses (paper)


def compute_losses(
    output: Output, batch: Batch, weights: LossWeights = WEIGHTS, dice_on: str = "positives"
) -> dict[str, torch.Tensor]:
    """Return the weighted losses of a batch: loss (their sum), ce, bce, dice.

    ``dice_on``: masks in the Dice loss: "all" (LISA), or only "positives", samples with a lesion (ROSALIA: an empty
    target always costs nearly 1).

    Raises ValueError if a sample's masks and predictions differ in number or size.
    """
    if dice_on not in ("positives", "all"):
        raise ValueError(f"dice_on is {dice_on!r}: it must be positives or all")
    # an answer without [SEG] predicts no mask and needs none
    pairs = zip(batch.masks, output.masks, strict=True)
    masks = [(mask if len(mask_logits) else mask[:0]).to(output.low_res.device) for mask, mask_logits in pairs]
    for name, mask, mask_logits in zip(batch.pair_ids, masks, output.masks, strict=True):
        if mask.shape != mask_logits.shape:
            raise ValueError(f"{name}: its masks are {tuple(mask.shape)}, its predictions {tuple(mask_logits.shape)}")
    in_dice = [dice_on == "all" or has_lesion for has_lesion in torch.stack([mask.any() for mask in masks]).tolist()]
    text = functional.cross_entropy(output.text_logits.float(), output.text_labels, reduction="sum")
    parts = {
        "ce": weights.text * (text / max(1, len(output.text_labels))),  # the mean over tokens; 0 without an answer
        "bce": weights.bce * mean_loss(bce_loss, output.masks, masks, [True] * len(masks)),
        "dice": weights.dice * mean_loss(dice_loss, output.masks, masks, in_dice),
    }
    return {"loss": sum(parts.values())} | parts
