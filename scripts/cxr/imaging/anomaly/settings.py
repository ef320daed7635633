"""Settings of the anomaly stage and of its engines."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, Share, key
from cxr.diffusion.settings import Autoencoder, autoencoder


class RadeditSettings(Section):
    """The engine radedit: edit-friendly DDPM inversion inside the edit region."""

    model: str = key(
        "", "Folder of another model in Stable Diffusion's layout (RoentGen, or your own); empty: RadEdit."
    )
    prompt: str = key("No acute cardiopulmonary process", "Prompt that describes the edited image.", source=PAPER)
    invert_prompt: str = key("", "Prompt that describes the image before the edit; empty: no prompt.", source=AUTHORS)
    steps: int = key(200, "Diffusion steps of the whole schedule.", source=AUTHORS, ge=2, le=1000)
    guidance: float = key(7.5, "Weight of the prompt inside the edit region.", source=AUTHORS, ge=0, le=50)
    invert_guidance: float = key(
        3.5, "Weight of invert_prompt, if given, while the image is inverted.", source=AUTHORS, ge=0, le=50
    )
    skip_ratio: Share = key(
        0.3,
        "Fraction of the steps, noisiest first, that are skipped; a larger one keeps more of the image.",
        source=AUTHORS,
    )
    keep_margin: int = key(
        0,
        "Width of a band around the edit region in which the latent may follow the edit; beyond it the latent"
        " is the original's.",
        unit="pixels",
        ge=0,
        le=1024,
    )
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Number type of the U-Net.")
    autoencoder: Autoencoder = autoencoder()
    published_bugs: bool = key(
        False,
        "Reproduce three faults of the published code: the pasted latent is one step too noisy, pasting covers "
        "everything outside the edit region, and the last step has no correction.",
    )


class AnomalySettings(Section):
    """The counterfactual image without lesions, and the anomaly map."""

    engine: Literal["lite", "radedit"] = key(
        "lite",
        "lite: a small network trained to remove lesions, on the CPU; radedit: the paper's diffusion editor, "
        "or any model in the layout of Stable Diffusion.",
    )
    images: Literal["all", "with_findings"] = key(
        "all",
        "Which images are edited. with_findings: only those whose report states a finding that needs a mask from the "
        "anomaly map; the others keep the original image, and their zones come from it.",
        source=PAPER,
    )
    radedit: RadeditSettings = key(RadeditSettings, "Settings of the engine radedit.")
