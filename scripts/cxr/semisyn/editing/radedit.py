"""Editing engine ``radedit``. It inverts the source to noise, then samples from the prompt inside the mask."""

import torch

from cxr.base.engines import Setup
from cxr.diffusion.edit import Editing, edit_latents
from cxr.diffusion.folders import make_radedit_layout
from cxr.semisyn.editing.models import EditBatch, ModelEditor, load_editor_nets

INPUTS = {
    "radedit": "results/weights/radedit",
    "sdxl_vae": "results/weights/sdxl_vae",
    "biovil_t": "results/weights/biovil_t",
}
GPU = True
STEPS, GUIDANCE = 200, 7.5
"""Number of diffusion steps, and default guidance weight of a prompt (the authors' code)."""
INVERT_GUIDANCE = 3.5
"""Guidance weight of a negative prompt in the inversion (the authors' code)."""
SHARED_KEYS = ("extent", "steps", "strength", "negative")
"""Settings in which configurations must agree for a source to be inverted only once for all of them."""


class RadEditor(ModelEditor):
    """Editor that adds findings with the method RadEdit."""

    inverts = True

    def edit_latents(self, rows: EditBatch) -> torch.Tensor:
        """See :class:`ModelEditor`."""
        editing = Editing(
            prompt=rows.prompts,
            invert_prompt=rows.inverted,
            guidance=self.guidance_weights(rows),
            invert_guidance=INVERT_GUIDANCE,
            published_bugs=False,
            extent=rows.config["extent"],
        )
        model = self.steps(rows.config), self.nets.prediction, self.nets.predict
        return edit_latents(rows.clean, rows.mask, 1 - rows.mask, *model, rows.draw, editing, rows.sources)


def load(options: object, setup: Setup, prompts: frozenset[str] = frozenset()) -> RadEditor:
    """Load the engine. Raise UserError for a faulty model, or a prompt that is too long or has an unknown word."""
    loaded = load_editor_nets(make_radedit_layout(setup.files), prompts, setup)
    return RadEditor(loaded, {"steps": STEPS, "guidance": GUIDANCE} | setup.engine_settings, setup.batch)
