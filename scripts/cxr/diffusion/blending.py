"""Sampling under a prompt inside a mask, blended with the source image outside it, on latents (B, C, h, w).

The sampler is DDIM with eta 1, noisiest step first. With m the mask and x_t the source's latent at the noise level of
time t, with the same noise at all times::

    before    z_t = m z_t + (1 - m) x_t, then the step
    after     the step, then z_u = m z_u + (1 - m) x_u; at the last step x_u is the clean latent
    guidance  nothing is blended; the weight of the prompt is multiplied by m
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from cxr.diffusion.guidance import (
    Predict,
    PredictionRequest,
    Prompts,
    Weights,
    count_masked_steps,
    mix_by_mask,
    predict_guided,
)
from cxr.diffusion.schedule import Step, add_noise, step_mean, step_variance

Blending = Literal["before", "after", "guidance"]


@dataclass(frozen=True)
class Sampling:
    """Sampling options; prompts and weights are one for the whole batch or one per image. negative: prompt of the
    unconditional prediction; pure: start from pure noise, not from the noised source; extent: fraction of the steps,
    noisiest first, in which the mask applies; afterwards the prompt applies everywhere."""

    prompt: Prompts
    guidance: Weights
    blending: Blending
    pure: bool
    negative: Prompts = ""
    extent: float = 1.0


def sample_latents(
    clean: torch.Tensor,
    mask: torch.Tensor,
    steps: Sequence[Step],
    prediction: str,
    predict: Predict,
    draw: Callable[[], torch.Tensor],
    sampling: Sampling,
) -> torch.Tensor:
    """Return sampled latents of the source's latents ``clean`` (B, C, h, w). ``mask``, bool or 0..1 (B, 1, h, w): where
    the prompt applies. ``draw`` returns standard normal noise of the latents' shape: first that of the start and of
    every x_t, then one for each step but the last."""
    if not steps:
        return clean
    noise = draw()
    num_masked_steps = count_masked_steps(len(steps), sampling.extent)
    latent = noise if sampling.pure else add_noise(clean, noise, steps[0].abar)
    prompt_weight = torch.as_tensor(sampling.guidance, dtype=clean.dtype, device=clean.device).reshape(-1, 1, 1, 1)
    for number, step in enumerate(steps, 1):
        masked = number <= num_masked_steps
        if masked and sampling.blending == "before":
            latent = mix_by_mask(mask, latent, add_noise(clean, noise, step.abar))
        requests = [PredictionRequest(latent, prompt, 1.0) for prompt in (sampling.prompt, sampling.negative)]
        conditional, unconditional = predict_guided(predict, step.time, requests)
        is_guided_by_mask = masked and sampling.blending == "guidance"
        weight = mask.to(clean.dtype) * prompt_weight if is_guided_by_mask else prompt_weight
        predicted = unconditional + weight * (conditional - unconditional)
        latent = step_mean(latent, predicted, step, prediction)
        if number < len(steps):
            latent = latent + math.sqrt(step_variance(step)) * draw()
        if masked and sampling.blending == "after":
            latent = mix_by_mask(mask, latent, add_noise(clean, noise, step.before))
    return latent
