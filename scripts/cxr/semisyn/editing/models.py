"""Common base of the editing engines with a diffusion model: batches of one configuration, masks, noise, grey images.

Each job has its own noise generator on the CPU, seeded by the job. On a CPU a job's image is bit-identical in every
batch; on a GPU sums may round differently in batches of another size.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from cxr.diffusion.guidance import cell_fractions, cell_mask
from cxr.diffusion.nets import Nets
from cxr.metrics.edits import mask_from_boxes
from cxr.nets.devices import inference
from cxr.semisyn.editing.configs import OWN_STRENGTH
from cxr.semisyn.editing.engine import BoxTooSmall, EditedImage, Job

PASS_KEYS = ("blending", "extent", "steps", "strength")
"""Configuration keys that the jobs of one pass share; masks, prompts and guidance weights are per row."""


class EditBatch:
    """Jobs of one pass: masks (B, 1, h, w) of B jobs, clean latents (S, C, h, w) of their S sources, and noise.

    ``sources``: each job's row of ``clean``; jobs that share a row have the same image, seed and negative prompt.
    """

    def __init__(
        self, clean: torch.Tensor, jobs: list[Job], device: torch.device, sources: Sequence[int] | None = None
    ):
        self.clean, self.jobs, self.config = clean, jobs, jobs[0].config
        self.sources = list(range(len(jobs))) if sources is None else list(sources)
        shape = tuple(clean.shape[-2:])
        masks = np.stack([cell_fractions(job.mask, shape).astype(np.float32) for job in jobs])
        self.mask = torch.from_numpy(masks)[:, None].to(device)
        first = dict(zip(reversed(self.sources), reversed(jobs), strict=True))
        owners = [first[source] for source in range(len(clean))]
        generators = [torch.Generator().manual_seed(job.seed % 2**63) for job in owners]

        def draw() -> torch.Tensor:
            noise = [torch.randn(clean.shape[1:], generator=generator) for generator in generators]
            return torch.stack(noise).to(device)

        self.draw = draw
        self.prompts = tuple(job.prompt for job in jobs)
        self.negatives = tuple(job.config["negative"] for job in jobs)
        self.inverted = tuple(job.config["negative"] for job in owners)


class ModelEditor(ABC):
    """An editor with a latent diffusion model."""

    inverts = False
    """Whether the source is inverted first, once for all jobs that edit it under the same negative prompt."""

    def __init__(self, nets: Nets, engine_settings: dict, batch: int):
        self.nets, self.own, self.batch = nets, engine_settings, batch

    @abstractmethod
    def edit_latents(self, rows: EditBatch) -> torch.Tensor:
        """Return the edited latents of the jobs of one pass."""

    @inference()
    def edit_batch(self, images: list[np.ndarray], organs: list[dict], jobs: list[Job]) -> list[EditedImage]:
        """Return the edited images, float32 (512, 512) in grey levels: the mean of the model's three channels.

        A job may appear several times with different configurations; shared work on its source is done once.
        Raises BoxTooSmall for a box that covers no cell of the latent grid.
        """
        scaled = torch.from_numpy(np.stack(images)).float()[:, None] / 127.5 - 1
        image_indices = _group_indices([job.job_id for job in jobs])
        first_rows = [image_indices.index(row) for row in range(max(image_indices) + 1)]
        clean = self.nets.encode(scaled[first_rows].expand(-1, 3, -1, -1))
        shape = tuple(clean.shape[-2:])
        for job in jobs:
            if not all(cell_mask(mask_from_boxes(box, job.mask.shape), shape).any() for box in job.boxes):
                raise BoxTooSmall(f"a box of the job covers no cell of the model's {shape[1]} x {shape[0]} grid")
        groups: dict[tuple, list[int]] = {}
        for row, job in enumerate(jobs):
            groups.setdefault(tuple(job.config[name] for name in PASS_KEYS), []).append(row)
        latents = clean[image_indices]
        for places in groups.values():
            group_jobs = [jobs[at] for at in places]
            keys = [(job.job_id, job.config["negative"]) for job in group_jobs]
            sources = _group_indices(keys) if self.inverts else list(range(len(group_jobs)))
            first = [places[sources.index(row)] for row in range(max(sources) + 1)]
            rows = EditBatch(clean[[image_indices[at] for at in first]], group_jobs, self.nets.device, sources)
            latents[places] = self.edit_latents(rows)
        grey = (self.nets.decode(latents).mean(dim=1) + 1) * 127.5
        return [EditedImage(picture) for picture in grey.cpu().numpy()]

    def num_steps(self, config: dict) -> int:
        """Return the number of sampling steps of a configuration."""
        return int(self.own["steps"] * config["steps"])

    def guidance_weights(self, rows: EditBatch) -> tuple[float, ...]:
        """Return the guidance weight of each row."""
        return tuple(job.config["guidance"] or self.own["guidance"] for job in rows.jobs)

    def strength(self, config: dict) -> float:
        """Return the fraction of the noise levels that a configuration uses."""
        return config["strength"] or OWN_STRENGTH[config["engine"]]


def _group_indices(keys: list) -> list[int]:
    """Return for each key its index among the distinct keys, in order of first appearance."""
    number: dict = {}
    return [number.setdefault(key, len(number)) for key in keys]
