"""Settings of the stages that read images: organs, anomaly, anatomy, boxes."""

from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Section, Share, constraint, key
from cxr.base.vocabulary import BOX_CLASSES
from cxr.diffusion.settings import Autoencoder, autoencoder

Batched = Literal[
    "hybridgnet", "cxas", "scaled_yolov4", "ultralytics", "radedit", "diffusion", "xrv", "inception", "clip"
]
"""The engines that take images in batches."""


class Compute(Section):
    """How the engines with a large net are run. No result depends on it, so a change re-runs nothing."""

    device: Literal["auto", "cpu", "cuda"] = key(
        "auto",
        "Device of the nets. auto: a GPU if the job requested one (gpus), else the CPU. A job that requested a "
        "GPU but sees none stops. Outside a cluster, a machine without any GPU uses its CPU, with a warning.",
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
        dict, "Images per batch of single engines, {engine: images}, instead of batch.", unit="images"
    )
    autoencoder_batch: int = key(
        4,
        "Images that a diffusion model's autoencoder processes at once on a GPU; it needs more memory than the U-Net.",
        unit="images",
        ge=1,
        le=1024,
    )
    channels_last: bool = key(
        False, "Keep the weights and pictures of diffusion models in memory channel by channel of a pixel."
    )
    compile: bool = key(
        False,
        "Compile the U-Net of diffusion models with torch.compile, minutes at the start of each job; a line in the "
        "log says where this fails, and the net then runs as it is.",
    )
    cudnn: Literal["deterministic", "fastest"] = key(
        "deterministic",
        "cuDNN's algorithms in diffusion models. deterministic: the same rounding in every run; fastest: those that "
        "are fastest when it tries all, whose rounding may change from run to run.",
    )
    gpus: int = key(
        1,
        "GPUs of a training with the runner deepspeed. Any other job with a large net requests one GPU, or none if "
        "this is 0.",
        unit="GPUs",
        ge=0,
        le=8,
    )
    images_at_once: int = key(
        4, "Images per batch of SAM's encoder, whose attention takes much memory.", unit="images", ge=1, le=1024
    )
    keep_features: bool = key(
        False,
        "Whether a training keeps the outputs of frozen encoders on disk, beside its checkpoint, so that each image is "
        "encoded once and not once an epoch. It logs the room first, and ends where there is less.",
    )
    failures_in_row: int = key(
        5,
        "Number of consecutive images with the same engine error after which the job ends and is retried: "
        "something other than the images is broken. Fewer failures exclude one image each.",
        unit="images",
        ge=2,
        le=1_000_000,
    )
    failed_share: Share = key(
        0.1,
        "Fraction of a shard's images on which an engine may fail; above it the job ends. It applies once "
        "failures_in_row images have failed, or all images of a smaller shard. 1: any number may fail.",
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
        "Time in which a training that must stop finishes its update and writes a checkpoint; SLURM warns it "
        "this long before the job's time limit. A process that is still running then is killed. The paper's "
        "training writes 7.3 GB (12 bytes for each of 608.5 million trained values), which takes 73 s at 100 "
        "MB/s; an update takes 14 s on two H100. A slow disk or one small GPU needs several times as long.",
        unit="seconds",
        ge=30,
        le=1800,  # half of the shortest max_runtime
    )
    time_to_answer: int = key(
        600,
        "Time that the processes of a training wait for one that does not answer; then the job ends with a "
        "message and is retried. The default is torch's value for NCCL. It exceeds the time in which one "
        "process writes the best weights (2.4 GB of float32, at 4 MB/s or more).",
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


class Radedit(Section):
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


class Anomaly(Section):
    """The counterfactual image without lesions, and the anomaly map."""

    engine: Literal["lite", "radedit"] = key(
        "lite",
        "lite: a small network trained to remove lesions, on the CPU; radedit: the paper's diffusion editor, "
        "or any model in the layout of Stable Diffusion.",
    )
    images: Literal["all", "with_findings"] = key(
        "all",
        "Which images are edited. with_findings: only those whose report states a finding that asks for a mask of the "
        "anomaly map; the others keep the image itself as edited image, and their zones come from it.",
        source=PAPER,
    )
    radedit: Radedit = key(Radedit, "Settings of the engine radedit.")


class Cxas(Section):
    """The engine cxas."""

    threshold: Share = key(0.5, "Probability above which a pixel belongs to a structure.", source=AUTHORS)


class Anatomy(Section):
    """The 15 zone labels and the heart, on the edited image (paper)."""

    engine: Literal["lite", "cxas"] = key(
        "lite", "lite: the organ net on the edited image, zones by geometry; cxas: the paper's net of 159 structures."
    )
    cxas: Cxas = key(Cxas, "Settings of the engine cxas.")
    zone_cuts: tuple[Share, Share, Share] = key(
        (0.17, 0.42, 0.68),
        "Where the apical, upper and mid zone end, from apex (0) to base (1) of each lung.",
        unit="lung heights",
    )
    right_upper_lobe_end: tuple[Share, Share] = key(
        (0.50, 0.55), "Minor fissure: where the right upper lobe ends, (medial, lateral).", unit="lung heights"
    )
    middle_lobe_end: tuple[Share, Share] = key(
        (0.95, 0.70), "Where the middle lobe ends, (medial, lateral).", unit="lung heights"
    )
    left_upper_lobe_end: tuple[Share, Share] = key(
        (0.80, 0.62), "Where the left upper lobe with its lingula ends, (medial, lateral).", unit="lung heights"
    )
    lower_lobe_begin: tuple[Share, Share] = key(
        (0.38, 0.55), "Where both lower lobes begin behind the others, (medial, lateral).", unit="lung heights"
    )
    max_tilt: float = key(
        15.0, "Largest tilt of the chest that the cuts follow; 0 keeps them level.", unit="degrees", ge=0, le=45
    )
    min_labels: int = key(14, "Number of the 16 masks that must be non-empty, else missing_anatomy (D.1).", ge=0, le=16)
    disagreement: Share = key(
        0.05,
        "Largest distance between organs and anatomy in the lungs' outer edges and the heart's lower edge, else "
        "organ_disagreement (D.2).",
        unit="frame widths",
    )

    @constraint
    def _cuts_rise(self) -> None:
        if not 0 < self.zone_cuts[0] < self.zone_cuts[1] < self.zone_cuts[2] < 1:
            raise ValueError(f"zone_cuts is {list(self.zone_cuts)}: give three rising numbers between 0 and 1")


class LiteBoxes(Section):
    """The engine lite of the boxes."""

    region_iou: Share = key(
        0.5,
        "Overlap (IoU) above which the weaker of two boxes of different classes is dropped, so that a region has one "
        "box; 1: none. Excluded classes neither go nor make others go. Algorithm 1 does not compare classes.",
    )
    model: str = key(
        "",
        "ONNX file of another detector of this kind, such as one of semisyn_detectors "
        "(scripts/tools/detector_onnx.py); without: the embedded one.",
    )
    class_names: dict[str, str] = key(
        dict,
        "{class of the file: VinBigData name} beside the names of the seven findings; '' leaves a class out.",
    )


class Ultralytics(Section):
    """The engine ultralytics."""

    image_size: int = key(
        1024, "Side to which the frame is scaled: a multiple of the net's stride.", unit="pixels", ge=64, le=4096
    )
    class_names: dict[str, str] = key(
        dict,
        "{name in the checkpoint: VinBigData name} for classes with other names; '' leaves a class out.",
    )


class ScaledYolov4(Section):
    """The engine scaled_yolov4: five folds, joined by non-maximum suppression."""

    image_size: int = key(1024, "Side to which the frame is scaled.", source=AUTHORS, unit="pixels", ge=128, le=4096)
    border: int = key(
        32, "Grey border around the scaled frame, as in the public code.", source=AUTHORS, unit="pixels", ge=0, le=512
    )
    fold_iou: Share = key(0.65, "IoU above which the weaker of two boxes of one fold is dropped.", source=AUTHORS)
    ensemble_iou: Share = key(
        0.5, "IoU above which the weaker of two boxes of different folds is dropped.", source=AUTHORS
    )
    wrap_white: bool = key(
        False, "Turn pure white into black, as in the public code: (x * 256) overflows in eight bits."
    )
    dtype: Literal["float16", "float32"] = key(
        "float16", "Number type of the nets' convolutions on a GPU; a CPU computes in float32.", source=AUTHORS
    )


class Boxes(Section):
    """Lesion boxes with confidences."""

    engine: Literal["lite", "table", "ultralytics", "scaled_yolov4"] = key(
        "lite",
        "lite: a small detector on the CPU; table: boxes from elsewhere (boxes.table); ultralytics: any YOLO "
        "checkpoint; scaled_yolov4: the public five-fold ensemble for VinBigData.",
    )
    lite: LiteBoxes = key(LiteBoxes, "Settings of the engine lite.")
    ultralytics: Ultralytics = key(Ultralytics, "Settings of the engine ultralytics.")
    scaled_yolov4: ScaledYolov4 = key(ScaledYolov4, "Settings of the engine scaled_yolov4.")
    table: str | None = key(None, "CSV or Parquet: image_id, x1, y1, x2, y2, confidence, class_name (engine table).")
    table_pixels: Literal["frame", "original"] = key(
        "frame", "Pixel grid of the table's boxes: the frame's or the original image's (engine table)."
    )
    floor: Share = key(0.001, "Smallest confidence kept; must not exceed the smallest tau_conf in use.")
    nms_iou: Share = key(0.5, "IoU above which the weaker of two boxes of one class is dropped.")
    max_boxes: int = key(100, "Largest number of boxes kept per image.", ge=1, le=1000)
    excluded_classes: list[Literal[BOX_CLASSES]] = key(
        lambda: ["Aortic enlargement", "Other lesion", "Pneumothorax", "Cardiomegaly"],
        "Classes whose boxes are not used (the first three: paper; Cardiomegaly: ours).",
        source=PAPER,
    )

    @constraint
    def _has_its_table(self) -> None:
        if self.engine == "table" and not self.table:
            raise ValueError("engine is 'table', so boxes.table must be set")
        if self.engine != "table" and self.table:
            raise ValueError(f"table is given, but engine is {self.engine!r}: set boxes.engine to table")
