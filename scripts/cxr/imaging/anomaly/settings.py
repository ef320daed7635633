"""Settings of the anomaly stage and of its engines."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, Share, key
from cxr.nets.settings import Autoencoder, autoencoder


class RadeditSettings(Section):
    """The engine radedit: edit-friendly DDPM inversion inside the edit region (lungs and heart)."""

    model: str = key("", "Folder of another model in Stable Diffusion's layout, such as RoentGen; empty: RadEdit.")
    prompt: str = key("No acute cardiopulmonary process", "Prompt that describes the edited image.", source=PAPER)
    invert_prompt: str = key("", "Prompt that describes the image before the edit; empty: no prompt.", source=AUTHORS)
    steps: int = key(200, "Number of diffusion steps, including skipped ones.", source=AUTHORS, ge=2, le=1000)
    guidance: float = key(
        7.5, "Guidance weight of the prompt; a higher one changes the image more.", source=AUTHORS, ge=0, le=50
    )
    invert_guidance: float = key(3.5, "Guidance weight of invert_prompt during inversion.", source=AUTHORS, ge=0, le=50)
    skip_ratio: Share = key(
        0.3, "Fraction of the steps, noisiest first, that are skipped; a higher one edits less.", source=AUTHORS
    )
    keep_margin: int = key(0, "Width of a band around lungs and heart that may change.", unit="pixels", ge=0, le=1024)
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Floating-point type of the U-Net; float32 is slower.")
    autoencoder: Autoencoder = autoencoder()
    published_bugs: bool = key(
        False,
        "Whether to reproduce three bugs of the published code: the original's latent is pasted back one step too "
        "noisy and everywhere outside the edit region, and the last step lacks the inversion's correction.",
    )


class AnomalySettings(Section):
    """The counterfactual image without lesions, and the anomaly map."""

    engine: Literal["lite", "radedit"] = key(
        "lite",
        "Engine that removes lesions. lite: a small network on the CPU; radedit: the paper's or another diffusion "
        "model.",
    )
    images: Literal["all", "with_findings"] = key(
        "all",
        "Images to edit. all: every image; with_findings: images whose report states a finding that needs a mask "
        "from the anomaly map. The other images stay unedited, and the stage anatomy segments their originals.",
        source=PAPER,
    )
    radedit: RadeditSettings = key(RadeditSettings, "Settings of the engine radedit.")
