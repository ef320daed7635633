"""Settings of where and how the engines with a large net run."""

from typing import Annotated, Literal

from cxr.base.settings import Limits, Section, Share, key

Batched = Literal[
    "hybridgnet", "cxas", "scaled_yolov4", "ultralytics", "radedit", "diffusion", "xrv", "inception", "clip",
    "autoencoder", "sam",
]  # fmt: skip
"""The engines that take images in batches, and parts of nets: a diffusion model's autoencoder, and SAM's encoder."""

Autoencoder = Literal["float32", "tf32", "bfloat16"]


def autoencoder() -> Autoencoder:
    """Declare the number type of a diffusion model's autoencoder."""
    return key(
        "float32",
        "Number type of the autoencoder. tf32: float32 with products in TF32 on a GPU that has it, else float32; "
        "bfloat16: half the memory, and the largest rounding.",
    )


class ComputeSettings(Section):
    """How the engines with a large net are run. No result depends on it, so a change re-runs nothing."""

    device: Literal["auto", "cpu", "cuda"] = key(
        "auto", "auto: a GPU if the job requested one (gpus), else the CPU. Outside a cluster a missing GPU only warns."
    )
    batch: int = key(8, "Images (vlm.answers: samples) per batch, halved on low memory.", unit="images", ge=1, le=1024)
    batches: dict[Batched, Annotated[int, Limits(ge=1, le=1024)]] = key(
        dict, "Images per batch of single engines, {engine: images}; autoencoder and sam: 4.", unit="images"
    )
    channels_last: bool = key(False, "Whether diffusion models keep the channels of a pixel together in memory.")
    compile: bool = key(False, "Whether to compile the U-Net of diffusion models: minutes at the start of each job.")
    cudnn: Literal["deterministic", "fastest"] = key(
        "deterministic", "cuDNN's algorithms in diffusion models; the rounding of fastest may change from run to run."
    )
    gpus: int = key(1, "GPUs of a deepspeed training; other large nets request one; 0: none.", unit="GPUs", ge=0, le=8)
    keep_features: bool = key(False, "Whether a training keeps frozen encoders' outputs on disk, to encode each once.")
    failures_in_row: int = key(5, "Images in a row with one error that end a job.", unit="images", ge=2, le=1_000_000)
    failed_share: Share = key(0.1, "Fraction of a shard's images that may fail before the job ends; 1: any number.")
    checkpoint_every: int = key(
        100, "Steps between two checkpoints of a training (RadVLM's authors: 200).", unit="updates", ge=1, le=1_000_000
    )
    time_to_stop: int = key(600, "Time from the last checkpoint to the job's limit.", unit="seconds", ge=30, le=1800)
    time_to_answer: int = key(600, "Time a training waits for a silent process.", unit="seconds", ge=10, le=86_400)
    max_runtime: int = key(1440, "Longest time a job requests (partitions' limit).", unit="minutes", ge=60, le=100_000)
    max_memory_mb: int = key(180_000, "Most memory a job requests (`sinfo -o %m`).", unit="MB", ge=2000, le=10_000_000)
    container: str = key("", "Apptainer image, with --sdm conda apptainer (docs/how-to/containers.md); empty: none.")
