"""Editing engine for a model in Stable Diffusion's layout, such as RoentGen: blended sampling from the job's prompt."""

from pathlib import Path

import torch

from cxr.base.engines import Setup
from cxr.diffusion import folders, nets
from cxr.diffusion.blending import Sampling, sample_latents
from cxr.diffusion.schedule import select_steps
from cxr.nets.devices import select_device
from cxr.semisyn.editing.models import EditBatch, ModelEditor

INSTEAD = "model"
GPU = True
KEY = "semisyn.editing.diffusion.model"


class DiffusionEditor(ModelEditor):
    """Samples findings into the masks."""

    def edit_latents(self, rows: EditBatch) -> torch.Tensor:
        """See :class:`ModelEditor`."""
        strength = self.strength(rows.config)
        steps = select_steps(self.nets.abars, self.num_steps(rows.config), 1 - strength)
        sampling = Sampling(
            prompt=rows.prompts,
            guidance=self.guidance_weights(rows),
            blending=rows.config["blending"],
            pure=strength == 1,
            negative=rows.negatives,
            extent=rows.config["extent"],
        )
        predict, prediction = self.nets.predict, self.nets.prediction
        return sample_latents(rows.clean, rows.mask, steps, prediction, predict, rows.draw, sampling)


def load(options: object, setup: Setup, prompts: frozenset[str] = frozenset()) -> DiffusionEditor:
    """Load the engine. Raises UserError for an unusable file or prompt."""
    device = select_device(setup.device, setup.asked)
    layout = folders.read_stable_diffusion_layout(Path(setup.files["folder"]), KEY)
    texts = dict.fromkeys(sorted(prompts | {""}), "the prompts of semisyn")
    loaded = nets.load_nets(layout, texts, nets.NetOptions.from_setup(setup), device)
    return DiffusionEditor(loaded, setup.own, setup.batch)
