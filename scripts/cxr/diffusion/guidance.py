"""What a net predicts under prompts with weights, row by row; masks on the grid of latents; mixing under a mask."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

Prompts = str | Sequence[str]
"""One text for all rows of a batch, or one for each; the empty text says nothing (unconditional)."""
Weights = float | Sequence[float]
"""How strongly prompts count, one number for all rows or one for each."""
Predict = Callable[[torch.Tensor, int, Prompts], torch.Tensor]
"""What the net predicts for latents at a time under prompts."""


def one_or_each(values: str | float | Sequence, latent: torch.Tensor) -> str | float | tuple:
    """Return one value where all rows have the same, else a tuple of one for each. Raises ValueError for fewer."""
    if isinstance(values, str | int | float):
        return values
    if len(values) != len(latent):
        raise ValueError(f"{len(values)} values for {len(latent)} rows")
    return values[0] if len(set(values)) == 1 else tuple(values)


def guided(
    predict: Predict, latent: torch.Tensor, time: int, wanted: Sequence[tuple[Prompts, Weights]]
) -> list[torch.Tensor]:
    """Return for each (prompts, weights) the unconditional prediction plus weight times what a prompt changes in it.

    The net runs once for each set of texts that counts: a weight of 1 needs no unconditional prediction. A row's result
    is the same in any company.
    """
    told: dict[Prompts, torch.Tensor] = {}

    def under(prompts: Prompts) -> torch.Tensor:
        if prompts not in told:
            told[prompts] = predict(latent, time, prompts)
        return told[prompts]

    def weighted(prompts: Prompts, weights: Weights) -> torch.Tensor:
        if isinstance(prompts, str) and not isinstance(weights, tuple):
            if weights == 1 or not prompts:
                return under(prompts)
            return under("") + weights * (under(prompts) - under(""))
        rows = len(latent)
        texts = (prompts,) * rows if isinstance(prompts, str) else prompts
        factors = weights if isinstance(weights, tuple) else (weights,) * rows
        plain = [factor == 1 or not text for text, factor in zip(texts, factors, strict=True)]
        if all(plain):
            return under(prompts)
        factor, alone = (_by_row(each, latent) for each in (factors, plain))
        return torch.where(alone > 0, under(prompts), under("") + factor * (under(prompts) - under("")))

    return [weighted(*(one_or_each(part, latent) for part in each)) for each in wanted]


def _by_row(values: Sequence[float], latent: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=latent.dtype, device=latent.device).reshape(-1, *[1] * (latent.dim() - 1))


def shares(region: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return float64 ``shape``: the mean of ``region``, bool or 0..1 (H, W), over the pixels of each latent cell.

    H and W are multiples of the cells' numbers.
    """
    (rows, columns), (height, width) = shape, region.shape
    return region.reshape(rows, height // rows, columns, width // columns).mean(axis=(1, 3))


def cells(region: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return bool ``shape``: the latent cells of which at least half lies in ``region``, bool or 0..1 (H, W).

    Half is what a picture of the mask gives that is scaled down and cut at mid-grey; it moves no border in the mean.
    """
    return shares(region, shape) >= 0.5


def mixed(mask: torch.Tensor, inside: torch.Tensor, outside: torch.Tensor) -> torch.Tensor:
    """Return ``inside`` where the mask is 1, ``outside`` where it is 0, their weighted mean between.

    ``mask``: bool, or 0..1. One of zeros and ones gives to the last bit what the bool one gives.
    """
    if mask.dtype == torch.bool:
        return torch.where(mask, inside, outside)
    soft = mask.to(inside.dtype)
    between = soft * inside + (1 - soft) * outside
    return torch.where(mask >= 1, inside, torch.where(mask <= 0, outside, between))


def masked_steps(steps: int, extent: float) -> int:
    """Return how many of the steps a mask holds for, the noisiest: the share ``extent`` of them, rounded."""
    return round(extent * steps)
