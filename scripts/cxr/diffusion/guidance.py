"""Classifier-free guidance per row of a batch, masks on the grid of latents, and mixing under a mask."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

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


class Asked(NamedTuple):
    """What is wanted of the net: its prediction for latents (B, C, h, w) under prompts, with weights."""

    latent: torch.Tensor
    prompts: Prompts
    weights: Weights


def guided(predict: Predict, time: int, requests: Sequence[Asked]) -> list[torch.Tensor]:
    """Return, for each one asked for, the unconditional prediction plus weight times the prompt's change to it.

    The net is called once, with every row and text that is needed, each once: a weight of 1 needs no unconditional
    prediction. A row's result does not depend on the other rows, as far as that holds for ``predict``.
    """
    simple_requests = [request._replace(**_simple(request)) for request in requests]
    passes: dict[tuple[int, Prompts], torch.Tensor] = {}
    for request in simple_requests:
        for text in _texts(request):
            passes.setdefault((id(request.latent), text), request.latent)
    rows = [text for (_, prompts), latent in passes.items() for text in _each_row(prompts, len(latent))]
    latents = list(passes.values())
    batch = torch.cat(latents) if len(latents) > 1 else latents[0]
    predicted = predict(batch, time, one_or_each(rows, batch)).split([len(latent) for latent in latents])
    prediction_by_pass = dict(zip(passes, predicted, strict=True))
    return [_weighted(request, partial(_prediction_for, prediction_by_pass, request)) for request in simple_requests]


def _prediction_for(
    prediction_by_pass: dict[tuple[int, Prompts], torch.Tensor], request: Asked, text: Prompts
) -> torch.Tensor:
    return prediction_by_pass[id(request.latent), text]


def _simple(request: Asked) -> dict:
    return {name: one_or_each(getattr(request, name), request.latent) for name in ("prompts", "weights")}


def _each_row(values: str | float | tuple, rows: int) -> tuple:
    return values if isinstance(values, tuple) else (values,) * rows


def _plain(request: Asked) -> list[bool]:
    """Return which rows need no unconditional prediction beside the prompt's."""
    rows = len(request.latent)
    texts, factors = _each_row(request.prompts, rows), _each_row(request.weights, rows)
    return [factor == 1 or not text for text, factor in zip(texts, factors, strict=True)]


def _texts(request: Asked) -> list[Prompts]:
    return [request.prompts] if all(_plain(request)) else ["", request.prompts]


def _weighted(request: Asked, under: Callable[[Prompts], torch.Tensor]) -> torch.Tensor:
    plain = _plain(request)
    if all(plain):
        return under(request.prompts)
    if isinstance(request.prompts, str) and not isinstance(request.weights, tuple):
        return under("") + request.weights * (under(request.prompts) - under(""))
    factor, alone = (_by_row(each, request.latent) for each in (_each_row(request.weights, len(plain)), plain))
    return torch.where(alone > 0, under(request.prompts), under("") + factor * (under(request.prompts) - under("")))


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
