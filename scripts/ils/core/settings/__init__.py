"""Every setting of the pipeline: one pydantic model, from which config.yaml, the JSON schema and the docs are made.

Each key has a description, a unit where it has one, a range, and a source: ``paper`` (stated there), ``authors' code``
(seen in their public code or release) or ``ours`` (the paper is silent). Unknown keys are refused. Only the driver
(Snakefile) imports this package: rules pass plain values on to the scripts, so that an edit of a description here
re-runs nothing.
"""

from typing import get_args

from pydantic import BaseModel, ValidationError, model_validator

from ils.core.settings.agreement import Agreement
from ils.core.settings.base import Section, key
from ils.core.settings.images import Anatomy, Anomaly, Boxes, Compute, Organs
from ils.core.settings.inputs import Cohort, Frames, Phantom
from ils.core.settings.outputs import Ablation, Dataset, Figures, Masks, Page, Tables
from ils.core.settings.release import Release
from ils.core.settings.reports import Reports
from ils.core.settings.review import Review
from ils.core.settings.rosalia import Evaluation, Inference, Training
from ils.core.settings.thresholds import Thresholds
from ils.core.settings.weights import Weights


class Settings(Section):
    """All settings of cxr-ils."""

    seed: int = key(2026, "Seed of every random choice.", ge=0)
    cohort: Cohort = key(Cohort, "Which images and reports go in.")
    phantom: Phantom = key(Phantom, "The embedded cohort.")
    frames: Frames = key(Frames, "From files to frames.")
    reports: Reports = key(Reports, "From report text to findings.")
    organs: Organs = key(Organs, "Organ masks.")
    anomaly: Anomaly = key(Anomaly, "Counterfactual and anomaly map.")
    anatomy: Anatomy = key(Anatomy, "Zone masks.")
    boxes: Boxes = key(Boxes, "Lesion boxes.")
    compute: Compute = key(Compute, "How the engines with a large net are run.")
    weights: Weights = key(Weights, "Published weights of those engines.")
    thresholds: Thresholds = key(Thresholds, "Threshold sets.")
    masks: Masks = key(Masks, "Lesion masks.")
    dataset: Dataset = key(Dataset, "Instruction-answer pairs.")
    tables: Tables = key(Tables, "Tables.")
    ablation: Ablation = key(Ablation, "Sweep of thresholds.")
    figures: Figures = key(Figures, "Pictures.")
    page: Page = key(Page, "The results on one page.")
    training: Training = key(Training, "ROSALIA: fine-tuning.")
    inference: Inference = key(Inference, "Masks and answers of a trained model.")
    evaluation: Evaluation = key(Evaluation, "Scores of ROSALIA and of other models.")
    agreement: Agreement = key(Agreement, "Comparison with what people drew.")
    release: Release = key(Release, "A dataset version as a package.")
    review: Review = key(Review, "Experts judge the test split.")

    @model_validator(mode="after")
    def _floor_below_thresholds(self) -> "Settings":
        lowest = {name: min(each.general.conf, each.edema.conf) for name, each in self.thresholds.all_sets().items()}
        name = min(lowest, key=lowest.__getitem__)
        if self.boxes.floor > lowest[name]:
            raise ValueError(
                f"boxes.floor is {self.boxes.floor}, above tau_conf {lowest[name]} of the set {name!r}: lower the floor"
            )
        return self

    @model_validator(mode="after")
    def _runs_are_of_known_thresholds(self) -> "Settings":
        known = [*self.thresholds.all_sets(), *([RELEASE] if self.dataset.release else [])]
        for name, run in self.training.runs.items():
            for chosen in filter(None, (run.thresholds, run.test)):
                if chosen not in known:
                    raise ValueError(f"training.runs.{name} names {chosen!r}, but the sets are {', '.join(known)}")
        for name, other in self.evaluation.predictions.items():
            if other.test not in known:
                raise ValueError(
                    f"evaluation.predictions.{name} names {other.test!r}, but the sets are {', '.join(known)}"
                )
        if both := self.training.runs.keys() & self.evaluation.predictions.keys():
            raise ValueError(f"evaluation.predictions.{min(both)} has the name of a run of training.runs: rename it")
        return self

    @model_validator(mode="after")
    def _reviewed_thresholds_are_known(self) -> "Settings":
        known = self.thresholds.all_sets()
        if self.review.thresholds and self.review.thresholds not in known:
            raise ValueError(f"review.thresholds names {self.review.thresholds!r}, but the sets are {', '.join(known)}")
        return self

    @model_validator(mode="after")
    def _layout_holds_one_image_a_study(self) -> "Settings":
        if self.dataset.released_layout and self.cohort.per_study == "all":
            raise ValueError(
                "dataset.released_layout holds one image a study: set cohort.per_study to first, or take it away"
            )
        return self


RELEASE = "release"
"""What the runs of the model half call the dataset of ``dataset.release``."""


class SettingsError(ValueError):
    """A wrong setting, in one sentence that names the key, the value and the remedy."""


def read(config: dict) -> Settings:
    """Validate a configuration. Raises SettingsError with one sentence for the first fault."""
    try:
        return Settings.model_validate(config)
    except ValidationError as error:
        raise SettingsError(_sentence(error, config)) from None


def _sentence(error: ValidationError, config: dict) -> str:
    fault = error.errors()[0]
    where = [part for part in fault["loc"] if part != "[key]"]
    name = ".".join(str(part) for part in where) or "the configuration"
    if fault["type"] == "extra_forbidden":
        known = ", ".join(_keys_beside(where))
        return f"{name} is not a setting: remove it or choose one of {known}."
    if fault["input"] is None:
        return f"{name} is empty (null): give a value, or leave the key out."
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "value_error":
        return f"{name}: {message}."
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{name} is {fault['input']!r}, which is wrong: {message[0].lower() + message[1:]}{more}."


def sections(annotation: object) -> list[type[BaseModel]]:
    """Return the sections that a field's type holds, directly or inside a dict, list or union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in sections(part)]


def _keys_beside(where: list) -> list[str]:
    section: type[BaseModel] = Settings
    for part in where[:-1]:
        if field := section.model_fields.get(str(part)):
            inner = sections(field.annotation)
            section = inner[0] if inner else section
    return [field.alias or name for name, field in section.model_fields.items()]
