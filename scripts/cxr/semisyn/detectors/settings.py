"""Settings of the stage semisyn_detectors."""

from typing import Annotated, Literal

from cxr.base.settings import PAPER, Limits, Section, Share, constraint, key, refuse_equal_names
from cxr.semisyn.shared import PARTS, ReferenceName, RunName

UPDATES, EMBEDDED_UPDATES = 2000, 40
SEEDS, EMBEDDED_SEEDS = 3, 1
Part = Literal[tuple(PARTS)]
Pool = Literal["real", "synthetic", "shuffled", "unedited"]
Weight = Annotated[float, Limits(ge=0, le=1e6)]


class DetectorRun(Section):
    """Training images of the detectors of one run."""

    real: list[ReferenceName] = key(list, "References with the role train whose images are used.")
    real_share: Share = key(1.0, "Fraction of the references' patients, drawn by the seed, for learning curves.")
    synthetic: Annotated[int, Limits(ge=0)] | Part = key(
        0, "Number of synthetic images of all findings, or fifth, half or all of the dataset.", unit="images"
    )
    extra: list[Literal["unedited", "shuffled"]] = key(
        list,
        "Controls. unedited: healthy sources of synthetic images, without boxes; shuffled: synthetic images with "
        "the boxes of others of the same finding.",
    )
    shares: dict[Pool, tuple[Weight, Weight]] = key(
        dict,
        "{pool: [weight in a batch at the first step, at the last step]}, interpolated linearly; empty: all images are "
        "equally likely.",
    )

    @constraint
    def _shares_are_of_its_pools(self) -> None:
        if self.real and not self.real_share:
            raise ValueError("real_share is 0: remove real instead")
        pools = self.pools()
        if unknown := [name for name in self.shares if name not in pools]:
            raise ValueError(f"shares names {unknown[0]!r}, but the run has the pools {', '.join(pools)}")
        if self.shares and not all(sum(weights[end] for weights in self.shares.values()) for end in (0, 1)):
            raise ValueError("the weights of shares add up to 0 at one end: give a pool a weight there")

    @property
    def uses_synthetic(self) -> bool:
        """Whether it has synthetic images or their sources."""
        return bool(self.synthetic or self.extra)

    def pools(self) -> list[str]:
        """Return the pools that the run has."""
        return ["real"] * bool(self.real) + ["synthetic"] * bool(self.synthetic) + [*dict.fromkeys(self.extra)]


class LiteSettings(Section):
    """The engine lite: a small anchor-free net, trained from random weights."""

    size: int = key(256, "Side of the net's square input, a multiple of 32.", unit="px", ge=64, le=2048, multiple_of=32)
    batch: int = key(8, "Images per step.", ge=1, le=1024)


class UltralyticsSettings(Section):
    """The engine ultralytics (AGPL, an environment of its own): YOLO and RT-DETR."""

    plan: Annotated[str, Limits(pattern=r"^(yolo|rtdetr)[A-Za-z0-9._-]*\.yaml$")] = key(
        "yolo11n.yaml", "Model configuration of the package, such as yolo11n.yaml or rtdetr-l.yaml."
    )
    checkpoint: str = key("", "Initial checkpoint of the same plan; empty: random weights.")
    image_size: int = key(640, "Side of the net's input, a multiple of 32.", unit="px", ge=64, le=4096, multiple_of=32)
    batch: int = key(16, "Images per step.", ge=1, le=1024)


class DetectorsSettings(Section):
    """Detectors that are trained with and without synthetic images."""

    engine: Literal["lite", "ultralytics"] = key(
        "lite", "lite: a small net on the CPU; ultralytics: YOLO or RT-DETR (AGPL)."
    )
    runs: dict[RunName, DetectorRun] = key(
        dict,
        "Runs by name. Empty: with references of the role train real, real+SIZE for each size of the dataset, "
        "synthetic, unedited and shuffled; else synthetic and shuffled.",
        source=PAPER,
    )
    seeds: int | None = key(
        None, f"Detectors of each run; null: {SEEDS}, or {EMBEDDED_SEEDS} for the embedded cohort.", ge=1, le=100
    )
    budget: Literal["updates", "epochs"] = key(
        "updates",
        "What is equal in all runs. updates: the number of steps; epochs: the uses of each image (probably the "
        "paper's), so that a run with more images makes more steps.",
    )
    updates: int | None = key(
        None,
        f"Steps of a training (budget updates); null: {UPDATES}, or {EMBEDDED_UPDATES} for the embedded cohort.",
        ge=1,
        le=10_000_000,
    )
    epochs: int = key(
        100,
        "Uses of each image (budget epochs), and maximum number of epochs in the schedule of ultralytics.",
        ge=1,
        le=100_000,
    )
    lite: LiteSettings = key(LiteSettings, "Settings of the engine lite.")
    ultralytics: UltralyticsSettings = key(UltralyticsSettings, "Settings of the engine ultralytics.")

    @constraint
    def _runs_can_be_told_apart(self) -> None:
        refuse_equal_names("the runs of detectors", self.runs)
        for name, run in self.runs.items():
            if not run.pools():
                raise ValueError(
                    f"runs.{name} has no images: name references in real, a number in synthetic, or a control in extra"
                )
