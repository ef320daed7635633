"""Settings of SemiSynCXR: a section for each stage, and constraints between the sections."""

from functools import cached_property
from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Expert, Limits, Section, Share, constraint, key, refuse_equal_names
from cxr.base.vocabulary import BOX_CLASSES, FINDINGS
from cxr.semisyn.editing.settings import EditingConfig, EditingSettings
from cxr.semisyn.healthy.settings import HealthySettings
from cxr.semisyn.references import ReferenceSettings
from cxr.semisyn.shared import PARTS, FindingName, ReferenceName, RunName


class PriorsSettings(Section):
    """Prior distributions of each finding's position and size."""

    source: Literal["paper", "fit"] = key(
        "paper", "Source of the priors. paper: the paper's Table 10; fit: the boxes of `reference`.", source=PAPER
    )
    reference: str = key("", "Entry of semisyn.references to whose boxes priors are fitted. Used if `source` is `fit`.")
    zones_table: str = key(
        "", "File of Chest ImaGenome's gold boxes, to fit the lung zones that prompts name; empty: the authors' zones."
    )
    min_boxes: int = key(20, "Minimum number of boxes for a fit. A finding with fewer keeps the paper's prior.", ge=3)

    @constraint
    def _a_fit_has_its_reference(self) -> None:
        if self.source == "fit" and not self.reference:
            raise ValueError("source is 'fit', but reference is empty: name an entry of semisyn.references")


class PromptsSettings(Section):
    """Phrases that describe findings, mined from the cohort's reports for a person to review."""

    least_patients: int = key(2, "Phrases in the reports of fewer patients are not used.", ge=2, le=1000)
    reference: str = key("", "Entry of semisyn.references with more phrases, such as MS-CXR; empty: only reports.")


class PlacementSettings(Section):
    """Placement of findings. Each job (one image to make) gets a healthy image, a prompt and boxes."""

    bounds: Literal["repo", "strict"] = key(
        "repo", "Whether boxes may leave the lung's box. repo: as the prior allows; strict: no (paper).", source=AUTHORS
    )
    most_per_image: int = key(
        2, "Maximum images of a finding made from an X-ray, spares included (paper: 1).", unit="images", ge=1, le=10_000
    )
    spare: Share = key(0.05, "Extra images to replace excluded ones, as a fraction of dataset.per_finding.")


DETECTOR_CLASSES = {name: label.capitalize() for name, label in FINDINGS.items() if name != "edema"} | {
    "opacity": "Lung Opacity"
}
"""{finding: its class in VinBigData}. Edema has no class there."""
EXTRACTORS = ("lite", "xrv", "inception", "clip")


class ClipSettings(Section):
    """The feature engine ``clip``, which scores how well an image matches its prompt."""

    model: str = key("", "Folder of a CLIP model in the transformers layout, such as XrayCLIP (docs/how-to/models.md).")
    sha256: str = key("", "SHA-256 that model.safetensors must have; empty: not checked.", pattern="^([0-9a-f]{64})?$")


class RealismSettings(Section):
    """Scores of how realistic edited images are. AUROC and AP use the detector of the stage ``boxes``."""

    classes: dict[str, Literal[BOX_CLASSES]] = key(
        lambda: dict(DETECTOR_CLASSES), "{finding: detector class that stands for it in AUROC and AP}.", source=PAPER
    )
    reference: str = key(
        "", "Entry of semisyn.references whose images in the cohort are the real ones; empty: no comparison."
    )
    features: list[Literal[EXTRACTORS]] = key(
        lambda: ["lite"], "Feature engines. lite, xrv, inception: distance to real images; clip: match with the prompt."
    )
    clip: ClipSettings = key(ClipSettings, "Settings of the engine `clip`.")

    @constraint
    def _features_can_be_had(self) -> None:
        if twice := [name for name in self.features if self.features.count(name) > 1]:
            raise ValueError(f"features names {twice[0]!r} twice: remove one")
        if "clip" in self.features and not self.clip.model:
            raise ValueError("features has clip, but clip.model is empty: name the folder of a CLIP model")


METRICS = (
    "auroc", "ap1070", "c2st", "kid", "fid", "kid_xrv", "fid_xrv", "kernel_lite", "frechet_lite", "clip",
)  # fmt: skip


class SelectionSettings(Section):
    """Choice of the best editing configuration for each finding, by the scores of all configurations."""

    samples: int = key(
        35, "Images per finding on which configurations are compared.", unit="jobs", source=PAPER, ge=1, le=100_000
    )
    parts: int = key(1, "Cluster jobs that share the edits of a configuration's `samples`.", ge=1, le=64)
    configs: list[str] = key(lambda: ["lite"], "Entries of editing.configs to compare, beside those of editing.grid.")
    search: Literal["sequential", "figures", "product"] = key(
        "sequential",
        "Search over editing.grid. sequential: one setting varies at a time; figures: mask blur and extent vary, as in "
        "Figures 4 and 5; product: all combinations.",
    )
    metrics: list[Literal[METRICS]] = key(
        lambda: ["auroc", "ap1070", "c2st", "kid", "kid_xrv"],
        "Metrics that rank configurations by their mean, each scaled from 0 (worst) to 1 (best configuration).",
        min_length=1,
    )


EMBEDDED_PER_FINDING, PER_FINDING = 6, 5000


class DatasetSettings(Section):
    """The dataset: edited images with their boxes, in several sizes and formats."""

    per_finding: int | None = key(
        None,
        "Number of images to make of each finding (paper: 35,000 in total). If null, as many as the largest of `sizes` "
        "needs or, if `sizes` is auto, as many as the healthy images allow (placement.most_per_image), but at most "
        f"{PER_FINDING} ({EMBEDDED_PER_FINDING} for the embedded cohort, the project's synthetic data).",
        source=PAPER,
        unit="images",
        ge=1,
        le=1_000_000,
    )
    sizes: Literal["auto"] | list[Annotated[int, Limits(gt=0)]] = key(
        "auto", "Sizes to export: rising total numbers of images; auto: a fifth, half and all.", source=PAPER
    )
    boxes: Literal["conditioning", "visible"] = key(
        "conditioning",
        "Exported boxes. conditioning: as requested; visible: tight box of the lesion mask (engine lite) or of the "
        "visible change (other engines). For cardiomegaly both are the requested box.",
        source=PAPER,
    )
    target: Literal["source", "vindr", "mimic"] = key(
        "source", "Box shape. source: unchanged; vindr, mimic: height-to-width ratio of boxes in VinDr-CXR, MS-CXR."
    )
    pixels: Literal["frame", "original"] = key(
        "frame", "Exported pixels. frame: the edited frame (512 px); original: the original image plus the edit."
    )
    withhold: bool = key(False, "If true, exports leave out what release.withhold lists (pixels, ids).")

    @constraint
    def _sizes_rise(self) -> None:
        if self.sizes != "auto" and (not self.sizes or sorted(set(self.sizes)) != self.sizes):
            raise ValueError(f"sizes is {self.sizes}: give rising numbers of images, or auto")


UPDATES, EMBEDDED_UPDATES = 2000, 40
SEEDS, EMBEDDED_SEEDS = 3, 1
Part = Literal[tuple(PARTS)]
Pool = Literal["real", "synthetic", "shuffled", "unedited"]
Weight = Annotated[float, Limits(ge=0, le=1e6)]


class DetectorRun(Section):
    """Training images of one run. The detectors of a run differ only in their seed."""

    real: list[ReferenceName] = key(list, "Entries of semisyn.references, with the role train, whose images are used.")
    real_share: Share = key(1.0, "Fraction of the patients of `real` to use, drawn by seed (for learning curves).")
    synthetic: Annotated[int, Limits(ge=0)] | Part = key(
        0, "Size of the dataset whose training images are used: a number of images, or fifth, half, all.", unit="images"
    )
    extra: list[Literal["unedited", "shuffled"]] = key(
        list, "Control images. unedited: sources without boxes; shuffled: synthetic images with boxes of other images."
    )
    shares: dict[Pool, tuple[Weight, Weight]] = key(
        dict,
        "Mix of images in batches, {real, synthetic, unedited or shuffled: [weight at the first step, at the last "
        "step]}; empty: all images are equally likely.",
    )

    @constraint
    def _shares_are_of_its_pools(self) -> None:
        if self.real and not self.real_share:
            raise ValueError("real_share is 0, so no real image is used: raise real_share, or remove real")
        pools = self.pools()
        if unknown := [name for name in self.shares if name not in pools]:
            raise ValueError(f"shares names {unknown[0]!r}, but the run only has images {', '.join(pools)}: use these")
        if self.shares and not all(sum(weights[end] for weights in self.shares.values()) for end in (0, 1)):
            raise ValueError(
                "all weights of shares are 0 at the first or at the last step: give one of them a weight above 0 there"
            )

    @property
    def uses_synthetic(self) -> bool:
        """Whether the run uses synthetic or control images, both of which need the dataset."""
        return bool(self.synthetic or self.extra)

    def pools(self) -> list[str]:
        """Return the names of the run's pools (sets of images): real, synthetic and its controls, if it has them."""
        return ["real"] * bool(self.real) + ["synthetic"] * bool(self.synthetic) + [*dict.fromkeys(self.extra)]


class LiteDetectorSettings(Section):
    """The engine ``lite``: a small anchor-free net, trained from random weights."""

    size: int = key(256, "Side of the net's square input, a multiple of 32.", unit="px", ge=64, le=2048, multiple_of=32)
    batch: int = key(8, "Images per step.", ge=1, le=1024)


class UltralyticsSettings(Section):
    """The engine ``ultralytics``: YOLO and RT-DETR. Its package is under the AGPL and has a separate environment."""

    plan: Annotated[str, Limits(pattern=r"^(yolo|rtdetr)[A-Za-z0-9._-]*\.yaml$")] = key(
        "yolo11n.yaml", "Model configuration of ultralytics, such as yolo11n.yaml or rtdetr-l.yaml."
    )
    checkpoint: str = key("", "Checkpoint of the model `plan` to start from; empty: random weights.")
    image_size: int = key(640, "Side of the net's input, a multiple of 32.", unit="px", ge=64, le=4096, multiple_of=32)
    batch: int = key(16, "Images per step.", ge=1, le=1024)


class DetectorsSettings(Section):
    """Detectors that are trained with and without synthetic images."""

    engine: Literal["lite", "ultralytics"] = key("lite", "lite: a small net on the CPU; ultralytics: YOLO or RT-DETR.")
    runs: dict[RunName, DetectorRun] = key(
        dict,
        "Training runs by name. If empty: real, real+SIZE (for each size), synthetic, unedited and shuffled, if their "
        "images exist.",
        source=PAPER,
    )
    seeds: int | None = key(
        None, f"Detectors per run; null: {SEEDS} ({EMBEDDED_SEEDS} for the synthetic embedded cohort).", ge=1, le=100
    )
    budget: Literal["updates", "epochs"] = key(
        "updates", "What is equal in all runs. updates: steps; epochs: uses of each image (probably the paper's)."
    )
    updates: int | None = key(
        None,
        f"Training steps; null: {UPDATES} ({EMBEDDED_UPDATES} for the embedded cohort, the project's synthetic data).",
        ge=1,
        le=10_000_000,
    )
    epochs: int = key(
        100, "Uses of each image if `budget` is epochs; also the epoch limit of ultralytics.", ge=1, le=100_000
    )
    lite: LiteDetectorSettings = key(LiteDetectorSettings, "Settings of the engine `lite`.")
    ultralytics: UltralyticsSettings = key(UltralyticsSettings, "Settings of the engine `ultralytics`.")

    @constraint
    def _runs_can_be_told_apart(self) -> None:
        refuse_equal_names("the runs of detectors", self.runs)
        for name, run in self.runs.items():
            if not run.pools():
                raise ValueError(
                    f"runs.{name} has no images: name references in real, a number in synthetic, or a control in extra"
                )


class DetectionSettings(Section):
    """Scores of detectors against experts' boxes."""

    predictions: dict[RunName, dict[str, list[str]]] = key(
        dict,
        "Boxes of other detectors, {run: {entry of semisyn.references: [a file per seed]}}. A file has the columns "
        "image_id, finding, confidence, x1, y1, x2, y2 (original px).",
    )
    against: str = key("real", "Run with which all other runs are compared.", source=PAPER)

    @constraint
    def _names_are_distinct(self) -> None:
        refuse_equal_names("the runs of predictions", self.predictions)


class ReadersSettings(Section):
    """The reader study: experts tell edited X-rays from real ones and name the findings."""

    experts: list[Expert] = key(
        lambda: ["A", "B", "C"], "Names of the readers, used in file names.", source=PAPER, min_length=1
    )
    images: int = key(10, "Images per finding and source (real or edited).", unit="images", source=PAPER, ge=1, le=1000)
    reference: str = key("", "Entry of semisyn.references whose images in the cohort serve as real images.")
    sheets: list[str] = key(list, "The readers' completed sheets (CSV), or folders of them.")

    @constraint
    def _readers_are_distinct(self) -> None:
        refuse_equal_names("the readers", self.experts)
        if len(set(self.experts)) < len(self.experts):
            raise ValueError(f"experts names {max(self.experts, key=self.experts.count)!r} twice: rename one")


class SemisynSettings(Section):
    """SemiSynCXR: findings edited into healthy X-rays."""

    findings: list[FindingName] = key(
        lambda: list(FINDINGS),
        "Findings to edit into images. Their order gives the class numbers of exports and detectors.",
        source=PAPER,
        min_length=1,
    )
    findings_file: str = key("", "YAML file with your own findings (docs/systems/semisyn.md).")
    healthy: HealthySettings = key(HealthySettings, "Choice of the healthy X-rays to edit.")
    priors: PriorsSettings = key(PriorsSettings, "Prior distributions of position and size.", source=PAPER)
    prompts: PromptsSettings = key(PromptsSettings, "Phrases mined from reports.", source=PAPER)
    placement: PlacementSettings = key(PlacementSettings, "Choice of an image, a prompt and boxes for each job.")
    editing: EditingSettings = key(EditingSettings, "Editing of findings into healthy images.")
    realism: RealismSettings = key(RealismSettings, "Scores of how realistic edited images are.")
    selection: SelectionSettings = key(SelectionSettings, "Choice of a configuration for each finding.")
    dataset: DatasetSettings = key(DatasetSettings, "Sizes and formats of the dataset.")
    references: dict[ReferenceName, ReferenceSettings] = key(
        dict, "Files of experts' boxes by name, to fit priors and to train and score detectors."
    )
    detectors: DetectorsSettings = key(DetectorsSettings, "Detectors trained with and without synthetic images.")
    detection: DetectionSettings = key(DetectionSettings, "Scores of detectors against experts' boxes.")
    readers: ReadersSettings = key(ReadersSettings, "The reader study with real and edited images.", source=PAPER)

    @constraint
    def _findings_are_named_once(self) -> None:
        if twice := [name for name in self.findings if self.findings.count(name) > 1]:
            raise ValueError(f"findings names {twice[0]!r} twice: remove one")

    @constraint
    def _reference_is_known(self) -> None:
        refuse_equal_names("the references", self.references)
        for stage in ("priors", "readers", "realism", "prompts"):
            section = getattr(self, stage)
            is_used = section.source == "fit" if stage == "priors" else section.reference
            if is_used and section.reference not in self.references:
                raise ValueError(
                    f"{stage}.reference is {section.reference!r}, but semisyn.references has "
                    f"{', '.join(self.references) or 'none'}: name one of them"
                )

    @constraint
    def _runs_can_be_trained(self) -> None:
        runs, number = self.detectors.runs, len(self.findings)
        for run, detector_run in runs.items():
            for name in detector_run.real:
                if name not in self.references or self.references[name].role != "train":
                    train_references = [key for key, reference in self.references.items() if reference.role == "train"]
                    raise ValueError(
                        f"detectors.runs.{run}.real names {name!r}, but the references of the role train are "
                        f"{', '.join(train_references) or 'none'}: name one of them"
                    )
            size, most = detector_run.synthetic, number * (self.dataset.per_finding or PER_FINDING)
            if size not in PARTS and (size % number or size > most):
                raise ValueError(
                    f"detectors.runs.{run}.synthetic is {size}: give a multiple of {number}, the number of findings, "
                    f"up to {most}, or one of {', '.join(PARTS)}, or raise dataset.per_finding"
                )
        if "synthetic" in self.references:
            raise ValueError("references has the entry 'synthetic', which is reserved for the dataset: rename it")
        if shared_names := sorted({*self.detection.predictions} & {*runs}):
            raise ValueError(f"detection.predictions and detectors.runs both have {shared_names[0]!r}: rename one run")
        scored = [*self.detection.predictions, *runs]
        if scored and self.detection.against not in scored:
            raise ValueError(
                f"detection.against is {self.detection.against!r}, but the runs of detection.predictions and "
                f"detectors.runs are {', '.join(scored)}: name one of them"
            )

    @constraint
    def _sizes_are_of_all_findings(self) -> None:
        if self.dataset.sizes == "auto":
            return
        number, most = len(self.findings), self.dataset.per_finding or PER_FINDING
        for size in self.dataset.sizes:
            if size % number or size > number * most:
                raise ValueError(
                    f"dataset.sizes contains {size}: give multiples of {number}, the number of findings, up to "
                    f"{number * most}, or raise dataset.per_finding"
                )

    @constraint
    def _configurations_exist(self) -> None:
        configs = self.editing.configs
        for name in self.selection.configs:
            if name not in configs:
                raise ValueError(f"selection.configs names {name!r}, but there are only {', '.join(configs)}: name one")
        for name, point in self.editing.grid.points(self.selection.search).items():
            if name in configs and configs[name].effective() != point.effective():
                raise ValueError(
                    f"editing.configs.{name} differs from the point {name} of editing.grid: rename the configuration"
                )
        if not self.compared:
            raise ValueError("selection.configs is empty and editing.grid has no pipeline: name a configuration")

    @cached_property
    def compared(self) -> dict[str, EditingConfig]:
        """Configurations that the selection compares, {name: configuration}."""
        configs = {name: self.editing.configs[name] for name in self.selection.configs}
        return configs | self.editing.grid.points(self.selection.search)
