"""SemiSynCXR's part of the plan: the options of its stages, and their input files, engines and runs."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxr.annotations.formats import FOLDERS
from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.vocabulary import FINDINGS, SPLITS
from cxr.imaging.cohort.check import mimic_base, mimic_tables
from cxr.semisyn.dataset.settings import EMBEDDED_PER_FINDING, PER_FINDING
from cxr.semisyn.detectors.settings import EMBEDDED_SEEDS, EMBEDDED_UPDATES, SEEDS, UPDATES, DetectorRun
from cxr.semisyn.editing.configs import EditingConfig
from cxr.semisyn.findings.catalogue import read_labels
from cxr.semisyn.readers.settings import SEED as READERS_SEED
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
    sections, embedded = plain["semisyn"], plain["cohort"]["source"] == "embedded"
    findings, seed = {"findings": sections["findings"]}, {"seed": plain["seed"]}
    dpi = {"dpi": plain["figures"]["dpi"]}
    editing, realism, selection, readers, detection = (
        sections[name] for name in ("editing", "realism", "selection", "readers", "detection")
    )

    def reference_of(stage: str) -> dict:
        name = sections[stage]["reference"]
        return reference_options(name, system.references[name]) if name else {"name": ""}

    configs = {name: config.as_dict() for name, config in (system.compared | system.editing.configs).items()}
    return {
        "semisyn_healthy": _healthy_options(sections["healthy"], embedded),
        "semisyn_priors": findings | _prior_options(system, plain),
        "semisyn_priors_chart": dpi | findings | seed,
        "semisyn_prompts": findings
        | {"least_patients": sections["prompts"]["least_patients"], "reference": reference_of("prompts")},
        "semisyn_placement_plan": findings
        | seed
        | {name: sections["dataset"][name] for name in ("per_finding", "sizes")}
        | {name: sections["placement"][name] for name in ("most_per_image", "spare")}
        | {"default_most": EMBEDDED_PER_FINDING if embedded else PER_FINDING, "samples": selection["samples"]},
        "semisyn_placement": seed | {"bounds": sections["placement"]["bounds"]},
        "semisyn_editing": findings
        | seed
        | {name: editing[name] for name in ("max_leak", "choice")}
        | {"configs": configs, "parts": selection["parts"]}
        | {"own": {name: editing[name] | {"dtype": editing["dtype"], "autoencoder": editing["autoencoder"]}
                   for name in EDITING_ENGINES}},
        "semisyn_measures": {"classes": realism["classes"]},
        "semisyn_realism": findings
        | seed
        | {name: realism[name] for name in ("classes", "replicates", "reference")}
        | {"detector": plain["boxes"]["engine"], "classifier": sections["healthy"]["classifier"]},
        "semisyn_realism_reference": findings | {"reference": reference_of("realism")},
        "semisyn_selection": dpi
        | {name: selection[name] for name in ("metrics", "samples")}
        | {"configs": {name: configs[name] for name in system.compared}, "same_as": find_duplicates(system.compared)},
        "semisyn_dataset": findings | seed,
        "semisyn_detectors": findings | seed | _detector_options(sections, embedded),
        "semisyn_detection": findings | seed | {name: detection[name] for name in ("against", "replicates")},
        "semisyn_detection_charts": dpi | {"against": detection["against"]},
        "semisyn_readers": findings | {"images": readers["images"], "reference": reference_of("readers")},
        "semisyn_readers_pages": {"experts": readers["experts"], "form": "readers", "seed": READERS_SEED}
        | {"fewer": "lower semisyn.readers.images", "synthetic": embedded},
        "semisyn_readers_answers": {"form": "readers", "setting": "semisyn.readers.sheets"},
        "semisyn_readers_tables": {"replicates": readers["replicates"], "readers": len(readers["experts"])},
    }  # fmt: skip


def _healthy_options(section: dict, embedded: bool) -> dict:
    """Return the options of the healthy pool, which depends neither on findings nor on the seed."""
    unused = {"lite", "table"} - {section["classifier"]}
    options = {name: value for name, value in section.items() if name not in (*unused, "chexpert")}
    options["splits"] = section["splits"] or (list(SPLITS) if embedded else [SPLITS[0]])
    if section["devices"] == "auto":
        options["devices"] = "any" if embedded else "not_positive"
    return options


def _prior_options(system: SemisynSettings, plain: dict) -> dict:
    """Return what a fit of the priors depends on; without a fit, nothing."""
    name = _fitted_reference(system)
    fitted = system.references[name] if name else ReferenceSettings(format="coco")
    fits_anything = bool(name or system.priors.zones_table)
    return {
        "reference": name,
        "format": fitted.format if name else "",
        "image_id": fitted.image_id if name else "",
        "classes": fitted.classes,
        "organ_engine": plain["organs"]["engine"] if fits_anything else "",
    } | ({"min_boxes": system.priors.min_boxes} if name else {})


def _detector_options(sections: dict, embedded: bool) -> dict:
    """Return what all runs of detectors share, with only the chosen engine's section."""
    section, dataset = sections["detectors"], sections["dataset"]
    updates = section["updates"] or (EMBEDDED_UPDATES if embedded else UPDATES)
    return {name: section[name] for name in ("engine", "budget", "epochs")} | {
        "updates": 0 if section["budget"] == "epochs" else updates,  # else they follow from the images
        "seeds": section["seeds"] or (EMBEDDED_SEEDS if embedded else SEEDS),
        "own": section[section["engine"]],
        "kind": dataset["boxes"],
        "target": dataset["target"],
    }


def find_duplicates(configs: Mapping[str, EditingConfig]) -> dict[str, str]:
    """Return {configuration: an earlier one that makes the same images}; only the earlier one is edited."""
    first: dict[tuple, str] = {}
    earlier = {name: first.setdefault(config.effective(), name) for name, config in configs.items()}
    return {name: earlier_name for name, earlier_name in earlier.items() if earlier_name != name}


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
    """Return what a job reads of a reference; its patients and images are files of their own."""
    return {"name": name} | reference.as_dict(without=("patients", "images"))


def reference_file(system: SemisynSettings, name: str) -> str:
    """Return the file of a reference, or its folder where the format is one. Raises UserError if it is missing."""
    reference, key = system.references[name], f"semisyn.references.{name}.path"
    return str((existing_folder if reference.format in FOLDERS else existing_file)(key, reference.path))


def _fitted_reference(system: SemisynSettings) -> str:
    """Return the reference that priors are fitted on, "" without a fit."""
    return system.priors.reference if system.priors.source == "fit" else ""


def _section_dict(section: Any, engine: str) -> dict:
    """Return the settings of an engine that has a section, {} for another."""
    return getattr(section, engine).as_dict() if hasattr(section, engine) else {}


@dataclass(frozen=True)
class RealismPlan:
    """The feature engines of the stage semisyn_realism that run."""

    files: dict[str, dict[str, str]]  # {engine: its input files}
    gpus: dict[str, int]
    own: dict[str, dict]  # {engine: its settings that are no files}
    metrics: dict[str, dict[str, str]]  # {engine: {kind of metric: its name}}
    real: dict[str, list[str]]  # {input of the scores: features of the real images}


def make_realism_plan(settings: Settings, shards: Sequence[str]) -> RealismPlan:
    """Return the plan. Without a reference, an engine whose every metric needs real images does not run.

    ``shards``: of the cohort. Raises UserError for a missing file, or a selection by metrics that are not computed.
    """
    section, package = settings.semisyn.realism, f"{PACKAGE}.realism"
    metrics = {name: read_declaration(package, name, "METRICS", {}) for name in section.features}
    metrics = {name: names for name, names in metrics.items() if section.reference or "similarity" in names}
    available_metrics = DETECTOR_METRICS | ({"c2st"} if section.reference else set())
    for names in metrics.values():
        available_metrics |= {name for kind, name in names.items() if section.reference or kind == "similarity"}
    selection_metrics = settings.semisyn.selection.metrics
    if not available_metrics & set(selection_metrics):
        raise UserError(
            f"semisyn.selection.metrics is {', '.join(selection_metrics)}, of which semisyn.realism gives none: "
            f"choose of {', '.join(sorted(available_metrics))}, or set semisyn.realism.reference and features"
        )
    return RealismPlan(
        files={
            name: engine_folder_or_inputs(package, name, _section_dict(section, name), f"semisyn.realism.{name}")
            for name in metrics
        },
        gpus={name: num_gpus(package, name, settings) for name in metrics},
        own={name: {"sha256": section.clip.sha256} if name == "clip" else {} for name in metrics},
        metrics=metrics,
        real={
            f"real_{name}": [f"results/semisyn/realism/{shard}.{name}.features.h5" for shard in shards]
            for name, names in metrics.items()
            if section.reference and set(names) != {"similarity"}
        },
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
    numbers: list[int]  # of the seeds
    references: dict[str, dict]  # {used reference: its options}
    annotations: dict[str, str]  # {used reference: its file}
    frames: dict[str, list[str]]  # {used reference: shards of its frames}
    image_sources: dict[str, str]  # {used reference: its images, where they are not the cohort's}
    scored: list[str]  # references with another role than train
    role_inputs: dict[str, str | list[str]]  # input files of the check of all roles

    @property
    def formats(self) -> list[str]:
        """Modules that read the references."""
        return sorted({f"annotations.{reference['format']}" for reference in self.references.values()})

    def predictions(self) -> list[tuple[str, int, str, str]]:
        """Return (run, number of the seed, reference, file) of all predictions of the scored references."""
        run_keys = [(run, number, name) for run in self.runs for name in self.scored for number in self.numbers]
        return [(*run_key, "results/semisyn/detection/{}.s{}/{}.parquet".format(*run_key)) for run_key in run_keys]

    def listing_options(self, reference: str) -> dict:
        """Return what the list of a reference's images depends on: neither on its labels nor on its role."""
        return {name: self.references[reference][name] for name in ("name", "format", "path", "image_id")}

    def prediction_options(self, run: str, reference: str) -> dict:
        """Return the options of a run's predictions on a reference."""
        options = self.runs[run]
        return {
            "engine": options["engine"],
            "engine_settings": options["own"],
            "findings": options["findings"],
            "reference": self.references[reference],
        }

    def megabytes(self, run: str) -> int:
        """Return the memory of a training: the engine lite keeps its images in memory."""
        options = self.runs[run]
        sizes = [options["synthetic"], *[options["extra_size"]] * len(options["extra"])]
        num_findings = len(options["findings"])
        num_images = num_findings * sum(images_per_finding(size, PER_FINDING, num_findings) for size in sizes if size)
        return TRAINING_MEGABYTES + num_images * options["own"].get("size", 0) ** 2 // 10**6


def make_detectors_plan(
    settings: Settings, options: dict, sizes: Sequence[int | str], shards: Sequence[str], edited: list[str]
) -> DetectorsPlan:
    """Return the plan. ``options``: of all runs together; ``sizes``: of the dataset; ``edited``: its shards.

    Raises UserError for a missing file.
    """
    system, section, package = settings.semisyn, settings.semisyn.detectors, f"{PACKAGE}.detectors"
    runs = section.runs or _default_runs(system, sizes)
    scored = [name for name, reference in system.references.items() if reference.role in (VAL, TEST)]
    validated = [name for name in scored if system.references[name].role == VAL]
    used = {
        name: reference
        for name, reference in system.references.items()
        if name in scored
        or any(name in run.real for run in runs.values())
        or (name == _fitted_reference(system) and reference.images)
    }
    annotations = {name: reference_file(system, name) for name in used}
    image_sources = {name: _image_source(name, reference) for name, reference in used.items() if reference.images}
    cohort = [f"results/frames/{shard}.h5" for shard in shards]
    patients = [COHORT, *_patient_tables(used)]
    references = {name: reference_options(name, reference) for name, reference in used.items()}
    validation_options = {"validation": [references[name] for name in validated]} if validated else {}

    def training_inputs(run: DetectorRun) -> dict[str, str | list[str]]:
        trained = [*run.real, *validated]
        files = {"patients": patients, "references": [annotations[name] for name in run.real]}
        files |= {"validation": [annotations[name] for name in validated]} if validated else {}
        files |= {f"frames_{name}": _frames_file(name) for name in trained if name in image_sources}
        if "unedited" in run.extra or any(name not in image_sources for name in trained):
            files["frames"] = cohort
        if run.uses_synthetic:
            files |= {"images": IMAGES, "boxes": "results/semisyn/dataset/boxes.parquet", "edited": edited}
        return files

    return DetectorsPlan(
        engine=section.engine,
        engine_files=users_files(
            package, section.engine, _section_dict(section, section.engine), f"semisyn.detectors.{section.engine}"
        ),
        gpus=num_gpus(package, section.engine, settings),
        runs={name: _run_options(run, options, sizes, references) | validation_options for name, run in runs.items()},
        inputs={name: training_inputs(run) for name, run in runs.items()},
        numbers=list(range(options["seeds"])),
        references=references,
        annotations=annotations,
        frames={name: [_frames_file(name)] if name in image_sources else cohort for name in used},
        image_sources=image_sources,
        scored=scored,
        role_inputs={"annotations": list(annotations.values()), "patients": patients}
        | ({"images": IMAGES} if any(run.uses_synthetic for run in runs.values()) else {}),
    )


def _default_runs(system: SemisynSettings, sizes: Sequence[int | str]) -> dict[str, DetectorRun]:
    """Return the paper's runs and two controls; without a reference to learn from, runs on synthetic images alone."""
    real = [name for name, reference in system.references.items() if reference.role == TRAIN]
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
    existing = existing_file if reference.images.endswith((".csv", ".parquet")) else existing_folder
    return str(existing(f"semisyn.references.{name}.images", reference.images))


def _patient_tables(references: Mapping[str, ReferenceSettings]) -> list[str]:
    """Return the tables of patients of references: the users' files, then those of references with own images."""
    return [
        str(existing_file(f"semisyn.references.{name}.patients", reference.patients))
        for name, reference in references.items()
        if reference.patients
    ] + [f"results/semisyn/references/{name}/images.parquet" for name in references if references[name].images]


def _run_options(
    detector_run: DetectorRun, options: dict, sizes: Sequence[int | str], references: dict[str, dict]
) -> dict:
    shared = {key: value for key, value in options.items() if key != "seeds"}
    extra_size = (detector_run.synthetic or sizes[-1]) if detector_run.extra else 0
    run_options = detector_run.as_dict() | {"extra_size": extra_size}
    return shared | run_options | {"references": [references[name] for name in detector_run.real]}


@dataclass(frozen=True)
class SemisynPlan:
    """What the rules of SemiSynCXR take from the settings. Paths are relative to Snakemake's working directory."""

    findings_file: str | list  # the user's findings, [] without
    labels: dict[str, str]  # {requested finding: its label}
    prior_files: dict[str, str | list[str]]  # {name: input files of the priors}
    prior_formats: list[str]  # modules that read them
    references: dict[str, list[str]]  # {prompts, readers or realism: the file of its reference, [] without}
    formats: dict[str, list[str]]  # {the same: the module that reads it}
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
    readers_sheets: list[str]  # the readers' filled sheets

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
        return options | {
            "own": options["own"].get(engine, {}),
            "choice": choice,
            "configs": {name: options["configs"][name] for name in configs},
        }

    def single_editing_options(self, options: dict, engine: str) -> Callable[[Any], dict]:
        """Return a function of a rule's wildcards that gives the options of an engine's edits of one configuration.

        Another list of configurations, or another choice, changes the options of no configuration that stays.
        """
        choice, configs = options["choice"], self.compared_configs
        if choice != SELECTION:
            choice = {finding: choice.get(finding, DEFAULT_CONFIG) for finding in options["findings"]}
            configs = sorted({*choice.values()})
        chosen_options = self.editing_options(options, engine, configs, choice) | {"parts": 1}
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

        return {f"edited_{name}": edited(name) for name in self.realism.metrics} | self.realism.real


def make_semisyn_plan(settings: Settings, options: dict[str, dict], shards: list[str]) -> SemisynPlan:
    """Return the plan; ``options``: of the stages.

    Raises UserError for a missing file, or a finding without a description.
    """
    system = settings.semisyn
    findings_file, labels = _read_findings(system)
    prior_files, prior_formats = _prior_inputs(system, findings_file, shards)
    healthy_files, healthy_options = _healthy_inputs(settings)
    editing = _editing_fields(settings)
    edited = [
        f"results/semisyn/editing/{engine}/chosen/{shard}.h5"
        for engine in editing["chosen_engines"]
        for shard in shards
    ]
    sizes = list(PARTS) if system.dataset.sizes == "auto" else system.dataset.sizes
    detectors = make_detectors_plan(settings, options["semisyn_detectors"], sizes, shards, edited)
    detection_files, detection_options = _detection_inputs(system, detectors)
    reference_names = {stage: getattr(system, stage).reference for stage in ("prompts", "readers", "realism")}
    return SemisynPlan(
        findings_file=findings_file,
        labels=labels,
        prior_files=prior_files,
        prior_formats=prior_formats,
        references={stage: [reference_file(system, name)] if name else [] for stage, name in reference_names.items()},
        formats={
            stage: [f"annotations.{system.references[name].format}"] if name else []
            for stage, name in reference_names.items()
        },
        healthy_files=healthy_files,
        healthy_options=healthy_options,
        **editing,
        shards=shards,
        trial_shards=[f"{part:02d}" for part in range(system.selection.parts)],
        realism=make_realism_plan(settings, shards),
        sizes=sizes,
        export_options=export_options(settings, options, labels),
        detectors=detectors,
        detection_files=detection_files,
        detection_options=detection_options,
        readers_sheets=find_sheets("semisyn.readers.sheets", system.readers.sheets),
    )


def _detection_inputs(system: SemisynSettings, detectors: DetectorsPlan) -> tuple[dict[str, list[str]], dict]:
    """Return the files of the scores of detectors, and the options that say which file is what.

    Raises UserError for predictions of an unknown reference.
    """
    runs, files, synthetic = [], [], {}
    for run, paths_by_reference in system.detection.predictions.items():
        for name, paths in paths_by_reference.items():
            key = f"semisyn.detection.predictions.{run}.{name}"
            if name not in system.references:
                reference_names = ", ".join(system.references) or "none"
                raise UserError(f"{key} is of no reference: semisyn.references has {reference_names}")
            runs += [[run, number, name] for number in range(len(paths))]
            files += [str(existing_file(key, path)) for path in paths]
    if system.detectors.runs or not system.detection.predictions:
        for *run_key, path in detectors.predictions():
            runs.append(run_key)
            files.append(path)
        synthetic = {run: run_options["synthetic"] for run, run_options in detectors.runs.items()}
    scored_names = {name for *_, name in runs}
    used = {name: reference for name, reference in system.references.items() if name in scored_names}
    return {
        "predictions": files,
        "patients": _patient_tables(used),
        "references": [reference_file(system, name) for name in used],
        "images": [IMAGES] if any(size in PARTS for size in synthetic.values()) else [],
    }, {
        "runs": runs,
        "references": [reference_options(name, reference) for name, reference in used.items()],
        "synthetic": synthetic,
        "prior_seen": [name for name in used if name == _fitted_reference(system)],
    }


def _read_findings(system: SemisynSettings) -> tuple[str | list, dict[str, str]]:
    """Return the user's file of findings, [] without one, and {requested finding: its label}."""
    path = str(existing_file("semisyn.findings_file", system.findings_file)) if system.findings_file else ""
    label_by_finding = read_labels(path) if path else FINDINGS
    names_by_key = {"findings": system.findings} | {
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
    system: SemisynSettings, findings_file: str | list, shards: list[str]
) -> tuple[dict[str, str | list[str]], list[str]]:
    """Return {name: files} that the priors are made from, and the modules that read them."""
    files, formats, uses_cohort = {"findings_file": findings_file}, [], False
    if name := _fitted_reference(system):
        reference = system.references[name]
        files["boxes"] = reference_file(system, name)
        formats.append(f"annotations.{reference.format}")
        uses_cohort = not reference.images
        if reference.images:
            own_files = {"own_images": "images.parquet", "own_frames": "frames.h5", "own_organs": "organs.h5"}
            files |= {key: f"results/semisyn/references/{name}/{file}" for key, file in own_files.items()}
    if system.priors.zones_table:
        files["zone_boxes"] = str(existing_file("semisyn.priors.zones_table", system.priors.zones_table))
        formats.append("annotations.chest_imagenome")
        uses_cohort = True
    if uses_cohort:
        files["images"] = COHORT
        files |= {stage: [f"results/{stage}/{shard}.h5" for shard in shards] for stage in ("frames", "organs")}
    return files, formats


def _editing_fields(settings: Settings) -> dict:
    """Return the plan's fields about the editing: engines and configurations."""
    system, section = settings.semisyn, settings.semisyn.editing
    package, duplicates = f"{PACKAGE}.editing", find_duplicates(system.compared)
    distinct = {name: config for name, config in system.compared.items() if name not in duplicates}
    engine_by_config = {name: config.engine for name, config in (section.configs | system.compared).items()}
    is_selected = section.choice == SELECTION
    names = distinct if is_selected else [section.choice.get(finding, DEFAULT_CONFIG) for finding in system.findings]
    chosen_engines = sorted({engine_by_config[name] for name in names})
    used = sorted({*chosen_engines, *(engine_by_config[name] for name in distinct)})
    return {
        "editing_files": {
            name: engine_folder_or_inputs(package, name, _section_dict(section, name), f"semisyn.editing.{name}")
            for name in used
        },
        "editing_gpus": {name: num_gpus(package, name, settings) for name in used},
        "engine_by_config": engine_by_config,
        "chosen_engines": chosen_engines,
        "compared_configs": list(distinct),
        "config_groups": {name: _group_configs(name, distinct) for name in used},
        "is_selected": is_selected,
    }


def _group_configs(engine: str, configs: Mapping[str, EditingConfig]) -> list[list[str]]:
    """Return groups of 2 to :data:`MAX_CONFIGS` of an engine's configurations whose shared work is done once."""
    keys, groups = read_declaration(f"{PACKAGE}.editing", engine, "SHARED_KEYS", ()), {}
    for name, config in configs.items():
        if config.engine == engine and keys:
            groups.setdefault(tuple(getattr(config, key) for key in keys), []).append(name)
    parts = (group[at : at + MAX_CONFIGS] for group in groups.values() for at in range(0, len(group), MAX_CONFIGS))
    return [part for part in parts if len(part) > 1]


def _healthy_inputs(settings: Settings) -> tuple[dict[str, str], dict]:
    """Return {name: input file of the healthy pool}, and its options that depend on which files exist.

    The references that are tested on, or that priors are fitted on, must not feed training data.
    """
    system, section, cohort = settings.semisyn, settings.semisyn.healthy, settings.cohort
    table = existing_file("semisyn.healthy.chexpert", section.chexpert) if section.chexpert else None
    if table is None and cohort.source == "mimic":  # MIMIC-CXR-JPG's, if it lies beside the other tables
        folders = [Path(cohort.tables)] if cohort.tables else []
        folders.append(mimic_base(cohort.root))
        endings = ("csv", "csv.gz")
        paths = [path for folder in folders for ending in endings for path in folder.glob(f"*-chexpert.{ending}")]
        table = min(paths, default=None)
    if section.labels == "chexpert" and table is None:
        raise UserError(
            "semisyn.healthy.labels is 'chexpert', but there is no table: name one in semisyn.healthy.chexpert"
        )
    stem, uses_table = "results/reports/{shard}", table is not None and section.labels != "reports"
    files = {"reports": f"{stem}.jsonl", "reports_excluded": f"{stem}.excluded.parquet"}
    files = {"chexpert": str(table)} if uses_table else files
    if cohort.source == "mimic" and (metadata := mimic_tables(cohort.root, cohort.tables).get("metadata")):
        files["metadata"] = str(metadata)
    package, name = f"{PACKAGE}.healthy", section.classifier
    files |= read_declaration(package, name, "INPUTS", {})
    files |= users_files(package, name, _section_dict(section, name), f"semisyn.healthy.{name}")
    references = {
        name: {"format": reference.format, "path": reference_file(system, name), "image_id": reference.image_id}
        for name, reference in system.references.items()
        if reference.role in (VAL, TEST) or name == _fitted_reference(system)
    }
    files |= {f"reference_{name}": reference["path"] for name, reference in references.items()}
    return files, {"labels": "chexpert" if uses_table else "reports", "references": references}
