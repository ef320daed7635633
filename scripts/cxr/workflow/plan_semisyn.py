"""SemiSynCXR's part of the plan: the options of its stages, and their input files, engines and runs."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxr.annotations.formats import FOLDERS
from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.settings import Section
from cxr.base.vocabulary import FINDINGS, SPLITS
from cxr.imaging.cohort.check import mimic_base, mimic_tables
from cxr.semisyn.dataset.settings import EMBEDDED_PER_FINDING, PER_FINDING
from cxr.semisyn.detectors.settings import EMBEDDED_SEEDS, EMBEDDED_UPDATES, SEEDS, UPDATES, DetectorRun
from cxr.semisyn.editing.configs import EditingConfig
from cxr.semisyn.findings.catalogue import read_labels
from cxr.semisyn.priors.settings import PriorsSettings
from cxr.semisyn.references import TEST, TRAIN, VAL, ReferenceSettings
from cxr.semisyn.settings import SemisynSettings
from cxr.semisyn.shared import CHOSEN_CONFIG, DEFAULT_CONFIG, PARTS, SELECTION, images_per_finding
from cxr.workflow.engine_files import engine_folder_or_inputs, num_gpus, read_declaration, users_files
from cxr.workflow.plan_imaging import decoding_options
from cxr.workflow.plan_reporting import find_sheets
from cxr.workflow.settings import Settings

PACKAGE = "cxr.semisyn"
COHORT = "results/cohort/images.parquet"
IMAGES = "results/semisyn/dataset/images.parquet"
MAX_CONFIGS = 8
"""Maximum number of configurations that one job edits."""
BOX_FIT_KEYS = ("min_boxes", "sizes", "reference")
"""Keys of the section ``priors`` that only a fit of boxes depends on."""
ZONE_FIT_KEYS = ("zones_image_id",)
"""Keys that only a fit of zones depends on."""
EDITING_ENGINES = ("radedit", "diffusion")
"""Engines of the editing that have a section of their name."""
DETECTOR_METRICS = {"auroc", "ap1070"}
"""Metrics that the detector gives, without real images and features."""
TRAINING_MEGABYTES = 4000
"""Memory of a detector's training without its images."""


def semisyn_options(system: SemisynSettings, plain: dict) -> dict[str, dict]:
    """Return {stage: options} of SemiSynCXR as builtins; a rule takes only its own stage's.

    ``system``: its settings; ``plain``: all settings as builtins.
    """
    sections = plain["semisyn"]
    shared = {"seed": plain["seed"], "findings": sections["findings"]}
    stages = {f"semisyn_{name}": keys | shared for name, keys in sections.items() if isinstance(keys, dict)}
    stages.pop("semisyn_references", None)  # not a stage
    prompts = sections["prompts"] | {"reference": _reference_by_name(sections, sections["prompts"]["reference"])}
    dataset = {"findings": sections["findings"], "validation": sections["dataset"]["validation"], "seed": plain["seed"]}
    return (
        stages
        | {"semisyn_healthy": _healthy_options(plain), "semisyn_dataset": dataset}
        | {"semisyn_detectors": _detector_options(plain)}
        | {"semisyn_prompts": prompts | {"findings": sections["findings"]}}
        | _detection_options(plain)
        | _prior_options(plain)
        | _placement_options(plain)
        | _editing_options(system, plain)
        | _reader_options(plain)
    )


def _detector_options(plain: dict) -> dict:
    """Return what all runs of detectors share, with only the chosen engine's section."""
    system = plain["semisyn"]
    section = dict(system["detectors"])
    embedded = plain["cohort"]["source"] == "embedded"
    for name, embedded_default, default in (("updates", EMBEDDED_UPDATES, UPDATES), ("seeds", EMBEDDED_SEEDS, SEEDS)):
        section[name] = section[name] or (embedded_default if embedded else default)
    if section["budget"] == "epochs":
        section["updates"] = 0  # they follow from the images
    return (
        {name: section[name] for name in ("engine", "budget", "updates", "epochs", "seeds", "points")}
        | {"own": section[section["engine"]], "findings": system["findings"], "seed": plain["seed"]}
        | {"kind": system["dataset"]["boxes"], "target": system["dataset"]["target"]}
        | {"per_finding": system["dataset"]["per_finding"]}
    )


def _detection_options(plain: dict) -> dict[str, dict]:
    """Return the options of the scores of detectors, and of their figure."""
    section = {
        name: key for name, key in plain["semisyn"]["detection"].items() if name not in ("predictions", "synthetic")
    }
    return {
        "semisyn_detection": section | {"seed": plain["seed"], "findings": plain["semisyn"]["findings"]},
        "semisyn_detection_charts": {"dpi": plain["figures"]["dpi"], "against": section["against"]},
    }


def _reader_options(plain: dict) -> dict[str, dict]:
    """Return the options of the readers' images, pages, sheets and tables."""
    system = plain["semisyn"]
    section, key = system["readers"], "semisyn.readers"
    reference = _reference_by_name(system, section["reference"])
    pages = {"experts": section["experts"], "form": "readers", "seed": section["seed"]}
    pages |= {"fewer": f"lower {key}.images", "synthetic": plain["cohort"]["source"] == "embedded"}
    return {
        "semisyn_readers": {name: section[name] for name in ("images", "seed")}
        | {"findings": system["findings"], "reference": reference},
        "semisyn_readers_pages": pages,
        "semisyn_readers_answers": {"form": "readers", "setting": f"{key}.sheets"},
        "semisyn_readers_tables": {name: section[name] for name in ("replicates", "seed")}
        | {"readers": len(section["experts"])},
    }


def _reference_by_name(system: dict, name: str) -> dict:
    """Return what a stage reads of a reference; the table of its patients is for other cohorts' images."""
    keys = system["references"].get(name, {})
    return {"name": name} | {key: value for key, value in keys.items() if key not in ("patients", "images")}


def _editing_options(system: SemisynSettings, plain: dict) -> dict[str, dict]:
    """Return the options of the editing, of its scores and of the choice of configurations."""
    sections, compared = plain["semisyn"], system.compared
    section, realism, selection_section = (sections[name] for name in ("editing", "realism", "selection"))
    shared = {"seed": plain["seed"], "findings": sections["findings"]}
    configs = {name: config.as_dict() for name, config in compared.items()} | section["configs"]
    editing = {name: section[name] for name in ("max_leak", "choice")}
    editing |= {"configs": configs, "own": {name: section[name] for name in EDITING_ENGINES}}
    editing |= {"parts": selection_section["parts"]}
    engines = {"detector": plain["boxes"]["engine"], "classifier": sections["healthy"]["classifier"]}
    selection = {name: selection_section[name] for name in ("metrics", "samples")}
    selection |= {"configs": {name: configs[name] for name in compared}, "same_as": find_duplicates(compared)}
    scores = {name: value for name, value in realism.items() if name not in ("features", "clip")}
    reference = _reference_by_name(sections, realism["reference"])
    return {
        "semisyn_editing": editing | shared,
        "semisyn_measures": {"classes": realism["classes"]},
        "semisyn_realism": scores | shared | engines,
        "semisyn_realism_reference": {"reference": reference, "findings": sections["findings"]},
        "semisyn_selection": selection | {"dpi": plain["figures"]["dpi"]},
    }


def find_duplicates(configs: Mapping[str, EditingConfig]) -> dict[str, str]:
    """Return {configuration: an earlier one that makes the same images}; only the earlier one is edited."""
    first: dict[tuple, str] = {}
    duplicates = {}
    for name, config in configs.items():
        if (earlier_name := first.setdefault(config.effective(), name)) != name:
            duplicates[name] = earlier_name
    return duplicates


def _healthy_options(plain: dict) -> dict:
    """Return the options of the healthy pool, which depends neither on findings nor on the seed."""
    section = dict(plain["semisyn"]["healthy"])
    embedded = plain["cohort"]["source"] == "embedded"
    for name in {"lite", "table"} - {section["classifier"]}:
        del section[name]
    section["splits"] = section["splits"] or (list(SPLITS) if embedded else [SPLITS[0]])
    if section["devices"] == "auto":
        section["devices"] = "any" if embedded else "not_positive"
    section.pop("chexpert")  # an input too
    return section


def _prior_options(plain: dict) -> dict[str, dict]:
    """Return the options of the priors and of their figure; without a fit, its keys have their defaults."""
    system, default = plain["semisyn"], PriorsSettings().as_dict()
    section = dict(system["priors"])
    section.pop("zones_table")  # an input
    for source, keys in (("source", BOX_FIT_KEYS), ("zones", ZONE_FIT_KEYS)):
        if section[source] != "fit":
            section |= {name: default[name] for name in keys}
    reference = system["references"].get(section["reference"], {"format": "", "image_id": "", "classes": {}})
    section |= {name: reference[name] for name in ("format", "image_id", "classes")}
    is_fitted = "fit" in (section["source"], section["zones"])
    section |= {"organs": plain["organs"]["engine"] if is_fitted else "", "findings": system["findings"]}
    chart = {"dpi": plain["figures"]["dpi"], "findings": system["findings"], "seed": plain["seed"]}
    return {"semisyn_priors": section, "semisyn_priors_chart": chart}


def _placement_options(plain: dict) -> dict[str, dict]:
    """Return the options of the plan of all jobs, and of the placement of their boxes."""
    system, seed = plain["semisyn"], plain["seed"]
    section = dict(system["placement"])
    jobs = {
        "per_finding": system["dataset"]["per_finding"],
        "sizes": system["dataset"]["sizes"],
        "default_most": EMBEDDED_PER_FINDING if plain["cohort"]["source"] == "embedded" else PER_FINDING,
        "most_per_image": section.pop("most_per_image"),
        "spare": section.pop("spare"),
        "samples": system["selection"]["samples"],
        "findings": system["findings"],
        "seed": seed,
    }
    return {"semisyn_placement_plan": jobs, "semisyn_placement": section | {"seed": seed}}


def export_options(settings: Settings, options: dict[str, dict], labels: dict[str, str]) -> dict:
    """Return the options of the dataset's exports. ``options``: of the stages; ``labels``: {finding: its label}."""
    section, release = settings.semisyn.dataset, settings.release
    withheld = release.kinds() if section.withhold else []
    return {
        "findings": settings.semisyn.findings,
        "kind": section.boxes,
        "target": section.target,
        "pixels": section.pixels,
        "withhold": withheld,
        "salt": release.salt if "ids" in withheld else "",
        "frames": decoding_options(options) if section.pixels == "original" else {},
        "labels": labels,
    }


def reference_options(name: str, reference: ReferenceSettings) -> dict:
    """Return what the detectors' jobs read of a reference."""
    return {"name": name} | reference.as_dict(without=("patients", "images"))


def reference_file(settings: Settings, name: str) -> str:
    """Return the file of a reference, or its folder where the format is one. Raises UserError if it is missing."""
    reference, key = settings.semisyn.references[name], f"semisyn.references.{name}.path"
    return str((existing_folder if reference.format in FOLDERS else existing_file)(key, reference.path))


def reference_with_format(settings: Settings, name: str) -> tuple[list[str], list[str]]:
    """Return the file of a reference and the module that reads it, both [] for "". Raises UserError for no file."""
    if not name:
        return [], []
    return [reference_file(settings, name)], [f"annotations.{settings.semisyn.references[name].format}"]


def _section_dict(section: Section, engine: str) -> dict:
    """Return the settings of an engine that has a section, {} for another."""
    return getattr(section, engine).as_dict() if hasattr(section, engine) else {}


@dataclass(frozen=True)
class RealismPlan:
    """The real images of the stage semisyn_realism, and its feature engines that run."""

    reference: list[str]  # the file of annotated boxes, [] without one
    formats: list[str]  # the module that reads it
    files: dict[str, dict[str, str]]  # {engine: its input files}
    gpus: dict[str, int]
    own: dict[str, dict]  # {engine: its settings that are no files}
    metrics: dict[str, dict[str, str]]  # {engine: {kind of metric: its name}}
    shards: Sequence[str]  # of the cohort

    def real_features(self) -> dict[str, list[str]]:
        """Return the files of features of the real images, by the names of the scores' inputs."""
        return {
            f"real_{engine}": [f"results/semisyn/realism/{shard}.{engine}.features.h5" for shard in self.shards]
            for engine, metrics in self.metrics.items()
            if self.reference and set(metrics) != {"similarity"}
        }


def make_realism_plan(settings: Settings, shards: Sequence[str]) -> RealismPlan:
    """Return the plan. Without a reference, an engine whose every metric needs real images does not run.

    Raises UserError for a missing file, and for a selection by metrics that are not computed.
    """
    section = settings.semisyn.realism
    reference, formats = reference_with_format(settings, section.reference)
    package = f"{PACKAGE}.realism"
    metrics = {name: read_declaration(package, name, "METRICS", {}) for name in section.features}
    metrics = {name: names for name, names in metrics.items() if reference or "similarity" in names}
    _check_selection_metrics(settings, metrics)
    return RealismPlan(
        reference=reference,
        formats=formats,
        files={
            name: engine_folder_or_inputs(package, name, _section_dict(section, name), f"semisyn.realism.{name}")
            for name in metrics
        },
        gpus={name: num_gpus(package, name, settings) for name in metrics},
        own={name: {"sha256": section.clip.sha256} if name == "clip" else {} for name in metrics},
        metrics=metrics,
        shards=shards,
    )


def _check_selection_metrics(settings: Settings, metrics: dict[str, dict[str, str]]) -> None:
    """Raise UserError if no metric of the selection is computed. ``metrics``: of the feature engines that run."""
    real, selection_metrics = bool(settings.semisyn.realism.reference), settings.semisyn.selection.metrics
    available_metrics = DETECTOR_METRICS | ({"c2st"} if real else set())
    available_metrics |= {
        name
        for engine_metrics in metrics.values()
        for kind, name in engine_metrics.items()
        if real or kind == "similarity"
    }
    if not available_metrics & set(selection_metrics):
        raise UserError(
            f"semisyn.selection.metrics is {', '.join(selection_metrics)}, of which semisyn.realism gives none: "
            f"choose of {', '.join(sorted(available_metrics))}, or set semisyn.realism.reference and features"
        )


@dataclass(frozen=True)
class DetectorsPlan:
    """The detectors' runs, and the files that each is trained on and scored against.

    A reference is used if it is learnt, scored, or if priors are fitted on its own images.
    """

    engine: str
    engine_files: dict[str, str]
    gpus: int
    runs: dict[str, dict]  # {run: its options}
    inputs: dict[str, dict[str, str | list[str]]]  # {run: {name: input files of its trainings}}
    megabytes: dict[str, int]  # {run: memory of a training}
    numbers: list[int]  # of the seeds
    references: dict[str, dict]  # {used reference: its options}
    annotations: dict[str, str]  # {used reference: its file}
    frames: dict[str, list[str]]  # {used reference: shards of its frames}
    image_sources: dict[str, str]  # {used reference: its images, where they are not the cohort's}
    formats: list[str]  # modules that read the references
    scored: list[str]  # references with another role than train
    role_inputs: dict[str, str | list[str]]  # input files of the check of all roles
    score_own: bool  # whether the stage semisyn_detection scores these detectors

    def predictions(self) -> list[tuple[str, int, str, str]]:
        """Return (run, number of the seed, reference, file) of all predictions of the scored references."""
        run_keys = [(run, number, name) for run in self.runs for name in self.scored for number in self.numbers]
        return [(*run_key, "results/semisyn/detection/{}.s{}/{}.parquet".format(*run_key)) for run_key in run_keys]

    def listing_options(self, reference: str) -> dict:
        """Return what the list of a reference's images depends on: neither on its labels nor on its role."""
        return {name: self.references[reference][name] for name in ("name", "format", "path", "image_id")}

    def prediction_options(self, run: str, reference: str) -> dict:
        """Return the options of a run's predictions on a reference."""
        options = {name: self.runs[run][name] for name in ("engine", "own", "findings")}
        return options | {"reference": self.references[reference]}


def make_detectors_plan(
    settings: Settings, options: dict, sizes: Sequence[int | str], shards: Sequence[str], edited: list[str]
) -> DetectorsPlan:
    """Return the plan. ``options``: of all runs together; ``sizes``: of the dataset; ``edited``: its shards.

    Raises UserError for a missing file, or a run with more images than the dataset has.
    """
    system, section = settings.semisyn, settings.semisyn.detectors
    runs = section.runs or _default_runs(settings, sizes)
    learnt = [name for name in system.references if any(name in run.real for run in runs.values())]
    scored = [name for name, reference in system.references.items() if reference.role in (VAL, TEST)]
    fitted = _fitted_reference(settings)
    fitted_on_own_images = [fitted] if fitted and system.references[fitted].images else []
    used_names = (*learnt, *scored, *fitted_on_own_images)
    used = {name: reference for name, reference in system.references.items() if name in used_names}
    annotations = {name: reference_file(settings, name) for name in used}
    image_sources = {name: _image_source(name, reference) for name, reference in used.items() if reference.images}
    cohort = [f"results/frames/{shard}.h5" for shard in shards]
    frames = {name: [_frames_file(name)] if name in image_sources else cohort for name in used}
    patients = [COHORT, *_patient_tables(used)]
    options_by_reference = {name: reference_options(name, reference) for name, reference in used.items()}
    validation_names = [name for name in scored if system.references[name].role == VAL]
    validation_options = {}
    if validation_names:
        validation_options = {"validation": [options_by_reference[name] for name in validation_names]}
    options_by_run = {
        run: _run_options(run, detector_run, options, sizes, options_by_reference) | validation_options
        for run, detector_run in runs.items()
    }
    uses_synthetic = any(map(_uses_synthetic, runs.values()))
    package = f"{PACKAGE}.detectors"
    return DetectorsPlan(
        engine=section.engine,
        engine_files=users_files(
            package, section.engine, _section_dict(section, section.engine), f"semisyn.detectors.{section.engine}"
        ),
        gpus=num_gpus(package, section.engine, settings),
        runs=options_by_run,
        inputs={
            run: _training_inputs(detector_run, annotations, image_sources, patients, cohort, edited, validation_names)
            for run, detector_run in runs.items()
        },
        megabytes={run: _training_megabytes(run_options) for run, run_options in options_by_run.items()},
        numbers=list(range(options["seeds"])),
        references=options_by_reference,
        annotations=annotations,
        frames=frames,
        image_sources=image_sources,
        formats=sorted({f"annotations.{reference.format}" for reference in used.values()}),
        scored=scored,
        role_inputs={"annotations": list(annotations.values()), "patients": patients}
        | ({"images": IMAGES} if uses_synthetic else {}),
        score_own=bool(section.runs) or not system.detection.predictions,
    )


def _fitted_reference(settings: Settings) -> str:
    """Return the reference that priors are fitted on, "" without a fit."""
    priors = settings.semisyn.priors
    return priors.reference if priors.source == "fit" else ""


def _default_runs(settings: Settings, sizes: Sequence[int | str]) -> dict[str, DetectorRun]:
    """Return the paper's runs and two controls; without a reference to learn from, runs on synthetic images alone."""
    real = [name for name, reference in settings.semisyn.references.items() if reference.role == TRAIN]
    synthetic_alone = {"synthetic": DetectorRun(synthetic=sizes[-1])}
    if not real:
        return synthetic_alone | {"shuffled": DetectorRun(extra=["shuffled"])}
    return (
        {"real": DetectorRun(real=real)}
        | {f"real+{size}": DetectorRun(real=real, synthetic=size) for size in sizes}
        | synthetic_alone
        | {name: DetectorRun(real=real, extra=[name]) for name in ("unedited", "shuffled")}
    )


def _frames_file(reference: str) -> str:
    return f"results/semisyn/references/{reference}/frames.h5"


def _image_source(name: str, reference: ReferenceSettings) -> str:
    is_table = reference.images.endswith((".csv", ".parquet"))
    existing = existing_file if is_table else existing_folder
    return str(existing(f"semisyn.references.{name}.images", reference.images))


def _patient_tables(references: Mapping[str, ReferenceSettings]) -> list[str]:
    """Return the tables of patients of references: the users' files, then those of references with own images."""
    tables = [
        str(existing_file(f"semisyn.references.{name}.patients", reference.patients))
        for name, reference in references.items()
        if reference.patients
    ]
    names_with_images = [name for name, reference in references.items() if reference.images]
    return tables + [f"results/semisyn/references/{name}/images.parquet" for name in names_with_images]


def _uses_synthetic(run: DetectorRun) -> bool:
    return bool(run.synthetic or run.extra)


def _run_options(
    run: str,
    detector_run: DetectorRun,
    options: dict,
    sizes: Sequence[int | str],
    options_by_reference: dict[str, dict],
) -> dict:
    shared = {key: value for key, value in options.items() if key not in ("seeds", "per_finding")}
    extra_size = (detector_run.extra_size or detector_run.synthetic or sizes[-1]) if detector_run.extra else 0
    max_images = (options["per_finding"] or PER_FINDING) * len(options["findings"])
    for key, size in (("synthetic", detector_run.synthetic), ("extra_size", extra_size)):
        if size not in PARTS and size > max_images:
            raise UserError(
                f"semisyn.detectors.runs.{run}.{key} is {size}, but the dataset has {max_images} images: lower it, or "
                "raise semisyn.dataset.per_finding"
            )
    run_options = detector_run.as_dict() | {"extra_size": extra_size}
    return shared | run_options | {"references": [options_by_reference[name] for name in detector_run.real]}


def _training_inputs(
    detector_run: DetectorRun,
    annotations: Mapping[str, str],
    image_sources: Mapping[str, str],
    patients: list[str],
    cohort: list[str],
    edited: list[str],
    validation_names: list[str],
) -> dict[str, str | list[str]]:
    """Return {name: input files} of a run's trainings; ``validation_names``: references that they are scored on."""
    used = [*detector_run.real, *validation_names]
    files: dict[str, str | list[str]] = {
        "patients": patients,
        "references": [annotations[name] for name in detector_run.real],
    }
    files |= {"validation": [annotations[name] for name in validation_names]} if validation_names else {}
    files |= {f"frames_{name}": _frames_file(name) for name in used if name in image_sources}
    if "unedited" in detector_run.extra or any(name not in image_sources for name in used):
        files["frames"] = cohort
    if _uses_synthetic(detector_run):
        files |= {"images": IMAGES, "boxes": "results/semisyn/dataset/boxes.parquet", "edited": edited}
    return files


def _training_megabytes(options: dict) -> int:
    """Return the memory of a training: the engine lite keeps its images in memory."""
    sizes = [options["synthetic"], *[options["extra_size"]] * len(options["extra"])]
    num_findings = len(options["findings"])
    num_images = num_findings * sum(images_per_finding(size, PER_FINDING, num_findings) for size in sizes if size)
    return TRAINING_MEGABYTES + num_images * options["own"].get("size", 0) ** 2 // 10**6


@dataclass(frozen=True)
class SemisynPlan:
    """What the rules of SemiSynCXR take from the settings. Paths are relative to Snakemake's working directory."""

    findings_file: str | list  # the user's findings, [] without
    labels: dict[str, str]  # {requested finding: its label}
    prior_files: dict[str, str | list[str]]  # {name: input files of the priors}
    prior_formats: list[str]  # modules that read them
    prompts_reference: list[str]  # the reference whose phrases are mined
    prompts_formats: list[str]
    healthy_files: dict[str, str]  # {name: input file of the healthy pool}
    healthy_options: dict  # its options that depend on which files exist
    editing_files: dict[str, dict[str, str]]  # {editing engine in use: its input files}
    editing_gpus: dict[str, int]
    engine_by_config: dict[str, str]
    chosen_engines: list[str]  # engines of the configuration `chosen`
    compared_configs: list[str]  # the selection compares them; each makes other images
    config_groups: dict[str, list[list[str]]]  # {engine: groups of compared configurations that one job edits}
    is_selected: bool  # whether the stage selection decides what `chosen` stands for
    shards: list[str]  # of the cohort and of `chosen`
    trial_shards: list[str]  # of every other configuration
    realism: RealismPlan
    sizes: list[int | str]  # of the exports, in images of all findings together, or parts of the dataset
    export_options: dict
    detectors: DetectorsPlan
    detection_files: dict[str, list[str]]  # {name: input files of the scores of detectors}
    detection_options: dict  # which file is what
    readers_reference: list[str]  # the reference of the readers' real images
    readers_formats: list[str]
    readers_sheets: list[str]  # their filled sheets

    @property
    def form_labels(self) -> dict[str, dict[str, str]]:
        """{question: {answer: label}} of the readers' form: findings that the user adds or renames."""
        own_labels = {name: label for name, label in self.labels.items() if FINDINGS.get(name) != label}
        return {"finding": own_labels} if own_labels else {}

    def engines_of(self, config: str) -> list[str]:
        """Return the engines that make the images of a configuration; ``chosen`` can have several."""
        return self.chosen_engines if config == CHOSEN_CONFIG else [self.engine_by_config[config]]

    def ungrouped_pattern(self, engine: str) -> str:
        """Return the pattern of an engine's configurations that are edited one by one."""
        names = "|".join(re.escape(name) for group in self.config_groups.get(engine, []) for name in group)
        return (f"(?!(?:{names})/)" if names else "") + r"[A-Za-z0-9][A-Za-z0-9_.-]*"

    def editing_options(self, options: dict, engine: str, configs: Sequence[str], choice: dict | str) -> dict:
        """Return the options of an engine's edits of some configurations. ``options``: of the whole stage."""
        chosen_configs = {name: options["configs"][name] for name in configs}
        engine_sections = {engine: options["own"].get(engine, {})}
        return options | {"own": engine_sections, "choice": choice, "configs": chosen_configs}

    def single_editing_options(self, options: dict, engine: str) -> Callable[[Any], dict]:
        """Return a function of a rule's wildcards that gives the options of an engine's edits of one configuration.

        Another list of configurations, or another choice, changes the options of no configuration that stays.
        """
        if options["choice"] == SELECTION:
            chosen_options = self.editing_options(options, engine, self.compared_configs, SELECTION)
        else:
            config_by_finding = {
                finding: options["choice"].get(finding, DEFAULT_CONFIG) for finding in options["findings"]
            }
            configs = sorted({*config_by_finding.values()})
            chosen_options = self.editing_options(options, engine, configs, config_by_finding)
        chosen_options |= {"parts": 1}
        return lambda wildcards: (
            chosen_options
            if wildcards.config == CHOSEN_CONFIG
            else self.editing_options(options, engine, [wildcards.config], {})
        )

    def shards_of(self, config: str) -> list[str]:
        """Return the shards of a configuration: the cohort's for ``chosen``, else those of the trial jobs."""
        return self.shards if config == CHOSEN_CONFIG else self.trial_shards

    def source_shards(self, wildcards: Any) -> list[str]:
        """Return the cohort's shards that a shard of a configuration reads: itself, or for the few trial jobs all."""
        return [wildcards.shard] if wildcards.config == CHOSEN_CONFIG else self.shards

    def feature_inputs(self) -> dict[str, Callable[[Any], list[str]] | list[str]]:
        """Return {name: input of a configuration's scores}: the features of its images, and those of the real ones."""

        def edited(engine: str) -> Callable[[Any], list[str]]:
            return lambda wildcards: [
                f"results/semisyn/realism/{wildcards.config}/{shard}.{engine}.features.h5"
                for shard in self.shards_of(wildcards.config)
            ]

        return {f"edited_{name}": edited(name) for name in self.realism.metrics} | self.realism.real_features()


def make_semisyn_plan(settings: Settings, options: dict[str, dict], shards: list[str]) -> SemisynPlan:
    """Return the plan; ``options``: of the stages.

    Raises UserError for a missing file, or a finding without a description.
    """
    system = settings.semisyn
    findings_file, labels = _read_findings(settings)
    prior_files, prior_formats = _prior_inputs(settings, findings_file, shards)
    references = _guarded_references(settings)
    label_source, healthy_files = _label_files(settings)
    healthy_files |= _metadata_file(settings) | _classifier_files(settings)
    healthy_files |= {f"reference_{name}": reference["path"] for name, reference in references.items()}
    editing = _editing_fields(settings)
    edited = [
        f"results/semisyn/editing/{engine}/chosen/{shard}.h5"
        for engine in editing["chosen_engines"]
        for shard in shards
    ]
    sizes = list(PARTS) if system.dataset.sizes == "auto" else system.dataset.sizes
    detectors = make_detectors_plan(settings, options["semisyn_detectors"], sizes, shards, edited)
    detection_files, detection_options = _detection_inputs(settings, detectors)
    prompts_reference, prompts_formats = reference_with_format(settings, system.prompts.reference)
    readers_reference, readers_formats = reference_with_format(settings, system.readers.reference)
    return SemisynPlan(
        findings_file=findings_file,
        labels=labels,
        prior_files=prior_files,
        prior_formats=prior_formats,
        prompts_reference=prompts_reference,
        prompts_formats=prompts_formats,
        healthy_files=healthy_files,
        healthy_options={"labels": label_source, "references": references},
        **editing,
        shards=shards,
        trial_shards=[f"{part:02d}" for part in range(system.selection.parts)],
        realism=make_realism_plan(settings, shards),
        sizes=sizes,
        export_options=export_options(settings, options, labels),
        detectors=detectors,
        detection_files=detection_files,
        detection_options=detection_options,
        readers_reference=readers_reference,
        readers_formats=readers_formats,
        readers_sheets=find_sheets("semisyn.readers.sheets", system.readers.sheets),
    )


def _detection_inputs(settings: Settings, detectors: DetectorsPlan) -> tuple[dict[str, list[str]], dict]:
    """Return the files of the scores of detectors, and the options that say which file is what.

    Raises UserError for predictions of an unknown reference.
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
    scored_names = {name for *_, name in runs}
    used = {name: reference for name, reference in system.references.items() if name in scored_names}
    return {
        "predictions": files,
        "patients": _patient_tables(used),
        "references": [reference_file(settings, name) for name in used],
        "images": [IMAGES] if any(size in PARTS for size in synthetic.values()) else [],
    }, {
        "runs": runs,
        "references": [reference_options(name, reference) for name, reference in used.items()],
        "synthetic": synthetic,
        "prior_seen": [name for name in used if name == _fitted_reference(settings)],
    }


def _read_findings(settings: Settings) -> tuple[str | list, dict[str, str]]:
    """Return the user's file of findings, [] without one, and {requested finding: its label}."""
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


def _prior_inputs(
    settings: Settings, findings_file: str | list, shards: list[str]
) -> tuple[dict[str, str | list[str]], list[str]]:
    """Return {name: files} that the priors are made from, and the modules that read them."""
    section, files, formats = settings.semisyn.priors, {"findings_file": findings_file}, []
    has_own_images = False
    if name := _fitted_reference(settings):
        reference = settings.semisyn.references[name]
        files["boxes"], has_own_images = reference_file(settings, name), bool(reference.images)
        formats.append(f"annotations.{reference.format}")
    if has_own_images:
        own_files = {"own_images": "images.parquet", "own_frames": "frames.h5", "own_organs": "organs.h5"}
        files |= {key: f"results/semisyn/references/{name}/{file}" for key, file in own_files.items()}
    if section.zones == "fit":
        files["zone_boxes"] = str(existing_file("semisyn.priors.zones_table", section.zones_table))
        formats.append("annotations.chest_imagenome")
    if section.zones == "fit" or (formats and not has_own_images):
        files["images"] = COHORT
        files |= {stage: [f"results/{stage}/{shard}.h5" for shard in shards] for stage in ("frames", "organs")}
    return files, formats


def _editing_fields(settings: Settings) -> dict:
    """Return the plan's fields about the editing: engines and configurations."""
    system, section = settings.semisyn, settings.semisyn.editing
    package, compared = f"{PACKAGE}.editing", system.compared
    duplicates = find_duplicates(compared)
    distinct = [name for name in compared if name not in duplicates]
    engine_by_config = {name: config.engine for name, config in (section.configs | compared).items()}
    is_selected = section.choice == SELECTION
    names = distinct if is_selected else [section.choice.get(finding, DEFAULT_CONFIG) for finding in system.findings]
    chosen_engines = sorted({engine_by_config[name] for name in names})
    used = sorted({*chosen_engines, *(engine_by_config[name] for name in distinct)})
    return {
        "editing_files": {
            engine: engine_folder_or_inputs(
                package, engine, _section_dict(section, engine), f"semisyn.editing.{engine}"
            )
            for engine in used
        },
        "editing_gpus": {engine: num_gpus(package, engine, settings) for engine in used},
        "engine_by_config": engine_by_config,
        "chosen_engines": chosen_engines,
        "compared_configs": distinct,
        "config_groups": {
            engine: _group_configs(engine, {name: compared[name] for name in distinct}) for engine in used
        },
        "is_selected": is_selected,
    }


def _group_configs(engine: str, configs: Mapping[str, EditingConfig]) -> list[list[str]]:
    """Return groups of 2 to :data:`MAX_CONFIGS` of an engine's configurations whose shared work is done once."""
    keys, groups = read_declaration(f"{PACKAGE}.editing", engine, "SHARED_KEYS", ()), {}
    for name, config in configs.items():
        if config.engine == engine and keys:
            values = config.as_dict()
            groups.setdefault(tuple(values[key] for key in keys), []).append(name)
    parts = (group[at : at + MAX_CONFIGS] for group in groups.values() for at in range(0, len(group), MAX_CONFIGS))
    return [part for part in parts if len(part) > 1]


def _label_files(settings: Settings) -> tuple[str, dict[str, str]]:
    """Return the source of the labels, and its files."""
    section = settings.semisyn.healthy
    if section.chexpert:
        table = existing_file("semisyn.healthy.chexpert", section.chexpert)
    else:
        table = _find_chexpert_table(settings)
    if section.labels == "chexpert" and table is None:
        raise UserError(
            "semisyn.healthy.labels is 'chexpert', but there is no table: name one in semisyn.healthy.chexpert"
        )
    if table is not None and section.labels != "reports":
        return "chexpert", {"chexpert": str(table)}
    stem = "results/reports/{shard}"
    return "reports", {"reports": f"{stem}.jsonl", "reports_excluded": f"{stem}.excluded.parquet"}


def _find_chexpert_table(settings: Settings) -> Path | None:
    """Return MIMIC-CXR-JPG's table of CheXpert labels, if it lies beside the other tables."""
    if settings.cohort.source != "mimic":
        return None
    folders = [Path(settings.cohort.tables)] if settings.cohort.tables else []
    folders.append(mimic_base(settings.cohort.root))
    paths = [path for folder in folders for ending in ("csv", "csv.gz") for path in folder.glob(f"*-chexpert.{ending}")]
    return min(paths, default=None)


def _metadata_file(settings: Settings) -> dict[str, str]:
    if settings.cohort.source != "mimic":
        return {}
    path = mimic_tables(settings.cohort.root, settings.cohort.tables).get("metadata")
    return {"metadata": str(path)} if path else {}


def _classifier_files(settings: Settings) -> dict[str, str]:
    """Return the files of the classifier: other rules' results, and a user's own."""
    section = settings.semisyn.healthy
    package, name = f"{PACKAGE}.healthy", section.classifier
    own_files = users_files(package, name, _section_dict(section, name), f"semisyn.healthy.{name}")
    return read_declaration(package, name, "INPUTS", {}) | own_files


def _guarded_references(settings: Settings) -> dict[str, dict[str, str]]:
    """Return {name: format, path, image_id} of the references whose patients must not feed training data.

    They are tested on, or priors are fitted on them.
    """
    return {
        name: {"format": reference.format, "path": reference_file(settings, name), "image_id": reference.image_id}
        for name, reference in settings.semisyn.references.items()
        if reference.role in (VAL, TEST) or name == _fitted_reference(settings)
    }
