"""Editing engine radedit: edit-friendly inversion of the source, then sampling from the prompt inside the mask."""

import torch

from cxr.base.engines import Setup
from cxr.diffusion import folders, nets
from cxr.diffusion.edit import Editing, edit_latents
from cxr.diffusion.schedule import select_steps
from cxr.nets.devices import select_device
from cxr.semisyn.editing.models import EditBatch, ModelEditor

INPUTS = {
    "radedit": "results/weights/radedit",
    "sdxl_vae": "results/weights/sdxl_vae",
    "biovil_t": "results/weights/biovil_t",
}
GPU = True
STEPS, GUIDANCE = 200, 7.5
"""Steps of the model, and guidance weight of a prompt (the authors' code)."""
INVERT_GUIDANCE = 3.5
"""Guidance weight of a negative prompt in the inversion (the authors' code)."""
SHARED_KEYS = ("extent", "steps", "strength", "negative")
"""Keys that configurations must share so that their sources are inverted once."""


class RadEditor(ModelEditor):
    """Adds findings with RadEdit."""

    inverts = True

    def edit_latents(self, rows: EditBatch) -> torch.Tensor:
        """See :class:`ModelEditor`."""
        steps = select_steps(self.nets.abars, self.num_steps(rows.config), 1 - self.strength(rows.config))
        editing = Editing(
            prompt=rows.prompts,
            invert_prompt=rows.inverted,
            guidance=self.guidance_weights(rows),
            invert_guidance=INVERT_GUIDANCE,
            published_bugs=False,
            extent=rows.config["extent"],
        )
        predict, prediction = self.nets.predict, self.nets.prediction
        return edit_latents(
            rows.clean, rows.mask, 1 - rows.mask, steps, prediction, predict, rows.draw, editing, rows.sources
        )


def load(options: object, setup: Setup, prompts: frozenset[str] = frozenset()) -> RadEditor:
    """Load the engine. Raises UserError for an unusable file or prompt."""
    device = select_device(setup.device, setup.asked)
    texts = dict.fromkeys(sorted(prompts | {""}), "the prompts of semisyn")
    loaded = nets.load_nets(folders.make_radedit_layout(setup.files), texts, nets.NetOptions.from_setup(setup), device)
    return RadEditor(loaded, {"steps": STEPS, "guidance": GUIDANCE} | setup.own, setup.batch)
