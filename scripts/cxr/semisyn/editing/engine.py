"""Interface of the editing engines. Each module has ``load(options, setup, prompts)``, with the prompts of all jobs."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Job:
    """A job: one finding to put into one image. boxes: float64 (N, 4) in frame pixels; sides: lung of each box, "" for
    the heart; ratio: cardiothoracic ratio to reach, or None if the finding is not in the heart; mask: float32
    (512, 512), weight of the edit at each pixel, None until just before the edit; config: fields of EditingConfig."""

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
    """An edited image, uint8 or float (512, 512). lesion: exact mask, bool (512, 512), or None if unknown; support:
    pixels that the engine may have changed, bool (512, 512), or None for the pixels where the job's mask is above 0;
    parameters: random values that the engine drew."""

    image: np.ndarray
    lesion: np.ndarray | None = None
    support: np.ndarray | None = None
    parameters: dict = field(default_factory=dict)


class EditingEngine(Protocol):
    """An editor that puts findings into chest X-rays."""

    def edit(self, image: np.ndarray, organs: dict[str, np.ndarray], job: Job) -> EditedImage:
        """Edit a frame uint8 (512, 512) with the organ masks {label: bool (512, 512)}. Several threads call this method
        at once. An engine with a large net instead has ``edit_batch(images, organs, jobs)`` on lists, which one thread
        calls, and the attribute ``batch``, their maximum length. A result must not depend on other jobs. Raise
        BoxTooSmall if a box covers no cell of the model's grid."""
        ...


class BoxTooSmall(ValueError):
    """Error for a job with a box that covers no cell of the model's latent grid."""
