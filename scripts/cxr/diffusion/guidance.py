"""Classifier-free guidance per row of a batch, masks on the grid of latents, and mixing under a mask."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

Prompts = str | Sequence[str]
"""One text for all rows of a batch, or one per row; the empty text means unconditional."""
Weights = float | Sequence[float]
"""Guidance weight of the prompts: one number for all rows, or one per row."""
Predict = Callable[[torch.Tensor, int, Prompts], torch.Tensor]
"""Takes latents, a time and prompts; returns the net's prediction."""


def one_or_each(values: str | float | Sequence, latent: torch.Tensor) -> str | float | tuple:
    """Return one value if all rows have the same, else a tuple with one per row. Raises ValueError otherwise."""
    if isinstance(values, str | int | float):
        return values
    if len(values) != len(latent):
        raise ValueError(f"{len(values)} values for {len(latent)} rows")
    return values[0] if len(set(values)) == 1 else tuple(values)


def guided(
    predict: Predict, latent: torch.Tensor, time: int, wanted: Sequence[tuple[Prompts, Weights]]
) -> list[torch.Tensor]:
    """Return, for each (prompts, weights), the unconditional prediction plus weight times the prompt's change to it.

    The net runs once per set of texts that is needed: a weight of 1 needs no unconditional prediction. A row's result
    does not depend on the other rows.
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

    H and W must be multiples of ``shape``.
    """
    (rows, columns), (height, width) = shape, region.shape
    return region.reshape(rows, height // rows, columns, width // columns).mean(axis=(1, 3))


def cells(region: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return bool ``shape``: the latent cells of which at least half lies in ``region``, bool or 0..1 (H, W).

    This equals scaling the mask down and thresholding it at 0.5, which shifts no border on average.
    """
    return shares(region, shape) >= 0.5


def mixed(mask: torch.Tensor, inside: torch.Tensor, outside: torch.Tensor) -> torch.Tensor:
    """Return ``inside`` where the mask is 1, ``outside`` where it is 0, and their weighted mean in between.

    ``mask``: bool, or 0..1. A mask of zeros and ones gives the same result as the bool one, to the last bit.
    """
    if mask.dtype == torch.bool:
        return torch.where(mask, inside, outside)
    soft = mask.to(inside.dtype)
    between = soft * inside + (1 - soft) * outside
    return torch.where(mask >= 1, inside, torch.where(mask <= 0, outside, between))


def masked_steps(steps: int, extent: float) -> int:
    """Return in how many of the steps, noisiest first, a mask applies: the fraction ``extent``, rounded."""
    return round(extent * steps)
