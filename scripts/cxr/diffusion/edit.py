"""Edit-friendly inversion and editing in one pass over the steps, on latents (B, C, h, w).

The original's latent at every time is drawn independently from the clean one. A step's correction is the difference
between the next latent and the step's mean; it holds the original's structure. The edited latent takes the same steps
with the same corrections, but with the noise predicted under the prompt. Both run from noisy to clean, side by side: no
latent is stored, skipped steps are never computed, and the net is called once a step with the rows of both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from cxr.diffusion.guidance import Asked, Predict, Prompts, Weights, guided, masked_steps, mixed
from cxr.diffusion.schedule import Step, diffused, mean


@dataclass(frozen=True)
class Editing:
    """Options of an edit: prompts and their weights, one for the whole batch or one per image.

    Those of the inversion are one per source where several rows edit one source.
    extent: fraction of the steps, noisiest first, in which the masks apply; afterwards the prompt applies everywhere
    and nothing is pasted.
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
    """Return the edited latents, float32 (B, C, h, w), of ``clean``, that many rows or those of fewer ``sources``.

    ``sources``: for each of the B rows that are edited, its row of ``clean`` (S, C, h, w); by default its own. The
    source's side of the inversion then runs once for all rows of a source, with the same numbers.
    ``edit`` and ``keep``, bool or 0..1 (B, 1, h, w): where the prompt applies, and where the original's latent is
    pasted back after every step. In neither region, the inversion's prompt applies. A soft mask mixes predictions and
    latents. ``draw`` returns standard normal noise of the shape of ``clean``. With the prompt and weight of the
    inversion the result is ``clean``, the last step included.
    With ``editing.published_bugs`` the pasted latent is the one before the step, everything outside ``edit`` is pasted
    whatever ``keep`` says, and the last step has no correction.
    """
    if not steps:
        return _rows(clean, sources)
    pasted = (~edit if edit.dtype == torch.bool else 1 - edit) if editing.published_bugs else keep
    neither = not bool(((edit == 1) | (pasted == 1)).all())
    num_masked_steps = masked_steps(len(steps), editing.extent)
    inversion, edit_condition = (editing.invert_prompt, editing.invert_guidance), (editing.prompt, editing.guidance)
    inverted = tuple(_each(part, sources) for part in inversion)
    original = diffused(clean, draw(), steps[0].abar)
    edited = _rows(original, sources)
    for number, step in enumerate(steps, 1):
        masked = number <= num_masked_steps
        requests = [Asked(original, *inversion), Asked(edited, *edit_condition)]
        requests += [Asked(edited, *inverted)] if neither and masked else []
        source_prediction, *edit_predictions = guided(predict, step.time, requests)
        expected = mean(original, source_prediction, step, prediction)
        # as a sum, so that an edit without a prompt gives the same number to the last bit
        correction = diffused(clean, draw(), step.before) - expected
        after = expected + correction
        edited = mean(edited, mixed(edit, edit_predictions[0], edit_predictions[-1]), step, prediction)
        if not (editing.published_bugs and number == len(steps)):
            edited = edited + _rows(correction, sources)
        if masked:
            edited = mixed(pasted, _rows(original if editing.published_bugs else after, sources), edited)
        original = after
    return edited


def _rows(latents: torch.Tensor, sources: Sequence[int] | None) -> torch.Tensor:
    """Return the row of each edit's source."""
    return latents if sources is None else latents[list(sources)]


def _each(values: Prompts | Weights, sources: Sequence[int] | None) -> Prompts | Weights:
    """Return a value of each source as one of each edit; one value for all stays."""
    return values if sources is None or isinstance(values, str | int | float) else tuple(values[at] for at in sources)
