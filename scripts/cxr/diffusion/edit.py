"""Two ways to edit images, called sources, by their latents (B, C, h, w).

:func:`sample_latents` samples new latents under a prompt inside a mask, and blends them with the source outside it.

:func:`edit_latents` does edit-friendly inversion and editing in one pass over the steps. The source's latent at each
time is its clean latent plus noise, drawn anew each time. The correction of a step is the source's next latent minus
the mean that the step predicts. The edited latent gets the same correction, but its mean is predicted with the prompt.
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
    """Options of :func:`edit_latents`."""

    prompt: Prompts  # prompt of the edits, one for all or one per edit
    invert_prompt: Prompts  # prompt that describes the sources, one for all or one per source
    guidance: Weights  # guidance weight of ``prompt``
    invert_guidance: Weights  # guidance weight of ``invert_prompt``
    published_bugs: bool  # reproduce three bugs of the published code
    extent: float = 1.0  # fraction of the steps, noisiest first, in which the masks apply


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
    """Return the latents of B edits, float32 (B, C, h, w), of the S sources ``clean`` (S, C, h, w).

    Edit b changes source ``sources[b]``, or source b if ``sources`` is None. The masks are bool or 0..1, (B, 1, h, w).
    In ``edit``, the prompt applies. In ``keep``, the source's latent is pasted back after every step. Outside both
    masks, the inversion's prompt applies. ``draw`` returns standard normal noise of the shape of ``clean``.

    With ``editing.published_bugs``, the pasted latent is the source's latent before the step instead of after it,
    everything outside ``edit`` is pasted, and the last step has no correction.
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
    return latents if sources is None else latents[list(sources)]


Blending = Literal["before", "after", "guidance"]
"""Blending with the mask m. x_t is the source's latent at the noise level of time t, with the same noise at all times::

    before    z_t = m z_t + (1 - m) x_t, then the step
    after     the step, then z_u = m z_u + (1 - m) x_u; at the last step x_u is the clean latent
    guidance  no blending; the guidance weight of the prompt is multiplied by m
"""


@dataclass(frozen=True)
class Sampling:
    """Options of :func:`sample_latents`. Give one prompt or weight for all images, or a separate one for each image."""

    prompt: Prompts
    guidance: Weights
    blending: Blending
    pure: bool  # start from pure noise, not from the source with noise
    negative: Prompts = ""  # prompt in place of the unconditional prediction
    extent: float = 1.0  # fraction of the steps, noisiest first, in which the mask applies


def sample_latents(
    clean: torch.Tensor,
    mask: torch.Tensor,
    steps: Sequence[Step],
    prediction: str,
    predict: Predict,
    draw: Callable[[], torch.Tensor],
    sampling: Sampling,
) -> torch.Tensor:
    """Return latents sampled by DDIM with eta 1 for the sources ``clean`` (B, C, h, w). The prompt applies in ``mask``,
    bool or 0..1 (B, 1, h, w). ``draw`` returns standard normal noise of the latents' shape. The first draw is the noise
    of the start and of every x_t (:data:`Blending`). Each step except the last draws once more."""
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
