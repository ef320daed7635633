"""What a tuning minimises: the answers' cross-entropy, and where masks are told their losses too.

An objective gives, for a batch, sums and what each is divided by: the mean is over the whole update, whatever rank and
micro-batch a sample is in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from cxr.segmentation.losses import LossWeights, bce, dice
from cxr.vlm.collate import Batch
from cxr.vlm.tokens import IGNORED


class Objective(Protocol):
    """names: of its losses; counted: what each is the mean over; weights: of each in the whole."""

    names: Sequence[str]
    counted: Sequence[str]
    weights: Sequence[float]

    def counts(self, batch: Batch) -> list[int]:
        """Return how many each loss of a batch is the sum over."""
        ...

    def sums(self, model: torch.nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
        """Return {name: its sum over a batch}, with gradients, and ``each``: the text's loss of each sample, (N,)."""
        ...


class TextLoss:
    """The mean cross-entropy of the answers' tokens."""

    names, counted, weights = ("text",), ("tokens",), (1.0,)

    def counts(self, batch: Batch) -> list[int]:
        """Return the number of the answers' tokens."""
        return [learned(batch.labels)]

    def sums(self, model: torch.nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
        """Return their summed cross-entropy."""
        return of_text(model(**batch.inputs, use_cache=False).logits, batch.labels)


@dataclass(frozen=True)
class MaskLoss:
    """The same of all samples, and of each [SEG] the cross-entropy of its mask, and Dice of those with a lesion.

    ``of``: weights of the three. Dice counts masks that are not empty alone: an empty one would cost nearly 1, however
    little is drawn (ROSALIA).
    """

    of: LossWeights
    names = ("text", "bce", "dice")
    counted = ("tokens", "masks", "positives")

    @property
    def weights(self) -> tuple[float, float, float]:
        """Weights of the three losses."""
        return self.of.text, self.of.bce, self.of.dice

    def counts(self, batch: Batch) -> list[int]:
        """Return the numbers of the answers' tokens, of masks, and of those that are not empty."""
        masks = batch.segs.masks
        return [learned(batch.labels), len(masks), int(_some(masks).sum())]

    def sums(self, model: torch.nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the three sums."""
        outputs = model(batch.segs, **batch.inputs, use_cache=False)
        masks, targets = outputs["masks"], batch.segs.masks
        nonempty = _some(targets)
        return of_text(outputs["logits"], batch.labels) | {
            "bce": bce(masks, targets).sum() if len(targets) else masks.sum(),
            "dice": dice(masks[nonempty], targets[nonempty]).sum() if nonempty.any() else masks.sum() * 0.0,
        }


def _some(masks: torch.Tensor) -> torch.Tensor:
    """Return which masks, uint8 (M, T, T), are not empty: bool (M,)."""
    return (masks > 0).flatten(1).any(1)


def learned(labels: torch.Tensor) -> int:
    """Return the number of tokens that a batch's loss is on."""
    return int(learned_each(labels).sum())


def learned_each(labels: torch.Tensor) -> torch.Tensor:
    """Return the same of each sample, (N,)."""
    return (labels[:, 1:] != IGNORED).sum(1)


def of_text(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the summed cross-entropy of the labelled tokens, of all and of each sample (without gradients).

    logits (N, L, V) foretell the token after theirs.
    """
    targets = labels[:, 1:]
    tokens = functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return {"text": tokens.sum(), "each": tokens.detach().view(targets.shape).sum(1)}
