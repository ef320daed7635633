"""Interface of the editing engines: a module has ``load(options, setup, prompts)``; ``prompts``: of all jobs."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Job:
    """One finding to put into one image. ``boxes`` float64 (N, 4) in frame pixels, with the ``sides`` of their lungs
    ("" for the heart); ``ratio``: cardiothoracic ratio to reach, or None; ``mask`` float32 (512, 512): weight of the
    edit at each pixel, filled in just before it; ``config``: the configuration."""

    job_id: str
    finding: str
    prompt: str
    boxes: np.ndarray
    sides: tuple[str, ...]
    ratio: float | None
    mask: np.ndarray | None
    seed: int
    config: dict


@dataclass(frozen=True)
class EditedImage:
    """An edited image, uint8 or float (512, 512), with drawn ``parameters``. Bool (512, 512): ``lesion``, the exact
    mask, if known; ``support``: where the engine may have changed the image, None where the job's mask is above 0."""

    image: np.ndarray
    lesion: np.ndarray | None = None
    support: np.ndarray | None = None
    parameters: dict = field(default_factory=dict)


class EditingEngine(Protocol):
    """An editor that puts findings into chest X-rays."""

    def edit(self, image: np.ndarray, organs: dict[str, np.ndarray], job: Job) -> EditedImage:
        """Edit a frame uint8 (512, 512) with its masks {label: bool (512, 512)}; called from several threads at once.
        An engine with a large net has ``edit_batch(images, organs, jobs)`` instead, on lists and called from one
        thread, and the attribute ``batch``. No result may depend on another job. Raises BoxTooSmall."""
        ...


class BoxTooSmall(ValueError):
    """A box of the job covers no cell of the model's latent grid."""
