"""Two ways to edit latents (B, C, h, w).

:func:`sample_latents` samples under a prompt inside a mask and blends with the source outside it.

:func:`edit_latents` does edit-friendly inversion and editing in one pass over the steps. The source's latent at each
time is the clean latent with independent noise. The correction of a step is the next latent minus the step's mean. The
edited latent gets the same corrections, but its mean is predicted under the prompt.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from cxr.diffusion.guidance import Predict, PredictionRequest, Prompts, Weights, mix_by_mask, predict_guided
from cxr.diffusion.schedule import Step, add_noise, step_mean, step_variance


@dataclass(frozen=True)
class Editing:
    """Editing options. Prompts and weights are given once or per image; those of the inversion, once or per source.

    extent: fraction of the steps, noisiest first, in which the masks apply; later steps paste nothing.
    """

    prompt: Prompts
    invert_prompt: Prompts
    guidance: Weights
    invert_guidance: Weights
    published_bugs: bool
    extent: float = 1.0


def edit_latents(
    clean: torch.Tensor,
    edit: torch.Tensor,
    keep: torch.Tensor,
    steps: Sequence[Step],
    prediction: str,
    predict: Predict,
    draw: Callable[[], torch.Tensor],
    editing: Editing,
    sources: Sequence[int] | None = None,
) -> torch.Tensor:
    """Return the edited latents, float32 (B, C, h, w), of the sources ``clean`` (S, C, h, w).

    sources: row of ``clean`` of each edit; edit: mask in which the prompt applies, bool or 0..1 (B, 1, h, w); keep:
    mask in which the source's latent is pasted back after every step. Outside both masks, the inversion's prompt
    applies. draw: returns standard normal noise of the shape of ``clean``.

    ``editing.published_bugs`` reproduces the published code. The pasted latent is then that before the step, everything
    outside ``edit`` is pasted, and the last step has no correction.
    """
    if not steps:
        return _select_sources(clean, sources)
    pasted = (~edit if edit.dtype == torch.bool else 1 - edit) if editing.published_bugs else keep
    neither = not bool(((edit == 1) | (pasted == 1)).all())
    num_masked_steps = round(editing.extent * len(steps))
    inversion, edit_condition = (editing.invert_prompt, editing.invert_guidance), (editing.prompt, editing.guidance)
    inverted = [
        values if sources is None or isinstance(values, str | int | float) else tuple(values[at] for at in sources)
        for values in inversion
    ]
    original = add_noise(clean, draw(), steps[0].abar)
    edited = _select_sources(original, sources)
    for number, step in enumerate(steps, 1):
        masked = number <= num_masked_steps
        requests = [PredictionRequest(original, *inversion), PredictionRequest(edited, *edit_condition)]
        requests += [PredictionRequest(edited, *inverted)] if neither and masked else []
        source_prediction, *edit_predictions = predict_guided(predict, step.time, requests)
        expected = step_mean(original, source_prediction, step, prediction)
        # add the correction again, instead of using the next latent, so that an edit without a prompt is bit-exact
        correction = add_noise(clean, draw(), step.before) - expected
        after = expected + correction
        edited = step_mean(edited, mix_by_mask(edit, edit_predictions[0], edit_predictions[-1]), step, prediction)
        if not (editing.published_bugs and number == len(steps)):
            edited = edited + _select_sources(correction, sources)
        if masked:
            source_latents = _select_sources(original if editing.published_bugs else after, sources)
            edited = mix_by_mask(pasted, source_latents, edited)
        original = after
    return edited


def _select_sources(latents: torch.Tensor, sources: Sequence[int] | None) -> torch.Tensor:
    """Return the latent of each edit's source."""
    return latents if sources is None else latents[list(sources)]


Blending = Literal["before", "after", "guidance"]
"""Blending with the mask m. x_t: the source's latent at the noise level of time t, with the same noise at all times::

    before    z_t = m z_t + (1 - m) x_t, then the step
    after     the step, then z_u = m z_u + (1 - m) x_u; at the last step x_u is the clean latent
    guidance  no blending; the guidance weight of the prompt is multiplied by m
"""


@dataclass(frozen=True)
class Sampling:
    """Sampling options. Prompts and weights are given once or per image.

    pure: start from pure noise, not from the noised source; extent: fraction of the steps, noisiest first, in which the
    mask applies.
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
    """Return latents sampled by DDIM with eta 1 from the source's latents ``clean`` (B, C, h, w). The prompt applies in
    ``mask``, bool or 0..1 (B, 1, h, w). ``draw`` returns standard normal noise of the latents' shape. It is called
    once for the noise of the start and of every x_t, then once per step except the last."""
    if not steps:
        return clean
    noise = draw()
    num_masked_steps = round(sampling.extent * len(steps))
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
