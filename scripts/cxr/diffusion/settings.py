"""A setting that every stage with a latent diffusion model has."""

from typing import Literal

from cxr.base.settings import key

Autoencoder = Literal["float32", "tf32", "bfloat16"]


def autoencoder() -> Autoencoder:
    """Declare the number type of the autoencoder."""
    return key(
        "float32",
        "Number type of the autoencoder. tf32: float32 with products in TF32 on a GPU that has it, else float32; "
        "bfloat16: half the memory, and the largest rounding.",
    )
