"""Classifier-free guidance with separate prompts and weights for each row of a batch, and masks on the latent grid."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

Prompts = str | Sequence[str]  # one for all rows of a batch, or one per row; "": unconditional
Weights = float | Sequence[float]  # guidance weight of the prompts: one number for all rows, or one per row
Predict = Callable[[torch.Tensor, int, Prompts], torch.Tensor]  # the net's prediction for (latents, time, prompts)


def collapse_equal_values(values: str | float | Sequence, latent: torch.Tensor) -> str | float | tuple:
    """Return a single value if the values of all rows of ``latent`` are equal, else a tuple with one value per row.

    Raises ValueError if there are not as many values as rows.
    """
    if isinstance(values, str | int | float):
        return values
    if len(values) != len(latent):
        raise ValueError(
            f"guidance has {len(values)} values for a batch of {len(latent)} images: give one value per image"
        )
    return values[0] if len(set(values)) == 1 else tuple(values)


class PredictionRequest(NamedTuple):
    """A request for the net's prediction: latents (B, C, h, w), prompts, and guidance weights."""

    latent: torch.Tensor
    prompts: Prompts
    weights: Weights

    def is_unguided_by_row(self) -> list[bool]:
        """Return, for each row, whether guidance changes nothing, because the weight is 1 or the prompt is empty."""
        texts, factors = (_repeat_per_row(values, len(self.latent)) for values in (self.prompts, self.weights))
        return [factor == 1 or not text for text, factor in zip(texts, factors, strict=True)]


def predict_guided(predict: Predict, time: int, requests: Sequence[PredictionRequest]) -> list[torch.Tensor]:
    """Return u + weight * (p - u) for each request. p is the prediction with the prompt, u the prediction without.

    The net is called once, on a batch of all pairs of a latent and a prompt that the requests need. A request whose
    weights are all 1 does not need u.
    """
    simple_requests = [
        PredictionRequest(latent, *(collapse_equal_values(values, latent) for values in (prompts, weights)))
        for latent, prompts, weights in requests
    ]
    passes: dict[tuple[int, Prompts], torch.Tensor] = {}
    for request in simple_requests:
        for text in [request.prompts] if all(request.is_unguided_by_row()) else ["", request.prompts]:
            passes.setdefault((id(request.latent), text), request.latent)
    rows = [text for (_, prompts), latent in passes.items() for text in _repeat_per_row(prompts, len(latent))]
    latents = list(passes.values())
    batch = torch.cat(latents) if len(latents) > 1 else latents[0]
    predicted = predict(batch, time, collapse_equal_values(rows, batch)).split([len(latent) for latent in latents])
    prediction_by_pass = dict(zip(passes, predicted, strict=True))
    return [_apply_guidance(request, prediction_by_pass) for request in simple_requests]


def _repeat_per_row(values: str | float | tuple, rows: int) -> tuple:
    return values if isinstance(values, tuple) else (values,) * rows


def _apply_guidance(request: PredictionRequest, prediction_by_pass: dict) -> torch.Tensor:
    latent, is_unguided = request.latent, request.is_unguided_by_row()
    prompted = prediction_by_pass[id(latent), request.prompts]
    if all(is_unguided):
        return prompted
    unprompted = prediction_by_pass[id(latent), ""]
    if isinstance(request.prompts, str) and not isinstance(request.weights, tuple):
        return unprompted + request.weights * (prompted - unprompted)
    factor, alone = (
        torch.tensor(values, dtype=latent.dtype, device=latent.device).reshape(-1, *[1] * (latent.dim() - 1))
        for values in (_repeat_per_row(request.weights, len(latent)), is_unguided)
    )
    return torch.where(alone > 0, prompted, unprompted + factor * (prompted - unprompted))


def cell_fractions(region: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return the mean of ``region``, bool or 0..1 (H, W), in each cell of the latent grid, float64 of the shape
    ``shape``. H and W must be multiples of ``shape``."""
    (rows, columns), (height, width) = shape, region.shape
    return region.reshape(rows, height // rows, columns, width // columns).mean(axis=(1, 3))


def cell_mask(region: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return the latent cells, bool of ``shape``, of which ``region``, bool or 0..1 (H, W), covers at least half."""
    return cell_fractions(region, shape) >= 0.5


def mix_by_mask(mask: torch.Tensor, inside: torch.Tensor, outside: torch.Tensor) -> torch.Tensor:
    """Return ``inside`` where the mask is 1, ``outside`` where it is 0, and their weighted mean where it is between."""
    if mask.dtype == torch.bool:
        return torch.where(mask, inside, outside)
    soft = mask.to(inside.dtype)
    between = soft * inside + (1 - soft) * outside
    return torch.where(mask >= 1, inside, torch.where(mask <= 0, outside, between))
