"""All settings of the pipeline and their validation. config.yaml and docs/reference/settings.md are made from them.

Each key has a description, a range, a unit if needed, and the source of its default. The source is ``paper``,
``authors' code`` (their published code or data) or ``ours`` (the paper does not state a value). Unknown keys are
refused. Only the Snakefile and its rules import this package, because rules pass plain values to the jobs.
"""

import copy
from collections.abc import Iterable
from datetime import date
from functools import cache, reduce
from pathlib import Path

from pydantic import ValidationError

from cxr.base.engines import installed_engines, with_installed_engines
from cxr.base.settings import Replicates, Section, constraint, key, redefine, refuse_equal_names
from cxr.ils.dataset.settings import DatasetSettings
from cxr.ils.evaluation.settings import EvaluationSettings
from cxr.ils.inference.settings import InferenceSettings
from cxr.ils.masks.settings import ThresholdsSettings
from cxr.ils.paraphrase.settings import ParaphraseSettings
from cxr.ils.training.settings import TrainingSettings
from cxr.imaging.anatomy.settings import AnatomySettings
from cxr.imaging.anomaly.settings import AnomalySettings
from cxr.imaging.boxes.settings import BoxesSettings
from cxr.imaging.cohort.settings import CohortSettings
from cxr.imaging.frames.settings import FramesSettings
from cxr.imaging.organs.settings import OrgansSettings
from cxr.imaging.phantom.settings import PhantomSettings
from cxr.imaging.weights.settings import WeightsSettings
from cxr.language.reports.settings import ReportsSettings
from cxr.llm.settings import LlmSettings
from cxr.medground.settings import MedgroundSettings
from cxr.nets.microbatch import fit_micro_batch
from cxr.nets.settings import ComputeSettings
from cxr.radvlm.settings import Radvlm
from cxr.reporting.agreement.settings import AgreementSettings
from cxr.reporting.release.settings import ReleaseSettings
from cxr.reporting.review.settings import ReviewSettings
from cxr.reporting.settings import FiguresSettings, PageSettings, PrivacySettings
from cxr.semisyn.settings import SemisynSettings
from cxr.vlm.settings import Vlm
from cxr.workflow.settings.changed_keys import MIMIC_ILS, describe_changed_keys
from cxr.workflow.settings.faults import place_of, sentence, switch_sentence, switches
from cxr.workflow.settings.validation import Twice, at, over, parse_section, written

__all__ = ["MIMIC_ILS", "Settings", "SettingsError", "parse_section", "read", "with_defaults"]


class Settings(Section):
    """All settings of cxr-ils."""

    seed: int = key(2026, "Seed of all random choices.", ge=0)
    replicates: Replicates = key(
        1000,
        "Number of bootstrap samples of patients for each confidence interval: at least 100, or 0 for no intervals.",
    )
    cohort: CohortSettings = key(CohortSettings, "Input images and reports.")
    phantom: PhantomSettings = key(PhantomSettings, "Synthetic cohort that comes with the project.")
    privacy: PrivacySettings = key(PrivacySettings, "Removal of personal data from texts and images.")
    frames: FramesSettings = key(FramesSettings, "Conversion of image files to 512 × 512 images (frames).")
    reports: ReportsSettings = key(ReportsSettings, "Extraction of findings from reports.")
    organs: OrgansSettings = key(OrgansSettings, "Organ masks.")
    anomaly: AnomalySettings = key(AnomalySettings, "Images edited to look healthy, and anomaly maps.")
    anatomy: AnatomySettings = key(AnatomySettings, "Masks of lung zones.")
    boxes: BoxesSettings = key(BoxesSettings, "Lesion boxes.")
    compute: ComputeSettings = key(ComputeSettings, "Devices and limits of engines with a large neural net.")
    llm: LlmSettings = key(LlmSettings, "Access to language models.")
    weights: WeightsSettings = key(WeightsSettings, "Published weights of large neural nets.")
    thresholds: ThresholdsSettings = key(ThresholdsSettings, "Threshold sets for making lesion masks.")
    dataset: DatasetSettings = key(DatasetSettings, "Masks and instruction-answer pairs.")
    figures: FiguresSettings = key(FiguresSettings, "Figures.")
    page: PageSettings = key(PageSettings, "Page of results, results/index.html.")
    paraphrase: ParaphraseSettings = key(ParaphraseSettings, "Paraphrases of the instructions.")
    training: TrainingSettings = key(TrainingSettings, "Fine-tuning of ROSALIA.")
    inference: InferenceSettings = key(InferenceSettings, "Masks and answers of a trained model.")
    evaluation: EvaluationSettings = key(EvaluationSettings, "Scores of ROSALIA and of other models.")
    semisyn: SemisynSettings = key(SemisynSettings, "SemiSynCXR: findings edited into healthy X-rays.")
    medground: MedgroundSettings = key(MedgroundSettings, "MedGround: referring queries about masks.")
    radvlm: Radvlm = key(Radvlm, "RadVLM: an instruction mix from many datasets, and an assistant tuned on it.")
    vlm: Vlm = key(Vlm, "Vision-language models of every system.")
    agreement: AgreementSettings = key(AgreementSettings, "Comparison with human annotations.")
    release: ReleaseSettings = key(ReleaseSettings, "Packaging of a dataset version.")
    review: ReviewSettings = key(ReviewSettings, "Review of the test split by experts.")

    @constraint
    def _floor_below_thresholds(self) -> None:
        lowest = {
            name: min(threshold_set.general.conf, threshold_set.edema.conf)
            for name, threshold_set in self.thresholds.all_sets().items()
        }
        name = min(lowest, key=lowest.__getitem__)
        if self.boxes.floor > lowest[name]:
            raise ValueError(
                f"boxes.floor is {self.boxes.floor}, above tau_conf {lowest[name]} of the threshold set {name!r}: "
                "lower the floor"
            )

    @constraint
    def _answers_fit_into_the_context(self) -> None:
        medground, radvlm = self.medground, self.radvlm
        engines = {
            "reports.llm.structuring": [self.reports.engine],
            "reports.llm.mapping": [self.reports.engine],
            "paraphrase.llm": [self.paraphrase.engine],
            "medground.llm": [medground.queries.engine, medground.verification.judge],
            "radvlm.llm": [radvlm.filtered.engine, radvlm.conversations.engine, radvlm.evaluation.judge],
        }
        for name in (name for name, values in engines.items() if not {"vllm", "both"}.isdisjoint(values)):
            tokens, context = reduce(getattr, f"{name}.max_tokens".split("."), self), self.llm.context
            if tokens >= context:
                raise ValueError(
                    f"{name}.max_tokens is {tokens}, but llm.context, the limit for prompt and answer, is {context}: "
                    "lower max_tokens"
                )

    @constraint
    def _threshold_sets_are_known(self) -> None:
        built = [*self.thresholds.all_sets()]
        readable = [*built, *([MIMIC_ILS] if self.dataset.mimic_ils else [])]
        runs, mixes = self.training.runs.items(), self.radvlm.instructions.mixes.items()
        uses = [(f"training.runs.{name}", value) for name, run in runs for value in (run.thresholds, run.test) if value]
        uses += [(f"evaluation.predictions.{name}", part.test) for name, part in self.evaluation.predictions.items()]
        uses += [(f"radvlm.instructions.mixes.{name}", mix.thresholds) for name, mix in mixes if mix.thresholds]
        reviewed = [("review.thresholds", self.review.thresholds)] if self.review.thresholds else []
        for set_names, keys in ((readable, uses), (built, reviewed)):
            for key_name, value in keys:
                if value not in set_names:
                    raise ValueError(
                        f"{key_name} names {value!r}, but the threshold sets are {', '.join(set_names)}: choose one"
                    )

    @constraint
    def _runs_have_different_names(self) -> None:
        if shared_names := self.training.named_runs().keys() & self.evaluation.predictions.keys():
            raise ValueError(
                f"evaluation.predictions.{min(shared_names)} has the name of a run of training.runs: rename one of them"
            )
        refuse_equal_names(
            "training.runs and evaluation.predictions", [*self.training.named_runs(), *self.evaluation.predictions]
        )

    @constraint
    def _lisa_is_asked_for_its_text(self) -> None:
        """Refuse ``inference.text: false`` for LISA. With false, masks are read from a [SEG] at the start of an answer.
        ROSALIA writes [SEG] there, but LISA does not."""
        for name, run in self.training.runs.items():
            if run.weights == "lisa" and not run.trained and not self.inference.text:
                raise ValueError(
                    f"inference.text is false, but training.runs.{name} asks LISA, whose answers do not begin with "
                    "[SEG], so that only their text tells where its masks are: set inference.text to true"
                )

    @constraint
    def _gpus_can_be_had(self) -> None:
        if self.compute.device == "cuda" and not self.compute.gpus:
            raise ValueError(
                "compute.device is 'cuda', but compute.gpus is 0, so no job requests a GPU: raise gpus, or set device "
                "to auto or cpu"
            )
        recipe, gpus = self.training.rosalia, self.compute.gpus
        if self.training.engine != "rosalia" or recipe.runner != "deepspeed" or not gpus:
            return
        halves = recipe.balance == "exact"
        if not fit_micro_batch(recipe.batch, recipe.micro_batch, gpus, halves):
            can = [n for n in range(1, gpus) if fit_micro_batch(recipe.batch, recipe.micro_batch, n, halves)]
            raise ValueError(
                f"compute.gpus is {gpus}, which cannot share training.rosalia.batch {recipe.batch} evenly"
                f"{', each with as many positives as negatives' if halves else ''}: set gpus to one of "
                f"{', '.join(map(str, can))}, or batch to a multiple of {gpus * (1 + halves)}"
            )

    @constraint
    def _text_of_openi_stays(self) -> None:
        if self.cohort.source == "openi" and "report_text" not in self.release.kinds():
            raise ValueError(
                "release.withhold lacks report_text, but cohort.source is openi, whose licence (CC BY-NC-ND) does not "
                "allow sharing derivatives of its text: add report_text to release.withhold"
            )

    @constraint
    def _layout_holds_one_image_a_study(self) -> None:
        if self.dataset.mimic_ils_layout and self.frames.per_study == "all":
            raise ValueError(
                "dataset.mimic_ils_layout needs one image per study, but frames.per_study is 'all': set that "
                "to first, or dataset.mimic_ils_layout to false"
            )


@cache
def settings_class() -> type[Settings]:
    """Return the class of all settings, in which each stage also offers the engines of installed packages."""
    sections = {
        stage: with_installed_engines(kind, stage)
        for stage, (kind, _) in Settings.declared().items()
        if installed_engines(stage) and "engine" in kind.declared()
    }
    fields = {stage: redefine(Settings, stage, kind) for stage, kind in sections.items()}
    return type("Settings", (Settings,), fields | {"__annotations__": sections}) if fields else Settings


def with_defaults(config: dict) -> dict:
    """Return all settings as nested dicts. Values of ``config`` replace the defaults key by key."""
    return over(Settings().as_dict(), config)


class SettingsError(ValueError):
    """A wrong setting. The message is one sentence that names the key, the value and the remedy."""


def read(config: dict, files: Iterable[str | Path] = ()) -> Settings:
    """Return the validated settings. Raises SettingsError with one sentence for the first fault.

    ``files``: the settings files from which ``config`` was read. If a setting must be a text but YAML read a number,
    date or boolean (``date: 2026-01-01``), its text is taken from the file. All renamed settings are reported at once.
    """
    if sentences := describe_changed_keys(config):
        raise SettingsError(" ".join(sentences))
    try:
        texts = written(files)
    except Twice as error:
        raise SettingsError(f"{error}.") from None
    try:
        settings = _validated(config, texts)
    except ValidationError as error:
        raise SettingsError(sentence(error, settings_class(), settings_class()())) from None
    for where, value in switches(config, settings.as_dict()):
        raise SettingsError(switch_sentence(where, value))
    return settings


def _validated(config: dict, texts: dict) -> Settings:
    try:
        return parse_section(settings_class(), config)
    except ValidationError as error:
        meant = [place_of(fault) for fault in error.errors() if _is_text_of(fault)]
        if not meant:
            raise
    config = copy.deepcopy(config)
    for *outer, last in meant:
        section = reduce(lambda part, name: part[name], outer, config)
        section[last] = at(texts, (*outer, last)) or str(section[last])
    return parse_section(settings_class(), config)


def _is_text_of(fault: dict) -> bool:
    scalar = isinstance(fault["input"], int | float | date)
    return fault["type"] in ("string_type", "literal_error") and scalar and "[key]" not in fault["loc"]
