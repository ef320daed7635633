"""The paper's engine for edited images: a latent diffusion model edits lungs and heart to fit a healthy report.

The model is RadEdit or a model in Stable Diffusion's layout (``anomaly.radedit.model``). The procedure is edit-friendly
DDPM inversion with an edit mask and a keep mask (:mod:`cxr.diffusion.edit`). Each image has its own noise generator on
the CPU, so that results on a CPU are bit-identical in every batch.
"""

from pathlib import Path

import cv2
import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.base.seeds import stable_hash
from cxr.diffusion import folders, nets
from cxr.diffusion.edit import Editing, edit_latents
from cxr.diffusion.guidance import cell_mask
from cxr.diffusion.schedule import select_steps
from cxr.imaging.anomaly.engine import edit_region
from cxr.imaging.anomaly.settings import AnomalySettings, RadeditSettings
from cxr.nets.devices import inference, select_device

INPUTS = {
    "radedit": "results/weights/radedit",
    "sdxl_vae": "results/weights/sdxl_vae",
    "biovil_t": "results/weights/biovil_t",
}
INSTEAD = "model"
GPU = True
KEY = "anomaly.radedit"  # the engine's section of the settings, for messages


def kept_region(region: np.ndarray, margin: int) -> np.ndarray:
    """Return where the original is pasted back, bool (H, W): pixels farther than ``margin`` px from ``region``."""
    if not region.any():
        return np.ones_like(region)
    return cv2.distanceTransform((~region).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE) > margin


class RadEditor:
    """An editor that changes lungs and heart of frames so that they fit the prompt."""

    def __init__(self, loaded: nets.Nets, settings: RadeditSettings, setup: Setup):
        self.nets, self.batch = loaded, setup.batch
        self.seed, self.margin = setup.seed, settings.keep_margin
        self.steps = select_steps(loaded.abars, settings.steps, settings.skip_ratio)
        prompts, weights = (settings.prompt, settings.invert_prompt), (settings.guidance, settings.invert_guidance)
        self.how = Editing(*prompts, *weights, settings.published_bugs)

    @inference()
    def edit_batch(self, images: list[np.ndarray], organs: list[dict], image_ids: list[str]) -> list[np.ndarray]:
        """Edit frames, uint8 (512, 512); return the mean of the model's three channels, float32 grey levels 0..255.

        ``organs``: the masks of each frame, {label: bool (512, 512)}; ``image_ids``: seeds of the noise.
        """
        scaled = torch.from_numpy(np.stack(images)).float()[:, None] / 127.5 - 1
        clean = self.nets.encode(scaled.expand(-1, 3, -1, -1))
        regions = [edit_region(masks) for masks in organs]
        edit, keep = (
            torch.from_numpy(np.stack([cell_mask(region, tuple(clean.shape[-2:])) for region in group])[:, None])
            for group in (regions, [kept_region(region, self.margin) for region in regions])
        )
        edit, keep = edit.to(self.nets.device), (keep & ~edit).to(self.nets.device)
        generators = [torch.Generator().manual_seed(stable_hash(self.seed, "radedit", name)) for name in image_ids]

        def draw() -> torch.Tensor:
            noise = [torch.randn(clean.shape[1:], generator=generator) for generator in generators]
            return torch.stack(noise).to(self.nets.device)

        edited = edit_latents(clean, edit, keep, self.steps, self.nets.prediction, self.nets.predict, draw, self.how)
        grey = (self.nets.decode(edited).mean(dim=1) + 1) * 127.5
        return list(grey.cpu().numpy())


def load(options: AnomalySettings, setup: Setup) -> RadEditor:
    """Load the engine. Raises UserError if a file is missing or invalid, or a setting does not fit the model."""
    settings = options.radedit
    device = select_device(setup.device, setup.requested_gpus)
    model_folder = setup.files.get("folder")
    layout = (
        folders.read_stable_diffusion_layout(Path(model_folder), f"{KEY}.model")
        if model_folder
        else folders.make_radedit_layout(setup.files)
    )
    prompts = {settings.prompt: f"{KEY}.prompt", settings.invert_prompt: f"{KEY}.invert_prompt", "": f"{KEY}.prompt"}
    runtime = nets.NetOptions.from_settings(settings.dtype, settings.autoencoder, setup.compute)
    loaded = nets.load_nets(layout, prompts, runtime, device)
    return RadEditor(loaded, settings, setup)
