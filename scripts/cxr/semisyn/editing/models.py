"""What both engines with a diffusion model share: rows of one configuration together, masks, noise, grey pictures.

Each job has its own noise generator on the CPU, seeded by the job. On a CPU a job's image is the same to the last bit
in every batch; on a GPU sums may round differently in a batch of another size.
"""

from abc import ABC, abstractmethod

import numpy as np
import torch

from cxr.diffusion.guidance import cells, shares
from cxr.diffusion.nets import Nets
from cxr.metrics.edits import box_mask
from cxr.nets.devices import inference
from cxr.semisyn.editing.engine import Edited, Job, NoCell

ALIKE = ("blending", "blur", "blur_r", "blur_beta", "mask", "extent", "steps", "strength")
"""Keys of a configuration that jobs of one pass must share; prompts and weights are one per row."""


class Rows:
    """Jobs that run together: clean latents (B, C, h, w), masks (B, 1, h, w), and a draw of their noise."""

    def __init__(self, clean: torch.Tensor, jobs: list[Job], device: torch.device):
        self.clean, self.jobs, self.config = clean, jobs, jobs[0].config
        shape = tuple(clean.shape[-2:])
        made = [cells(job.mask, shape) if self.config["mask"] == "hard" else shares(job.mask, shape) for job in jobs]
        mask = torch.from_numpy(np.stack(made))[:, None]
        self.mask = (mask if mask.dtype == torch.bool else mask.float()).to(device)
        generators = [torch.Generator().manual_seed(job.seed % 2**63) for job in jobs]

        def draw() -> torch.Tensor:
            return torch.stack([torch.randn(clean.shape[1:], generator=one) for one in generators]).to(device)

        self.draw = draw
        self.prompts = tuple(job.prompt for job in jobs)
        self.negatives = tuple(job.config["negative"] for job in jobs)


class ModelEditor(ABC):
    """An editor with a latent diffusion model. ``own``: the engine's settings."""

    def __init__(self, nets: Nets, own: dict, batch: int):
        self.nets, self.own, self.batch = nets, own, batch

    @abstractmethod
    def edited(self, rows: Rows) -> torch.Tensor:
        """Return the edited latents of jobs of one configuration."""

    @inference()
    def edit_batch(self, images: list[np.ndarray], organs: list[dict], jobs: list[Job]) -> list[Edited]:
        """Return the edited images, float32 (512, 512) in grey levels: the mean of the model's three channels.

        Raises NoCell for a job with a box that covers no cell of the latent grid.
        """
        scaled = torch.from_numpy(np.stack(images)).float()[:, None] / 127.5 - 1
        clean = self.nets.encode(scaled.expand(-1, 3, -1, -1))
        _refuse_small(jobs, tuple(clean.shape[-2:]))
        groups: dict[tuple, list[int]] = {}
        for row, job in enumerate(jobs):
            groups.setdefault(tuple(job.config[name] for name in ALIKE), []).append(row)
        latents = clean.clone()
        for places in groups.values():
            latents[places] = self.edited(Rows(clean[places], [jobs[at] for at in places], self.nets.device))
        grey = (self.nets.decode(latents).mean(dim=1) + 1) * 127.5
        return [Edited(picture) for picture in grey.cpu().numpy()]

    def steps(self, config: dict) -> int:
        """Return the number of steps of a configuration."""
        return int(self.own["steps"] * config["steps"])

    def weights(self, rows: Rows) -> tuple[float, ...]:
        """Return the weight of the prompt of each row."""
        return tuple(job.config["guidance"] or self.own["guidance"] for job in rows.jobs)

    def strength(self, config: dict) -> float:
        """Return the fraction of the noise levels that a configuration runs through."""
        return config["strength"] or self.own["strength"]


def _refuse_small(jobs: list[Job], shape: tuple[int, int]) -> None:
    for job in jobs:
        if not all(cells(box_mask(box, job.mask.shape), shape).any() for box in job.boxes):
            raise NoCell(f"a box of the job covers no cell of the model's {shape[1]} x {shape[0]} grid")
