"""Edit-friendly inversion and editing in one pass over the steps, on latents (B, C, h, w). The original's latent at
each time is the clean latent with independent noise; a step's correction is the difference between the next latent and
the step's mean. The edited latent takes the same steps with the same corrections, but with the noise predicted under
the prompt. No latent is stored, and the net is called once per step with the rows of both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
from cxr.diffusion.schedule import Step, add_noise, step_mean


@dataclass(frozen=True)
class Editing:
    """Editing options; prompts and weights are one for the whole batch or one per image, those of the inversion one per
    source. extent: fraction of the steps, noisiest first, in which the masks apply; afterwards the prompt applies
    everywhere and nothing is pasted."""

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
    """Return the edited latents, float32 (B, C, h, w), of sources ``clean`` (S, C, h, w); ``sources``: each edit's row
    of them. ``edit`` and ``keep``, bool or 0..1 (B, 1, h, w): where the prompt applies, and where the original's latent
    is pasted back after every step; outside both the inversion's prompt applies. ``draw`` returns standard normal noise
    of the shape of ``clean``. With ``editing.published_bugs`` the pasted latent is the one before the step, everything
    outside ``edit`` is pasted, and the last step has no correction."""
    if not steps:
        return _select_sources(clean, sources)
    pasted = (~edit if edit.dtype == torch.bool else 1 - edit) if editing.published_bugs else keep
    neither = not bool(((edit == 1) | (pasted == 1)).all())
    num_masked_steps = count_masked_steps(len(steps), editing.extent)
    inversion, edit_condition = (editing.invert_prompt, editing.invert_guidance), (editing.prompt, editing.guidance)
    inverted = tuple(_spread_values(part, sources) for part in inversion)
    original = add_noise(clean, draw(), steps[0].abar)
    edited = _select_sources(original, sources)
    for number, step in enumerate(steps, 1):
        masked = number <= num_masked_steps
        requests = [PredictionRequest(original, *inversion), PredictionRequest(edited, *edit_condition)]
        requests += [PredictionRequest(edited, *inverted)] if neither and masked else []
        source_prediction, *edit_predictions = predict_guided(predict, step.time, requests)
        expected = step_mean(original, source_prediction, step, prediction)
        # as a sum, so that an edit without a prompt is bit-exact
        correction = add_noise(clean, draw(), step.before) - expected
        after = expected + correction
        edited = step_mean(edited, mix_by_mask(edit, edit_predictions[0], edit_predictions[-1]), step, prediction)
        if not (editing.published_bugs and number == len(steps)):
            edited = edited + _select_sources(correction, sources)
        if masked:
            edited = mix_by_mask(
                pasted, _select_sources(original if editing.published_bugs else after, sources), edited
            )
        original = after
    return edited


def _select_sources(latents: torch.Tensor, sources: Sequence[int] | None) -> torch.Tensor:
    """Return the latent of each edit's source."""
    return latents if sources is None else latents[list(sources)]


def _spread_values(values: Prompts | Weights, sources: Sequence[int] | None) -> Prompts | Weights:
    """Repeat one value per source as one value per edit; return a single value unchanged."""
    return values if sources is None or isinstance(values, str | int | float) else tuple(values[at] for at in sources)
