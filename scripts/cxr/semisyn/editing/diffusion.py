"""Editing engine ``diffusion``: samples with a Stable Diffusion model, such as RoentGen, and blends in the source."""

from pathlib import Path

import torch

from cxr.base.engines import Setup
from cxr.diffusion.edit import Sampling, sample_latents
from cxr.diffusion.folders import read_stable_diffusion_layout
from cxr.semisyn.editing.models import EditBatch, ModelEditor, load_editor_nets

INSTEAD = "model"
GPU = True
KEY = "semisyn.editing.diffusion.model"


class DiffusionEditor(ModelEditor):
    """Editor that samples the findings inside the masks."""

    def edit_latents(self, rows: EditBatch) -> torch.Tensor:
        """See :class:`ModelEditor`."""
        sampling = Sampling(
            prompt=rows.prompts,
            guidance=self.guidance_weights(rows),
            blending=rows.config["blending"],
            pure=self.strength(rows.config) == 1,
            negative=rows.negatives,
            extent=rows.config["extent"],
        )
        model = self.steps(rows.config), self.nets.prediction, self.nets.predict
        return sample_latents(rows.clean, rows.mask, *model, rows.draw, sampling)


def load(options: object, setup: Setup, prompts: frozenset[str] = frozenset()) -> DiffusionEditor:
    """Load the engine. Raise UserError for a faulty model, or a prompt that is too long or has an unknown word."""
    layout = read_stable_diffusion_layout(Path(setup.files["folder"]), KEY)
    return DiffusionEditor(load_editor_nets(layout, prompts, setup), setup.engine_settings, setup.batch)
