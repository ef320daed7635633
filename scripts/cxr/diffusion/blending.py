"""Sampling under a prompt with the source image blended in outside a mask, on latents (B, C, h, w).

The sampler is DDIM with eta 1 over the given steps, noisiest first. With m the mask and x_t the source's latent at the
noise level of time t, all from one noise::

    before    z_t = m z_t + (1 - m) x_t, then the step
    after     the step, then z_u = m z_u + (1 - m) x_u; at the last step x_u is the clean latent
    guidance  nothing is blended; the weight of the prompt is multiplied by m
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from cxr.diffusion.guidance import Asked, Predict, Prompts, Weights, guided, masked_steps, mixed
from cxr.diffusion.schedule import Step, diffused, mean, variance

Blending = Literal["before", "after", "guidance"]


@dataclass(frozen=True)
class Sampling:
    """Options of a sampling: prompts and weights, one for the whole batch or one per image.

    negative: the prompt used as the unconditional one. pure: start from noise alone, not from the noised source.
    extent: fraction of the steps, noisiest first, in which the mask applies; afterwards the prompt applies everywhere.
    """

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
    """Return sampled latents; ``clean`` (B, C, h, w) holds the source's latents.

    ``mask``, bool or 0..1 (B, 1, h, w): where the prompt applies. ``draw`` returns standard normal noise of the
    latents' shape: first the noise of the start and of every x_t, then one for each step but the last. Without steps
    the source is returned.
    """
    if not steps:
        return clean
    noise = draw()
    num_masked_steps = masked_steps(len(steps), sampling.extent)
    latent = noise if sampling.pure else diffused(clean, noise, steps[0].abar)
    for number, step in enumerate(steps, 1):
        masked = number <= num_masked_steps
        if masked and sampling.blending == "before":
            latent = mixed(mask, latent, diffused(clean, noise, step.abar))
        predicted = _predicted(
            predict, latent, step.time, sampling, mask if masked and sampling.blending == "guidance" else None
        )
        latent = mean(latent, predicted, step, prediction)
        if number < len(steps):
            latent = latent + math.sqrt(variance(step)) * draw()
        if masked and sampling.blending == "after":
            latent = mixed(mask, latent, diffused(clean, noise, step.before))
    return latent


def _predicted(
    predict: Predict, latent: torch.Tensor, time: int, sampling: Sampling, mask: torch.Tensor | None
) -> torch.Tensor:
    """Return the guided prediction: that of ``negative``, plus weight (and mask) times the prompt's change to it."""
    conditional, unconditional = guided(
        predict, time, [Asked(latent, sampling.prompt, 1.0), Asked(latent, sampling.negative, 1.0)]
    )
    weight = torch.as_tensor(sampling.guidance, dtype=latent.dtype, device=latent.device).reshape(-1, 1, 1, 1)
    return unconditional + (weight if mask is None else mask.to(latent.dtype) * weight) * (conditional - unconditional)
