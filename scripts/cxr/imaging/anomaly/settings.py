"""Settings of the anomaly stage and of its engines."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, Share, key
from cxr.nets.settings import Autoencoder, autoencoder


class RadeditSettings(Section):
    """The engine radedit: edit-friendly DDPM inversion inside the edit region."""

    model: str = key("", "Folder of another model in Stable Diffusion's layout, such as RoentGen; empty: RadEdit.")
    prompt: str = key("No acute cardiopulmonary process", "Prompt that describes the edited image.", source=PAPER)
    invert_prompt: str = key("", "Prompt that describes the image before the edit; empty: no prompt.", source=AUTHORS)
    steps: int = key(200, "Diffusion steps of the whole schedule.", source=AUTHORS, ge=2, le=1000)
    guidance: float = key(7.5, "Weight of the prompt inside the edit region.", source=AUTHORS, ge=0, le=50)
    invert_guidance: float = key(3.5, "Weight of invert_prompt, if any, in the inversion.", source=AUTHORS, ge=0, le=50)
    skip_ratio: Share = key(0.3, "Fraction of noisiest steps to skip; higher keeps more of the image.", source=AUTHORS)
    keep_margin: int = key(0, "Width of the band around the edit region that may change.", unit="pixels", ge=0, le=1024)
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Number type of the U-Net.")
    autoencoder: Autoencoder = autoencoder()
    published_bugs: bool = key(
        False,
        "Whether to reproduce three faults of the published code: a pasted latent one step too noisy, pasting "
        "outside the whole edit region, no correction in the last step.",
    )


class AnomalySettings(Section):
    """The counterfactual image without lesions, and the anomaly map."""

    engine: Literal["lite", "radedit"] = key(
        "lite",
        "lite: a small network that removes lesions, on the CPU; radedit: the paper's or another diffusion editor.",
    )
    images: Literal["all", "with_findings"] = key(
        "all",
        "Images that are edited. all: every one; with_findings: those whose report states a finding that needs a "
        "mask from the anomaly map; others keep the original image, also for their zones.",
        source=PAPER,
    )
    radedit: RadeditSettings = key(RadeditSettings, "Settings of the engine radedit.")
