"""Settings of where and how the engines with a large net run."""

from typing import Annotated, Literal

from cxr.base.settings import Limits, Section, Share, key

Batched = Literal[
    "hybridgnet", "cxas", "scaled_yolov4", "ultralytics", "radedit", "diffusion", "xrv", "inception", "clip",
    "autoencoder", "sam",
]  # fmt: skip
"""The engines that take images in batches, and parts of nets: a diffusion model's autoencoder, and SAM's encoder."""


class ComputeSettings(Section):
    """How the engines with a large net are run. No result depends on it, so a change re-runs nothing."""

    device: Literal["auto", "cpu", "cuda"] = key(
        "auto",
        "Device of the nets. auto: a GPU if the job requested one (gpus), else the CPU. A job that requested a GPU "
        "but sees none stops; outside a cluster it uses the CPU, with a warning.",
    )
    batch: int = key(
        8,
        "Images per batch, and samples that the engine transformers of vlm.answers asks together; a batch that does "
        "not fit into memory is halved, but for those samples.",
        unit="images",
        ge=1,
        le=1024,
    )
    batches: dict[Batched, Annotated[int, Limits(ge=1, le=1024)]] = key(
        dict,
        "Images per batch of single engines, {engine: images}, instead of batch. autoencoder (of diffusion models) and "
        "sam (ROSALIA's encoder), which take more memory than the nets around them, are 4 without.",
        unit="images",
    )
    channels_last: bool = key(
        False, "Keep the weights and pictures of diffusion models in memory channel by channel of a pixel."
    )
    compile: bool = key(
        False,
        "Compile the U-Net of diffusion models with torch.compile (minutes at the start of each job). If this fails, "
        "the log says so and the net runs uncompiled.",
    )
    cudnn: Literal["deterministic", "fastest"] = key(
        "deterministic",
        "cuDNN's algorithms in diffusion models. deterministic: the same rounding in every run; fastest: the fastest "
        "of all, whose rounding may change from run to run.",
    )
    gpus: int = key(
        1,
        "GPUs of a training with the runner deepspeed. Any other job with a large net requests one GPU, or none if "
        "this is 0.",
        unit="GPUs",
        ge=0,
        le=8,
    )
    keep_features: bool = key(
        False,
        "Whether a training keeps the outputs of frozen encoders on disk, beside its checkpoint, so that each image "
        "is encoded once, not once an epoch. It stops if the disk has too little space.",
    )
    failures_in_row: int = key(
        5,
        "The job ends, to be retried, when so many images in a row fail with the same error of the engine: then the "
        "images are not the cause. Fewer failures exclude one image each.",
        unit="images",
        ge=2,
        le=1_000_000,
    )
    failed_share: Share = key(
        0.1,
        "Fraction of a shard's images on which an engine may fail; above it the job ends. It applies after "
        "failures_in_row failures, or after all images of a smaller shard. 1: any number may fail.",
    )
    checkpoint_every: int = key(
        100,
        "Updates between two checkpoints of a training, RadVLM's `save_every` too (200 in its authors' code); no "
        "result depends on it.",
        unit="updates",
        ge=1,
        le=1_000_000,
    )
    time_to_stop: int = key(
        600,
        "Time that SLURM gives a training, before its job's time limit, to finish its step and write a checkpoint; a "
        "process that still runs then is killed. The paper's training needs 87 s on two H100 and a disk of 100 MB/s "
        "(7.3 GB); a slow disk or one small GPU needs several times as long.",
        unit="seconds",
        ge=30,
        le=1800,  # half of the shortest max_runtime
    )
    time_to_answer: int = key(
        600,
        "Time that the processes of a training wait for one that does not answer; then the job ends and is retried. "
        "It must exceed the time in which one process writes the best weights (2.4 GB). The default is torch's for "
        "NCCL.",
        unit="seconds",
        ge=10,
        le=86_400,
    )
    max_runtime: int = key(
        1440,
        "Longest time that a job requests, at any attempt: the limit of your partitions. A longer training "
        "resumes in its next attempt.",
        unit="minutes",
        ge=60,
        le=100_000,
    )
    max_memory_mb: int = key(
        180_000,
        "Largest memory that a job requests, at any attempt: what SLURM can allocate on your nodes (`sinfo -o %m`).",
        unit="MB",
        ge=2000,
        le=10_000_000,
    )
    container: str = key(
        "",
        "Apptainer image that holds the environments, with --sdm conda apptainer (docs/how-to/containers.md);"
        " empty: none. Changing the image counts as a change of software.",
    )
