"""Training objectives: cross-entropy of the answers, plus mask losses for a segmenting model.

An objective returns sums and counts of a batch, because means are over the whole step, independent of ranks and
micro-batches.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional

from cxr.segmentation.losses import bce_loss, dice_loss
from cxr.vlm.collate import Batch
from cxr.vlm.tokens import IGNORED

SEG_LOSS = {"text": 1.0, "bce": 5.0, "dice": 1.0}
"""Weights of the losses of a run with a head: cross-entropy of all answers (ours), binary cross-entropy of the masks
and Dice loss of the non-empty masks (ROSALIA's).
"""


class TextLoss:
    """Mean cross-entropy of the answers' tokens; units: what each of the ``names`` is averaged over."""

    names: Sequence[str] = ("text",)
    units: Sequence[str] = ("tokens",)
    weights: Sequence[float] = (1.0,)

    def counts(self, batch: Batch) -> list[int]:
        """Return the number of units of each loss in a batch."""
        return [count_learned(batch.labels)]

    def sums(self, model: torch.nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
        """Return {name: sum over a batch}, with gradients, and ``each``: the text loss per sample, (N,), without."""
        return text_loss(model(**batch.inputs, use_cache=False).logits, batch.labels)


class MaskLoss(TextLoss):
    """Text loss, cross-entropy of every [SEG]'s mask, and Dice loss of the masks that are not empty (ROSALIA)."""

    names, units, weights = tuple(SEG_LOSS), ("tokens", "masks", "positives"), tuple(SEG_LOSS.values())

    def counts(self, batch: Batch) -> list[int]:
        """Return the numbers of the answers' tokens, of masks, and of non-empty masks."""
        masks = batch.segs.masks
        return [count_learned(batch.labels), len(masks), int(_nonempty(masks).sum())]

    def sums(self, model: torch.nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the three sums."""
        outputs = model(batch.segs, **batch.inputs, use_cache=False)
        masks, targets = outputs["masks"], batch.segs.masks
        nonempty = _nonempty(targets)
        return text_loss(outputs["logits"], batch.labels) | {
            "bce": bce_loss(masks, targets).sum() if len(targets) else masks.sum(),
            "dice": dice_loss(masks[nonempty], targets[nonempty]).sum() if nonempty.any() else masks.sum() * 0.0,
        }


def _nonempty(masks: torch.Tensor) -> torch.Tensor:
    """Return which masks, uint8 (M, T, T), are non-empty, bool (M,)."""
    return (masks > 0).flatten(1).any(1)


def count_learned(labels: torch.Tensor) -> int:
    """Return the number of tokens in a batch's loss."""
    return int(count_learned_per_sample(labels).sum())


def count_learned_per_sample(labels: torch.Tensor) -> torch.Tensor:
    """Return the number of tokens in the loss of each sample, (N,)."""
    return (labels[:, 1:] != IGNORED).sum(1)


def text_loss(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the summed cross-entropy of labelled tokens: ``text`` of all, ``each`` per sample without gradients."""
    targets = labels[:, 1:]
    tokens = functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return {"text": tokens.sum(), "each": tokens.detach().view(targets.shape).sum(1)}
