"""Settings of the stage semisyn_detectors."""

from typing import Annotated, Literal

from cxr.base.settings import PAPER, Limits, Section, Share, constraint, key, refuse_equal_names
from cxr.semisyn.shared import PARTS
from cxr.workflow.settings.semisyn.names import RunName
from cxr.workflow.settings.semisyn.references import ReferenceName

UPDATES, EMBEDDED_UPDATES = 2000, 40
SEEDS, EMBEDDED_SEEDS = 3, 1
Part = Literal[tuple(PARTS)]
Pool = Literal["real", "synthetic", "shuffled", "unedited"]
Weight = Annotated[float, Limits(ge=0, le=1e6)]


class DetectorRun(Section):
    """What the detectors of one name are trained on."""

    real: list[ReferenceName] = key(list, "References of real images, of the role train.")
    real_share: Share = key(1.0, "Fraction of their patients, drawn by the seed, for learning curves.")
    synthetic: Annotated[int, Limits(ge=0)] | Part = key(
        0,
        "Synthetic images of all findings together, the first of each: a number, or fifth, half or all of the dataset.",
        unit="images",
    )
    extra: list[Literal["unedited", "shuffled"]] = key(
        list,
        "Controls beside them. unedited: the sources of synthetic images, without a box; shuffled: synthetic images "
        "with the boxes of other ones of the same finding.",
    )
    extra_size: Annotated[int, Limits(ge=1)] | Part | None = key(
        None,
        "Images of each control, counted like synthetic; null: as many as synthetic, or the largest size without.",
        unit="images",
    )
    shares: dict[Pool, tuple[Weight, Weight]] = key(
        dict,
        "{pool: [its weight in a batch at the beginning, at the end]}, linear between them; without: every image is as "
        "likely as any other.",
    )

    @constraint
    def _shares_are_of_its_pools(self) -> None:
        if self.real and not self.real_share:
            raise ValueError("real_share is 0: leave real out instead")
        pools = self.pools()
        if unknown := [name for name in self.shares if name not in pools]:
            raise ValueError(f"shares names {unknown[0]!r}, but the run has the pools {', '.join(pools)}")
        if self.shares and not all(sum(weights[end] for weights in self.shares.values()) for end in (0, 1)):
            raise ValueError("the weights of shares add up to 0 at one end: give a pool a weight there")

    def pools(self) -> list[str]:
        """Return the pools that the run has."""
        return ["real"] * bool(self.real) + ["synthetic"] * bool(self.synthetic) + [*dict.fromkeys(self.extra)]


class LiteDetector(Section):
    """The engine lite: the small anchor-free net, from random weights."""

    size: int = key(256, "Side of the net's square input, a multiple of 32.", unit="px", ge=64, le=2048, multiple_of=32)
    widths: list[Annotated[int, Limits(ge=8, le=1024)]] = key(
        lambda: [16, 32, 56, 96, 128],
        "Channels of the net at 1/2 to 1/32 of its input's size; below 8, training crashes on some processors.",
        min_length=5,
        max_length=5,
    )
    batch: int = key(8, "Images an update.", ge=1, le=1024)
    rate: float = key(2e-3, "Highest learning rate.", gt=0, le=1)
    warmup: float = key(0.15, "Fraction of the updates until the highest learning rate.", gt=0, lt=1)
    decay: float = key(0.01, "Weight decay.", ge=0, le=1)
    clip: float = key(5.0, "Largest norm of the gradient.", gt=0, le=1000)
    memory: Share = key(0.98, "Part of the running mean of the weights that an update keeps.")
    bfloat16: bool = key(True, "Convolutions in bfloat16: about twice as fast on processors that have it.")
    checkpoint_every: int = key(100, "Updates between two writes of an unfinished training.", ge=1, le=100_000)


class UltralyticsDetector(Section):
    """The engine ultralytics (AGPL, an environment of its own): YOLO and RT-DETR."""

    plan: Annotated[str, Limits(pattern=r"^(yolo|rtdetr)[A-Za-z0-9._-]*\.yaml$")] = key(
        "yolo11n.yaml", "A plan of the package, such as yolo11n.yaml, yolov8n.yaml or rtdetr-l.yaml."
    )
    checkpoint: str = key(
        "",
        "Checkpoint of a YOLO of the same plan to begin with, such as one trained on COCO; without: random weights.",
    )
    image_size: int = key(640, "Side of the net's input, a multiple of 32.", unit="px", ge=64, le=4096, multiple_of=32)
    batch: int = key(16, "Images an update.", ge=1, le=1024)


class Detectors(Section):
    """Detectors that are trained with and without synthetic images."""

    engine: Literal["lite", "ultralytics"] = key("lite", "What is trained (docs/systems/semisyn.md).")
    runs: dict[RunName, DetectorRun] = key(
        dict,
        "{run: what its detectors are trained on}. Without any: with references of the role train, real, real+SIZE for "
        "each size of the dataset, synthetic, and the controls unedited and shuffled; without, synthetic and shuffled.",
        source=PAPER,
    )
    seeds: int | None = key(
        None, f"Detectors of each run. null: {SEEDS}; {EMBEDDED_SEEDS} for the embedded cohort.", ge=1, le=100
    )
    budget: Literal["updates", "epochs"] = key(
        "updates",
        "What all runs have in common. updates: they see as many images; epochs (the paper, it seems): each image is "
        "seen as often, so that a run with more images makes more updates.",
    )
    updates: int | None = key(
        None,
        f"Updates of the weights, of the budget updates. null: {UPDATES}; {EMBEDDED_UPDATES} for the embedded cohort.",
        ge=1,
        le=10_000_000,
    )
    epochs: int = key(
        100,
        "Times that an image is shown, of the budget epochs; the engine ultralytics divides any training into at most "
        "so many steps of its schedule.",
        ge=1,
        le=100_000,
    )
    points: int = key(
        10,
        "Times in a training at which its loss is told, and at which the engine lite is scored on the references of "
        "the role val; the engine ultralytics is scored at the end alone.",
        ge=1,
        le=1000,
    )
    lite: LiteDetector = key(LiteDetector, "Settings of the engine lite.")
    ultralytics: UltralyticsDetector = key(UltralyticsDetector, "Settings of the engine ultralytics.")

    @constraint
    def _runs_can_be_told_apart(self) -> None:
        refuse_equal_names("the runs of detectors", self.runs)
        for name, run in self.runs.items():
            if not run.pools():
                raise ValueError(
                    f"runs.{name} has no images: name references in real, a number in synthetic, or a control in extra"
                )
