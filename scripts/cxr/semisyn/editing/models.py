"""Base class of the editing engines with a diffusion model. On a CPU, a job's image is the same in any batch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.diffusion.folders import Layout
from cxr.diffusion.guidance import cell_fractions, cell_mask
from cxr.diffusion.nets import NetOptions, Nets, load_nets
from cxr.diffusion.schedule import Step, select_steps
from cxr.metrics.edits import mask_from_boxes
from cxr.nets.devices import inference, select_device
from cxr.semisyn.editing.engine import BoxTooSmall, EditedImage, Job
from cxr.semisyn.editing.settings import OWN_STRENGTH

PASS_KEYS = ("blending", "extent", "steps", "strength")
"""Settings in which the jobs of one pass through the model must agree. Masks, prompts and guidance may differ."""


class EditBatch:
    """The B jobs of one pass through the model. clean: latents (S, C, h, w) of their S source images; mask: weights of
    the edit (B, 1, h, w); sources: index in ``clean`` of each job's source. Jobs with the same index have the
    same image, seed and negative prompt."""

    def __init__(
        self, clean: torch.Tensor, jobs: list[Job], device: torch.device, sources: Sequence[int] | None = None
    ):
        self.clean, self.jobs, self.config, self.device = clean, jobs, jobs[0].config, device
        self.sources = list(range(len(jobs))) if sources is None else list(sources)
        masks = [cell_fractions(job.mask, tuple(clean.shape[-2:])).astype(np.float32) for job in jobs]
        self.mask = torch.from_numpy(np.stack(masks))[:, None].to(device)
        owners = [jobs[self.sources.index(source)] for source in range(len(clean))]
        self._generators = [torch.Generator().manual_seed(job.seed % 2**63) for job in owners]
        self.prompts = tuple(job.prompt for job in jobs)
        self.negatives = tuple(job.config["negative"] for job in jobs)
        self.inverted = tuple(job.config["negative"] for job in owners)

    def draw(self) -> torch.Tensor:
        """Return noise (S, C, h, w), drawn for each source from a separate random generator."""
        noise = [torch.randn(self.clean.shape[1:], generator=generator) for generator in self._generators]
        return torch.stack(noise).to(self.device)


class ModelEditor(ABC):
    """An editor with a latent diffusion model."""

    inverts = False
    """Whether the source is first inverted to noise, once for all jobs with the same job_id and negative prompt."""

    def __init__(self, nets: Nets, engine_settings: dict, batch: int):
        self.nets, self.settings, self.batch = nets, engine_settings, batch

    @abstractmethod
    def edit_latents(self, rows: EditBatch) -> torch.Tensor:
        """Return the edited latents (B, C, h, w) of the jobs of one pass."""

    @inference()
    def edit_batch(self, images: list[np.ndarray], organs: list[dict], jobs: list[Job]) -> list[EditedImage]:
        """Return the edited images, float32 (512, 512) in grey levels: the mean of the model's three channels. A
        source is encoded once for all configurations of a job. Raise BoxTooSmall if a box covers no latent cell."""
        scaled = torch.from_numpy(np.stack(images)).float()[:, None] / 127.5 - 1
        image_indices, first_rows = _group_indices([job.job_id for job in jobs])
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
            keys = [(job.job_id, job.config["negative"]) if self.inverts else at for at, job in enumerate(group_jobs)]
            sources, first = _group_indices(keys)
            group_clean = clean[[image_indices[places[at]] for at in first]]
            latents[places] = self.edit_latents(EditBatch(group_clean, group_jobs, self.nets.device, sources))
        grey = (self.nets.decode(latents).mean(dim=1) + 1) * 127.5
        return [EditedImage(picture) for picture in grey.cpu().numpy()]

    def steps(self, config: dict) -> list[Step]:
        """Return the sampling steps of a configuration."""
        return select_steps(self.nets.abars, int(self.settings["steps"] * config["steps"]), 1 - self.strength(config))

    def guidance_weights(self, rows: EditBatch) -> tuple[float, ...]:
        """Return the guidance weight of each job."""
        return tuple(job.config["guidance"] or self.settings["guidance"] for job in rows.jobs)

    def strength(self, config: dict) -> float:
        """Return the fraction of the noise levels that a configuration uses."""
        return config["strength"] or OWN_STRENGTH[config["engine"]]


def load_editor_nets(layout: Layout, prompts: frozenset[str], setup: Setup) -> Nets:
    """Load a model, and encode all ``prompts``. Raise UserError for a faulty file or a prompt that is too long."""
    settings, texts = setup.engine_settings, dict.fromkeys(sorted(prompts | {""}), "a prompt of semisyn")
    options = NetOptions.from_settings(settings["dtype"], settings["autoencoder"], setup.compute)
    return load_nets(layout, texts, options, select_device(setup.device, setup.requested_gpus))


def _group_indices(keys: list) -> tuple[list[int], list[int]]:
    """Number the distinct keys in order of appearance. Return each key's number, and the first index of each number."""
    distinct = list(dict.fromkeys(keys))
    return [distinct.index(key) for key in keys], [keys.index(key) for key in distinct]
