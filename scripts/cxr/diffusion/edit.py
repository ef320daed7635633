"""Edit-friendly inversion and the edit in one pass over the steps, on latents (B, C, h, w).

Every time's latent of the original is drawn on its own from the clean one; what a step lacks to lead from one to the
next is the step's correction (it holds the original's structure). The edited latent takes the same steps with the
same corrections, but with the noise that the prompt asks for. Both go from noisy to clean, so they go side by side:
no latent is stored, and the steps that are skipped are never computed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cxr.diffusion.schedule import Step, diffused, mean

Predict = Callable[[torch.Tensor, int, str], torch.Tensor]
"""What the net predicts for latents at a time under a prompt; the empty one says nothing (unconditional)."""


@dataclass(frozen=True)
class Editing:
    """What is asked of an edit; see the settings ``anomaly.radedit``."""

    prompt: str
    invert_prompt: str
    guidance: float
    invert_guidance: float
    published_bugs: bool


def cells(region: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return bool ``shape``: the latent cells of which at least half the pixels lie in ``region``, bool (H, W).

    H and W are multiples of the cells' numbers. Half is what a picture of the mask gives that is scaled down and cut at
    mid-grey; it moves no border in the mean.
    """
    (rows, columns), (height, width) = shape, region.shape
    blocks = region.reshape(rows, height // rows, columns, width // columns)
    return blocks.mean(axis=(1, 3)) >= 0.5


def guided(
    predict: Predict, latent: torch.Tensor, time: int, wanted: Sequence[tuple[str, float]]
) -> list[torch.Tensor]:
    """Return for each (prompt, weight) the unconditional prediction plus weight times what the prompt changes in it.

    The net runs once for each text that counts: a weight of 1 needs no unconditional prediction.
    """
    told: dict[str, torch.Tensor] = {}

    def under(prompt: str) -> torch.Tensor:
        if prompt not in told:
            told[prompt] = predict(latent, time, prompt)
        return told[prompt]

    return [
        under(prompt) if weight == 1 or not prompt else under("") + weight * (under(prompt) - under(""))
        for prompt, weight in wanted
    ]


def edit_latents(
    clean: torch.Tensor,
    edit: torch.Tensor,
    keep: torch.Tensor,
    steps: Sequence[Step],
    prediction: str,
    predict: Predict,
    draw: Callable[[], torch.Tensor],
    how: Editing,
) -> torch.Tensor:
    """Return the edited latents of ``clean`` (B, C, h, w), float32.

    ``edit`` and ``keep``, bool (B, 1, h, w): where the prompt holds, and where the original's latent is pasted back
    after every step; between them it follows the inversion of the original. ``draw`` returns standard normal noise
    of the latents' shape. With the prompt and weight of the inversion ``clean`` comes back, the last step included.
    With ``how.published_bugs`` the pasted latent is the one before the step, everything outside ``edit`` is pasted
    whatever ``keep`` says, and the last step has no correction.
    """
    if not steps:
        return clean
    pasted = ~edit if how.published_bugs else keep
    neither = not bool((edit | pasted).all())
    inversion, asked = (how.invert_prompt, how.invert_guidance), (how.prompt, how.guidance)
    original = edited = diffused(clean, draw(), steps[0].abar)
    for number, step in enumerate(steps, 1):
        expected = mean(original, guided(predict, original, step.time, [inversion])[0], step, prediction)
        # as a sum, so that the edit without a prompt meets the same number to the last bit
        correction = diffused(clean, draw(), step.before) - expected
        after = expected + correction
        told = guided(predict, edited, step.time, [asked, inversion] if neither else [asked])
        edited = mean(edited, torch.where(edit, told[0], told[-1]), step, prediction)
        if not (how.published_bugs and number == len(steps)):
            edited = edited + correction
        edited = torch.where(pasted, original if how.published_bugs else after, edited)
        original = after
    return edited
