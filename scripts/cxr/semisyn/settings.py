"""Settings of SemiSynCXR: those of its stages, and constraints between them."""

from functools import cached_property

from cxr.base.settings import PAPER, Section, constraint, key, refuse_equal_names
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.dataset.settings import PER_FINDING, DatasetSettings
from cxr.semisyn.detection.settings import DetectionSettings
from cxr.semisyn.detectors.settings import DetectorsSettings
from cxr.semisyn.editing.settings import EditingConfig, EditingSettings
from cxr.semisyn.healthy.settings import HealthySettings
from cxr.semisyn.placement.settings import PlacementSettings
from cxr.semisyn.priors.settings import PriorsSettings
from cxr.semisyn.prompts.settings import PromptsSettings
from cxr.semisyn.readers.settings import ReadersSettings
from cxr.semisyn.realism.settings import RealismSettings
from cxr.semisyn.references import ReferenceSettings
from cxr.semisyn.selection.settings import SelectionSettings
from cxr.semisyn.shared import PARTS, FindingName, ReferenceName


class SemisynSettings(Section):
    """SemiSynCXR: findings put into healthy X-rays."""

    findings: list[FindingName] = key(
        lambda: list(FINDINGS),
        "Findings to edit into images, in the order of their classes: of the seven and of findings_file.",
        source=PAPER,
        min_length=1,
    )
    findings_file: str = key(
        "", "YAML file with your own findings: priors, zones, prompts, painter (docs/systems/semisyn.md)."
    )
    healthy: HealthySettings = key(HealthySettings, "The healthy pool.")
    priors: PriorsSettings = key(PriorsSettings, "Position and size of each finding.", source=PAPER)
    prompts: PromptsSettings = key(PromptsSettings, "Phrases mined from reports.", source=PAPER)
    placement: PlacementSettings = key(PlacementSettings, "Image, prompt and boxes of each job.")
    editing: EditingSettings = key(EditingSettings, "Findings put into healthy images.")
    realism: RealismSettings = key(RealismSettings, "Scores of edited images.")
    selection: SelectionSettings = key(SelectionSettings, "One configuration for each finding.")
    dataset: DatasetSettings = key(DatasetSettings, "Sizes and formats.")
    references: dict[ReferenceName, ReferenceSettings] = key(
        dict, "Files of experts' boxes by name, for fitting priors, training and scoring detectors."
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
            raise ValueError("references has the name 'synthetic', which the dataset's images have: rename it")
        if shared_names := sorted({*self.detection.predictions} & {*runs}):
            raise ValueError(f"detection.predictions and detectors.runs both have {shared_names[0]!r}: rename one")
        scored = [*self.detection.predictions, *runs]
        if scored and self.detection.against not in scored:
            raise ValueError(
                f"detection.against is {self.detection.against!r}, but the runs of detection.predictions and "
                f"detectors.runs are {', '.join(scored)}: name one"
            )

    @constraint
    def _sizes_are_of_all_findings(self) -> None:
        if self.dataset.sizes == "auto":
            return
        number, most = len(self.findings), self.dataset.per_finding or PER_FINDING
        for size in self.dataset.sizes:
            if size % number or size > number * most:
                raise ValueError(
                    f"dataset.sizes holds {size}: give multiples of {number}, the number of findings, up to "
                    f"{number * most}, or raise dataset.per_finding"
                )

    @constraint
    def _configurations_exist(self) -> None:
        configs = self.editing.configs
        for name in self.selection.configs:
            if name not in configs:
                raise ValueError(f"selection.configs names {name!r}, but the configurations are {', '.join(configs)}")
        for name, point in self.editing.grid.points(self.selection.search).items():
            if name in configs and configs[name].effective() != point.effective():
                raise ValueError(f"editing.configs.{name} has the name of another point of editing.grid: rename it")
        if not self.compared:
            raise ValueError("selection.configs is empty and editing.grid has no pipeline: name a configuration")

    @cached_property
    def compared(self) -> dict[str, EditingConfig]:
        """{name: configuration} of those that the selection compares."""
        configs = {name: self.editing.configs[name] for name in self.selection.configs}
        return configs | self.editing.grid.points(self.selection.search)
