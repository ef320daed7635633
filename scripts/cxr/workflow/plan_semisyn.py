"""The plan of SemiSynCXR: what its rules take from the settings besides their options, made at the parse."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.vocabulary import FINDINGS
from cxr.imaging.cohort.check import mimic_base, mimic_tables
from cxr.semisyn.configs import CHOSEN_CONFIG, DEFAULT_CONFIG, SELECTION
from cxr.semisyn.findings.catalogue import read_labels
from cxr.semisyn.references import TEST, VAL
from cxr.semisyn.sizes import PARTS
from cxr.workflow.engine_files import declared
from cxr.workflow.params_semisyn import same_as
from cxr.workflow.plan_semisyn_dataset import DatasetPlan, dataset_plan
from cxr.workflow.plan_semisyn_detectors import IMAGES, DetectorsPlan, detectors_plan
from cxr.workflow.plan_semisyn_realism import RealismPlan, realism_plan, reference_files
from cxr.workflow.plan_semisyn_references import reference_file, told_of
from cxr.workflow.settings import Settings
from cxr.workflow.settings.semisyn.configs import EditingConfig
from cxr.workflow.settings.semisyn.editing import Editing
from cxr.workflow.sheets import sheet_files

PACKAGE = "cxr.semisyn"
MOST = 8
"""Configurations that one job edits at most."""
CHOICE = "results/semisyn/selection/choice.yaml"
TESTED = (VAL, TEST)
"""Roles of references whose patients must not feed training data."""


@dataclass(frozen=True)
class SemisynPlan:
    """What the rules of SemiSynCXR take from the settings. Paths are relative to Snakemake's working directory.

    healthy: input files of the healthy pool's rule, by name; healthy_told: those of its options that depend on which
    files there are. detection, detection_told: likewise of the scores of detectors. findings_file: the user's findings,
    [] without; labels: {finding: what it is called} of those that are asked for. priors: input files of the priors'
    rule, by name; priors_formats: modules that read them. editing_files, gpus: of each engine of the editing that is
    used, its input files and its number of GPUs. engine_of: {configuration: engine}. chosen: the engines of the
    configuration ``chosen``; compared: the configurations that the selection compares, each different from the others;
    together: {engine: groups of them that one job edits}; choice: ``selection``, or empty where the settings choose.
    shards, parts: of the cohort, and of the trial jobs of every configuration but ``chosen``.
    readers_*: the reference of the readers' real images, the module that reads it, and their filled sheets. dataset,
    detectors, realism: the plans of these stages. prompts_*: the reference whose phrases are mined, and its module.
    """

    findings_file: str | list
    labels: dict[str, str]
    priors: dict[str, str | list[str]]
    priors_formats: list[str]
    healthy: dict[str, str]
    healthy_told: dict
    detection: dict[str, list[str]]
    detection_told: dict
    editing_files: dict[str, dict[str, str]]
    gpus: dict[str, int]
    engine_of: dict[str, str]
    chosen: list[str]
    compared: list[str]
    together: dict[str, list[list[str]]]
    choice: str
    shards: list[str]
    parts: list[str]
    readers_reference: list[str]
    readers_formats: list[str]
    readers_sheets: list[str]
    dataset: DatasetPlan
    detectors: DetectorsPlan
    realism: RealismPlan
    prompts_reference: list[str]
    prompts_formats: list[str]

    @property
    def named(self) -> dict[str, dict[str, str]]:
        """Answers of the readers' form that the user's findings add or call otherwise: {question: {value: label}}."""
        own_labels = {name: label for name, label in self.labels.items() if FINDINGS.get(name) != label}
        return {"finding": own_labels} if own_labels else {}

    def engines(self, config: str) -> list[str]:
        """Return the engines that make the images of a configuration; several can for ``chosen``."""
        return self.chosen if config == CHOSEN_CONFIG else [self.engine_of[config]]

    def alone(self, engine: str) -> str:
        """Return the pattern of an engine's configurations that are edited alone."""
        names = "|".join(re.escape(name) for group in self.together.get(engine, []) for name in group)
        return (f"(?!(?:{names})/)" if names else "") + r"[A-Za-z0-9][A-Za-z0-9_.-]*"

    def choice_of(self, config: str) -> list[str]:
        """Return the file that says what ``chosen`` stands for, where the stage selection decides it."""
        return [CHOICE] if config == CHOSEN_CONFIG and self.choice == SELECTION else []

    def editing_told(self, options: dict, engine: str, together: Sequence[str] = ()) -> dict | Callable[[object], dict]:
        """Return the options of an engine's edits: those of ``together``, or a function of a rule's wildcards.

        Another list of configurations, or another choice, edits no job again under a configuration that it leaves.
        """
        options = dict(options)
        engine_options = {"own": {engine: options["own"][engine]}}

        def options_for(configs: Sequence[str], choice: dict | str) -> dict:
            return (
                options
                | engine_options
                | {"choice": choice, "configs": {name: options["configs"][name] for name in configs}}
            )

        if together:
            return options_for(together, {})
        if options["choice"] == SELECTION:
            choice_options = options_for(self.compared, SELECTION)
        else:
            config_by_finding = {
                finding: options["choice"].get(finding, DEFAULT_CONFIG) for finding in options["findings"]
            }
            choice_options = options_for(sorted({*config_by_finding.values()}), config_by_finding)
        choice_options |= {"parts": 1}
        return lambda wildcards: (
            choice_options if wildcards.config == CHOSEN_CONFIG else options_for([wildcards.config], {})
        )

    def shards_of(self, config: str) -> list[str]:
        """Return the shards of a configuration: the cohort's for ``chosen``, else the parts of the trial jobs."""
        return self.shards if config == CHOSEN_CONFIG else self.parts

    def sources(self, path: str) -> Callable[[object], list[str]]:
        """Return a rule's input: the file of its shard, or for trial jobs, which are few, those of the whole cohort."""
        return lambda wildcards: self.sources_of(path, wildcards.config, wildcards.shard)

    def sources_of(self, path: str, config: str, shard: str) -> list[str]:
        """Return the files of the images of a configuration's shard; ``path`` has ``{shard}``."""
        return [path.format(shard=name) for name in ([shard] if config == CHOSEN_CONFIG else self.shards)]

    def edited(self, config: str, shard: str, ending: str) -> list[str]:
        """Return the files of a configuration's shard, one per engine: ``ending`` such as ".h5"."""
        return [f"results/semisyn/editing/{engine}/{config}/{shard}{ending}" for engine in self.engines(config)]

    def found(self, config: str, shard: str, ending: str) -> list[str]:
        """Return what another stage found on a configuration's shard, one file per engine."""
        return [f"results/semisyn/realism/{config}/{engine}/{shard}{ending}" for engine in self.engines(config)]

    def all_edited(self, config: str, ending: str) -> list[str]:
        """Return :meth:`edited` of all shards of a configuration."""
        return [path for shard in self.shards_of(config) for path in self.edited(config, shard, ending)]

    def all_found(self, config: str, ending: str) -> list[str]:
        """Return :meth:`found` of all shards of a configuration."""
        return [path for shard in self.shards_of(config) for path in self.found(config, shard, ending)]

    def all_measured(self, config: str, ending: str) -> list[str]:
        """Return the measures, or features, of all shards of a configuration."""
        return [f"results/semisyn/realism/{config}/{shard}{ending}" for shard in self.shards_of(config)]

    def features(self) -> dict[str, Callable[[object], list[str]] | list[str]]:
        """Return the inputs of a configuration's scores that are features: of its images and of the real ones."""

        def edited(engine: str) -> Callable[[object], list[str]]:
            return lambda wildcards: self.all_measured(wildcards.config, f".{engine}.features.h5")

        return {f"edited_{name}": edited(name) for name in self.realism.metrics} | self.realism.real_features()


def make_semisyn(settings: Settings, options: dict[str, dict], shards: list[str]) -> SemisynPlan:
    """Return the plan; ``options``: those of the stages.

    Raises UserError for a missing file, or a finding that nothing describes.
    """
    findings_file, names = _findings(settings)
    priors, formats = _priors(settings, shards)
    references = _references(settings)
    labels, files = _labels(settings)
    files |= _metadata(settings) | _classifier(settings)
    files |= {f"reference_{name}": reference["path"] for name, reference in references.items()}
    editing, dataset = _editing(settings), dataset_plan(settings, options, names)
    edited = [f"results/semisyn/editing/{engine}/chosen/{shard}.h5" for engine in editing["chosen"] for shard in shards]
    detectors = detectors_plan(settings, options["semisyn_detectors"], dataset.sizes, shards, edited)
    detection, detection_told = _detection(settings, detectors)
    phrases, phrases_formats = reference_files(settings, settings.semisyn.prompts.reference)
    return SemisynPlan(
        findings_file=findings_file,
        labels=names,
        priors=priors,
        priors_formats=formats,
        healthy=files,
        healthy_told={"labels": labels, "references": references},
        detection=detection,
        detection_told=detection_told,
        **editing,
        shards=shards,
        parts=[f"{part:02d}" for part in range(settings.semisyn.selection.parts)],
        **_readers(settings),
        dataset=dataset,
        detectors=detectors,
        realism=realism_plan(settings, shards),
        prompts_reference=phrases,
        prompts_formats=phrases_formats,
    )


def _detection(settings: Settings, detectors: DetectorsPlan) -> tuple[dict[str, list[str]], dict]:
    """Return the files of the scores of detectors, and the options that tell which file is what.

    Raises UserError for predictions of a reference that is not there.
    """
    system = settings.semisyn
    runs, files, synthetic = [], [], dict(system.detection.synthetic)
    for run, paths_by_reference in system.detection.predictions.items():
        for name, paths in paths_by_reference.items():
            key = f"semisyn.detection.predictions.{run}.{name}"
            if name not in system.references:
                reference_names = ", ".join(system.references) or "none"
                raise UserError(f"{key} is of no reference: semisyn.references has {reference_names}")
            runs += [[run, number, name] for number in range(len(paths))]
            files += [str(existing_file(key, path)) for path in paths]
    if detectors.score_own:
        for *run_key, path in detectors.predictions():
            runs.append(run_key)
            files.append(path)
        synthetic = {run: run_options["synthetic"] for run, run_options in detectors.runs.items()} | synthetic
    used = {
        name: reference
        for name, reference in system.references.items()
        if any(name == reference_name for *_, reference_name in runs)
    }
    tables = [str(existing_file(f"semisyn.references.{n}.patients", o.patients)) for n, o in used.items() if o.patients]
    tables += [
        f"results/semisyn/references/{name}/images.parquet" for name, reference in used.items() if reference.images
    ]
    paths = [reference_file(settings, name) for name in used]
    fitted = system.priors.reference if system.priors.source == "fit" else ""
    images = [IMAGES] if any(size in PARTS for size in synthetic.values()) else []
    return {"predictions": files, "patients": tables, "references": paths, "images": images}, {
        "runs": runs,
        "references": [told_of(name, reference) for name, reference in used.items()],
        "synthetic": synthetic,
        "prior_seen": [name for name in used if name == fitted],
    }


def _findings(settings: Settings) -> tuple[str | list, dict[str, str]]:
    """Return the user's file of findings, [] without one, and {finding: label} of those that are asked for."""
    system = settings.semisyn
    path = str(existing_file("semisyn.findings_file", system.findings_file)) if system.findings_file else ""
    label_by_finding = read_labels(path) if path else FINDINGS
    names_by_key = {"findings": system.findings, "placement.unsided": system.placement.unsided}
    names_by_key |= {
        f"references.{name}.classes": set(reference.classes.values()) for name, reference in system.references.items()
    }
    for key, names in names_by_key.items():
        if unknown := [name for name in names if name not in label_by_finding]:
            raise UserError(
                f"semisyn.{key} names {unknown[0]!r}, but the findings are {', '.join(label_by_finding)}: "
                "correct it, or describe it in semisyn.findings_file"
            )
    return path or [], {name: label_by_finding[name] for name in system.findings}


def _priors(settings: Settings, shards: list[str]) -> tuple[dict[str, str | list[str]], list[str]]:
    """Return the files that the priors are made from, and the modules that read them."""
    section, files, formats = settings.semisyn.priors, {"findings_file": _findings(settings)[0]}, []
    has_own_images = False
    if section.source == "fit":
        reference = settings.semisyn.references[section.reference]
        files["boxes"], has_own_images = reference_file(settings, section.reference), bool(reference.images)
        formats.append(f"annotations.{reference.format}")
    if has_own_images:
        folder = f"results/semisyn/references/{section.reference}"
        names = {"own_images": "images.parquet", "own_frames": "frames.h5", "own_organs": "organs.h5"}
        files |= {name: f"{folder}/{file}" for name, file in names.items()}
    if section.zones == "fit":
        files["zone_boxes"] = str(existing_file("semisyn.priors.zones_table", section.zones_table))
        formats.append("annotations.chest_imagenome")
    if section.zones == "fit" or (formats and not has_own_images):
        files["images"] = "results/cohort/images.parquet"
        files |= {stage: [f"results/{stage}/{shard}.h5" for shard in shards] for stage in ("frames", "organs")}
    return files, formats


def _editing(settings: Settings) -> dict:
    system, section = settings.semisyn, settings.semisyn.editing
    compared = system.compared
    alike = same_as(compared)
    different = [name for name in compared if name not in alike]
    engine_of = {name: config.engine for name, config in (section.configs | compared).items()}
    choice = SELECTION if section.choice == SELECTION else ""
    names = different if choice else [section.choice.get(finding, DEFAULT_CONFIG) for finding in system.findings]
    chosen_engines = sorted({engine_of[name] for name in names})
    used = sorted({*chosen_engines, *(engine_of[name] for name in different)})
    gpu = min(1, settings.compute.gpus)
    return {
        "editing_files": {engine: _engine_files(engine, section) for engine in used},
        "gpus": {engine: gpu if declared(f"{PACKAGE}.editing", engine, "GPU", False) else 0 for engine in used},
        "engine_of": engine_of,
        "chosen": chosen_engines,
        "compared": different,
        "together": {engine: _together(engine, {name: compared[name] for name in different}) for engine in used},
        "choice": choice,
    }


def _together(engine: str, configs: Mapping[str, EditingConfig]) -> list[list[str]]:
    """Return the groups of an engine's configurations whose common work is done once, at most :data:`MOST` in each."""
    keys, groups = declared(f"{PACKAGE}.editing", engine, "SHARES", ()), {}
    for name, config in configs.items():
        if config.engine == engine and keys:
            values = config.as_dict()
            groups.setdefault(tuple(values[key] for key in keys), []).append(name)
    parts = (group[at : at + MOST] for group in groups.values() for at in range(0, len(group), MOST))
    return [part for part in parts if len(part) > 1]


def _readers(settings: Settings) -> dict[str, list[str]]:
    """Return the files of the readers. Raises UserError for missing ones."""
    section = settings.semisyn.readers
    files, formats = reference_files(settings, section.reference)
    sheets = sheet_files("semisyn.readers.sheets", section.sheets)
    return {"readers_reference": files, "readers_formats": formats, "readers_sheets": sheets}


def _engine_files(engine: str, section: Editing) -> dict[str, str]:
    """Return the input files of an engine of the editing. Raises UserError for a model folder that is missing."""
    package = f"{PACKAGE}.editing"
    if key := declared(package, engine, "INSTEAD", None):
        return {
            "folder": str(existing_folder(f"semisyn.editing.{engine}.{key}", getattr(getattr(section, engine), key)))
        }
    return declared(package, engine, "INPUTS", {})


def _labels(settings: Settings) -> tuple[str, dict[str, str]]:
    """Return the source of the labels, and its files."""
    section = settings.semisyn.healthy
    table = existing_file("semisyn.healthy.chexpert", section.chexpert) if section.chexpert else _of_tables(settings)
    if section.labels == "chexpert" and table is None:
        raise UserError(
            "semisyn.healthy.labels is 'chexpert', but there is no table: name one in semisyn.healthy.chexpert"
        )
    if table is not None and section.labels != "reports":
        return "chexpert", {"chexpert": str(table)}
    stem = "results/reports/{shard}"
    return "reports", {"reports": f"{stem}.jsonl", "reports_excluded": f"{stem}.excluded.parquet"}


def _of_tables(settings: Settings) -> Path | None:
    """Return MIMIC-CXR-JPG's table of CheXpert labels, where it lies beside the other tables."""
    if settings.cohort.source != "mimic":
        return None
    folders = [Path(settings.cohort.tables)] if settings.cohort.tables else []
    folders.append(mimic_base(settings.cohort.root))
    paths = [path for folder in folders for ending in ("csv", "csv.gz") for path in folder.glob(f"*-chexpert.{ending}")]
    return min(paths, default=None)


def _metadata(settings: Settings) -> dict[str, str]:
    if settings.cohort.source != "mimic":
        return {}
    path = mimic_tables(settings.cohort.root, settings.cohort.tables).get("metadata")
    return {"metadata": str(path)} if path else {}


def _classifier(settings: Settings) -> dict[str, str]:
    """Return the files of the classifier: other rules' results, and a user's own."""
    section = settings.semisyn.healthy
    package, name = f"{PACKAGE}.healthy", section.classifier
    user_files = {
        key: str(existing_file(f"semisyn.healthy.{name}.{key}", getattr(getattr(section, name), key)))
        for key in declared(package, name, "FILES", ())
    }
    return declared(package, name, "INPUTS", {}) | user_files


def _references(settings: Settings) -> dict[str, dict[str, str]]:
    """Return {name: format, path, image_id} of the references that are tested on or that priors are fitted on."""
    system = settings.semisyn
    fitted = system.priors.reference if system.priors.source == "fit" else ""
    return {
        name: {"format": reference.format, "path": reference_file(settings, name), "image_id": reference.image_id}
        for name, reference in system.references.items()
        if reference.role in TESTED or name == fitted
    }
