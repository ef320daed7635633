"""Settings of jobs with a large net, such as devices, batch sizes and limits."""

from typing import Annotated, Literal

from cxr.base.settings import Limits, Section, Share, key

Batched = Literal[
    "hybridgnet", "cxas", "scaled_yolov4", "ultralytics", "radedit", "diffusion", "xrv", "inception", "clip",
    "autoencoder", "sam",
]  # fmt: skip
"""Engines that process images in batches, and two parts of nets: a diffusion model's autoencoder, and SAM's encoder."""

Autoencoder = Literal["float32", "tf32", "bfloat16"]


def autoencoder() -> Autoencoder:
    """Return the setting ``autoencoder``: the data type in which a diffusion model's autoencoder computes."""
    return key(
        "float32",
        "Floating-point type of the autoencoder. tf32: float32 with TF32 products on GPUs that support them; "
        "bfloat16: half the memory, but the largest rounding error.",
    )


class ComputeSettings(Section):
    """How jobs with a large net run. A change may alter results by rounding at most, so it causes no rerun."""

    device: Literal["auto", "cpu", "cuda"] = key(
        "auto", "auto: a GPU if the job requested one (gpus), else the CPU. On a cluster, a missing GPU is an error."
    )
    batch: int = key(
        8, "Images (vlm.answers: samples) per batch; halved if memory is low.", unit="images", ge=1, le=1024
    )
    batches: dict[Batched, Annotated[int, Limits(ge=1, le=1024)]] = key(
        dict, "{engine: images per batch}, in place of `batch`; autoencoder and sam: 4 by default.", unit="images"
    )
    channels_last: bool = key(False, "Whether diffusion models use the layout channels_last (faster on some GPUs).")
    compile: bool = key(False, "Whether to compile the U-Net of diffusion models (takes minutes in each job).")
    cudnn: Literal["deterministic", "fastest"] = key(
        "deterministic", "cuDNN's algorithms in diffusion models. fastest: results may differ by rounding."
    )
    gpus: int = key(1, "GPUs of deepspeed trainings; other jobs use one. 0: no job uses any.", unit="GPUs", ge=0, le=8)
    keep_features: bool = key(False, "Whether trainings keep frozen encoders' outputs on disk, to encode images once.")
    failures_in_row: int = key(
        5, "Number of consecutive images with the same error after which a job ends.", unit="images", ge=2, le=1_000_000
    )
    failed_share: Share = key(0.1, "Fraction of a shard's images that may fail before the job ends; 1: no limit.")
    checkpoint_every: int = key(
        100, "Steps between checkpoints of a training (RadVLM's authors: 200).", unit="steps", ge=1, le=1_000_000
    )
    time_to_stop: int = key(600, "Trainings save this long before their time limit.", unit="seconds", ge=30, le=1800)
    time_to_answer: int = key(600, "Trainings fail if a process is silent this long.", unit="seconds", ge=10, le=86_400)
    max_runtime: int = key(1440, "Longest time that jobs request (partition limit).", unit="minutes", ge=60, le=100_000)
    max_memory_mb: int = key(180_000, "Most memory a job requests (`sinfo -o %m`).", unit="MB", ge=2000, le=10_000_000)
    container: str = key("", "Apptainer image, for --sdm conda apptainer (docs/how-to/containers.md); empty: none.")
