"""SemiSynCXR's part of the plan of a run: options, input files, engines and detector runs of its stages."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cxr.annotations.formats import FOLDERS
from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.vocabulary import FINDINGS, SPLITS
from cxr.imaging.cohort.check import mimic_base, mimic_tables
from cxr.semisyn.editing.settings import EditingConfig
from cxr.semisyn.findings.catalogue import read_labels
from cxr.semisyn.references import TEST, TRAIN, VAL, ReferenceSettings
from cxr.semisyn.settings import (
    EMBEDDED_PER_FINDING,
    EMBEDDED_SEEDS,
    EMBEDDED_UPDATES,
    PER_FINDING,
    SEEDS,
    UPDATES,
    DetectorRun,
    SemisynSettings,
)
from cxr.semisyn.shared import CHOSEN_CONFIG, DEFAULT_CONFIG, PARTS, READERS_SEED, SELECTION, images_per_finding
from cxr.workflow.engine_files import engine_inputs, num_gpus, read_declaration
from cxr.workflow.plan_reporting import find_sheets
from cxr.workflow.settings import Settings

COHORT = "results/cohort/images.parquet"
IMAGES = "results/semisyn/dataset/images.parquet"
MAX_CONFIGS = 8
"""Maximum number of editing configurations in one job."""
EDITING_ENGINES = ("radedit", "diffusion")
"""Editing engines with a section of their own in the settings."""
DETECTOR_METRICS = {"auroc", "ap1070"}
"""Metrics of realism that are computed from lesion boxes, so they need neither real images nor image features."""
TRAINING_MEGABYTES = 4000
"""Memory in MB that the training of a detector needs in addition to its images."""


def semisyn_options(system: SemisynSettings, plain: dict) -> dict[str, dict]:
    """Return {stage: options} of SemiSynCXR as plain Python values. ``plain``: all settings as plain values."""
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
        | {"engine_settings": {name: editing.get(name, {}) | {key: editing[key] for key in ("dtype", "autoencoder")}
                               for name in EDITING_ENGINES}},
        "semisyn_measures": {"classes": realism["classes"]},
        "semisyn_realism": findings
        | seed
        | {"replicates": plain["replicates"]}
        | {name: realism[name] for name in ("classes", "reference")}
        | {"detector": plain["boxes"]["engine"], "classifier": sections["healthy"]["classifier"]},
        "semisyn_realism_reference": findings | {"reference": reference_of("realism")},
        "semisyn_selection": dpi
        | {name: selection[name] for name in ("metrics", "samples")}
        | {"configs": {name: configs[name] for name in system.compared}, "same_as": find_duplicates(system.compared)},
        "semisyn_dataset": findings | seed,
        "semisyn_detectors": findings | seed | _detector_options(sections, embedded),
        "semisyn_detection": findings
        | seed
        | {"against": detection["against"], "replicates": plain["replicates"]},
        "semisyn_detection_charts": dpi | {"against": detection["against"]},
        "semisyn_readers": findings | {"images": readers["images"], "reference": reference_of("readers")},
        "semisyn_readers_pages": {"experts": readers["experts"], "form": "readers", "seed": READERS_SEED}
        | {"fewer": "lower semisyn.readers.images", "synthetic": embedded},
        "semisyn_readers_answers": {"form": "readers", "setting": "semisyn.readers.sheets"},
        "semisyn_readers_tables": {"replicates": plain["replicates"], "readers": len(readers["experts"])},
    }  # fmt: skip


def _healthy_options(section: dict, embedded: bool) -> dict:
    """Return the options for selecting healthy images. ``embedded``: whether the cohort is the synthetic one."""
    unused = {"lite", "table"} - {section["classifier"]}
    options = {name: value for name, value in section.items() if name not in (*unused, "chexpert")}
    options["splits"] = section["splits"] or (list(SPLITS) if embedded else [SPLITS[0]])
    if section["devices"] == "auto":
        options["devices"] = "any" if embedded else "not_positive"
    return options


def _prior_options(system: SemisynSettings, plain: dict) -> dict:
    """Return the options for the priors of position and size. Without a reference to fit, its options are empty."""
    name = _fitted_reference(system)
    reference = system.references[name].as_dict() if name else {"format": "", "image_id": "", "classes": {}}
    return {
        "reference": name,
        **{key: reference[key] for key in ("format", "image_id", "classes")},
        "organ_engine": plain["organs"]["engine"] if name or system.priors.zones_table else "",
    } | ({"min_boxes": system.priors.min_boxes} if name else {})


def _detector_options(sections: dict, embedded: bool) -> dict:
    """Return the options of all detector runs. ``sections``: the settings ``semisyn`` as a dict.
    ``embedded``: whether the cohort is the project's synthetic cohort."""
    section, dataset = sections["detectors"], sections["dataset"]
    updates = section["updates"] or (EMBEDDED_UPDATES if embedded else UPDATES)
    return {name: section[name] for name in ("engine", "budget", "epochs")} | {
        "updates": 0 if section["budget"] == "epochs" else updates,  # the number of images and ``epochs`` decide
        "seeds": section["seeds"] or (EMBEDDED_SEEDS if embedded else SEEDS),
        "engine_settings": section[section["engine"]],
        "kind": dataset["boxes"],
        "target": dataset["target"],
    }


def find_duplicates(configs: Mapping[str, EditingConfig]) -> dict[str, str]:
    """Return {configuration: earlier configuration that makes the same images}, so that they are made only once."""
    first: dict[tuple, str] = {}
    earlier = {name: first.setdefault(config.effective(), name) for name, config in configs.items()}
    return {name: earlier_name for name, earlier_name in earlier.items() if earlier_name != name}


def export_options(settings: Settings, options: dict[str, dict], labels: dict[str, str]) -> dict:
    """Return the options of the dataset's exports. ``options``: {stage: options}. ``labels``: {finding: its label}."""
    section, release = settings.semisyn.dataset, settings.release
    withheld = release.kinds() if section.withhold else []
    return {
        "findings": settings.semisyn.findings,
        "kind": section.boxes,
        "target": section.target,
        "pixels": section.pixels,
        "withhold": withheld,
        "salt": release.salt if "ids" in withheld else "",
        "frames": options["decoding"] if section.pixels == "original" else {},
        "labels": labels,
    }


def reference_options(name: str, reference: ReferenceSettings) -> dict:
    """Return the name and settings of a reference (experts' annotations), without its tables of patients and images."""
    return {"name": name} | reference.as_dict(without=("patients", "images"))


def reference_file(system: SemisynSettings, name: str) -> str:
    """Return the path of a reference's annotations, a file or folder. Raises UserError if the path is missing."""
    reference, key = system.references[name], f"semisyn.references.{name}.path"
    return str((existing_folder if reference.format in FOLDERS else existing_file)(key, reference.path))


def _fitted_reference(system: SemisynSettings) -> str:
    """Return the name of the reference to which the priors are fitted, "" if they are the paper's."""
    return system.priors.reference if system.priors.source == "fit" else ""


class RealismPlan:
    """Metrics, files and GPUs of the engines that compute image features in the stage ``semisyn_realism``.
    Without a reference, an engine does not run if all its metrics need real images."""

    def __init__(self, settings: Settings, shards: Sequence[str]):
        """``shards``: names of the cohort's shards. Raises UserError if a file is missing or no metric is available."""
        section = settings.semisyn.realism
        metrics = {name: read_declaration("cxr.semisyn.realism", name, "METRICS", {}) for name in section.features}
        metrics = {name: names for name, names in metrics.items() if section.reference or "similarity" in names}
        available = DETECTOR_METRICS | ({"c2st"} if section.reference else set())
        for names in metrics.values():
            available |= {name for kind, name in names.items() if section.reference or kind == "similarity"}
        selection_metrics = settings.semisyn.selection.metrics
        if not available & set(selection_metrics):
            raise UserError(
                f"semisyn.selection.metrics is {', '.join(selection_metrics)}, but semisyn.realism computes only "
                f"{', '.join(sorted(available))}: choose from these, or set semisyn.realism.reference and features"
            )
        self.metrics: dict[str, dict[str, str]] = metrics  # {engine: {kind of metric: its name}}
        # {engine: its input files}
        self.files = {name: engine_inputs("semisyn.realism", name, section.as_dict()) for name in metrics}
        self.gpus = {name: num_gpus("semisyn.realism", name, settings) for name in metrics}
        # {engine: settings that affect its features}
        self.engine_settings = {name: {"sha256": section.clip.sha256} if name == "clip" else {} for name in metrics}
        # {name of an input of the scoring rule: files with features of real images}
        self.real = {
            f"real_{name}": [f"results/semisyn/realism/{shard}.{name}.features.h5" for shard in shards]
            for name, names in metrics.items()
            if section.reference and set(names) != {"similarity"}
        }


class DetectorsPlan:
    """Detector runs, and the files that each run is trained and scored on.

    A reference, a set of images with boxes drawn by experts, is used if a detector is trained or scored on it. It is
    also used if priors are fitted on it and its images are not the cohort's.
    """

    def __init__(
        self, settings: Settings, options: dict, sizes: Sequence[int | str], shards: Sequence[str], edited: list[str]
    ):
        """Derive the plan. Raises UserError for a missing file.

        ``options``: options that all runs share. ``sizes``: numbers of synthetic images, or parts of the dataset such
        as "half". ``edited``: files of edited images.
        """
        system, section = settings.semisyn, settings.semisyn.detectors
        self.engine = section.engine
        self.engine_files = engine_inputs("semisyn.detectors", self.engine, section.as_dict())
        self.gpus = num_gpus("semisyn.detectors", self.engine, settings)
        self.numbers = list(range(options["seeds"]))
        runs = section.runs or _default_runs(system, sizes)
        # references with the role val or test
        self.scored = [name for name, reference in system.references.items() if reference.role in (VAL, TEST)]
        self._validated = [name for name in self.scored if system.references[name].role == VAL]
        used = {
            name: reference
            for name, reference in system.references.items()
            if name in self.scored
            or any(name in run.real for run in runs.values())
            or (name == _fitted_reference(system) and reference.images)
        }
        # {used reference: its options}, {…: path of its annotations}, {…: path of its images, if not the cohort's};
        # frames: {used reference: files with its frames}
        self.references = {name: reference_options(name, reference) for name, reference in used.items()}
        self.annotations = {name: reference_file(system, name) for name in used}
        self.image_sources = {name: _image_source(name, used[name]) for name in used if used[name].images}
        self._cohort = [f"results/frames/{shard}.h5" for shard in shards]
        self._own_frames = {name: f"results/semisyn/references/{name}/frames.h5" for name in self.image_sources}
        self.frames = {name: [self._own_frames[name]] if name in self._own_frames else self._cohort for name in used}
        # modules that read the annotations of used references
        self.formats = sorted({f"annotations.{reference.format}" for reference in used.values()})
        patients = [COHORT, *_patient_tables(used)]
        # {run: its options}, {run: input files of its trainings}
        self.runs = {name: self._run_options(run, options, sizes) for name, run in runs.items()}
        self.inputs = {name: self._training_inputs(run, patients, edited) for name, run in runs.items()}
        # inputs of the check that no patient is in both training and test images
        self.role_inputs: dict = {"annotations": list(self.annotations.values()), "patients": patients}
        if any(run.uses_synthetic for run in runs.values()):
            self.role_inputs["images"] = IMAGES

    def _run_options(self, run: DetectorRun, options: dict, sizes: Sequence[int | str]) -> dict:
        run_options = {key: value for key, value in options.items() if key != "seeds"} | run.as_dict()
        run_options["extra_size"] = (run.synthetic or sizes[-1]) if run.extra else 0
        run_options["references"] = [self.references[name] for name in run.real]
        if self._validated:
            run_options["validation"] = [self.references[name] for name in self._validated]
        return run_options

    def _training_inputs(self, run: DetectorRun, patients: list[str], edited: list[str]) -> dict:
        names = [*run.real, *self._validated]
        files: dict = {"patients": patients, "references": [self.annotations[name] for name in run.real]}
        if self._validated:
            files["validation"] = [self.annotations[name] for name in self._validated]
        files |= {f"frames_{name}": self._own_frames[name] for name in names if name in self._own_frames}
        if "unedited" in run.extra or any(name not in self.image_sources for name in names):
            files["frames"] = self._cohort
        if run.uses_synthetic:
            files |= {"images": IMAGES, "boxes": "results/semisyn/dataset/boxes.parquet", "edited": edited}
        return files

    def predictions(self) -> list[tuple[str, int, str, str]]:
        """Return (run, number of the seed, reference, predictions) for each reference that detectors are scored on."""
        run_keys = [(run, number, name) for run in self.runs for name in self.scored for number in self.numbers]
        return [(*run_key, "results/semisyn/detection/{}.s{}/{}.parquet".format(*run_key)) for run_key in run_keys]

    def listing_options(self, reference: str) -> dict:
        """Return the options for listing a reference's images. They depend neither on its labels nor on its role."""
        return {name: self.references[reference][name] for name in ("name", "format", "path", "image_id")}

    def megabytes(self, run: str) -> int:
        """Return the memory in MB for training a detector run, including the images that the engine lite keeps."""
        options = self.runs[run]
        sizes = [options["synthetic"], *[options["extra_size"]] * len(options["extra"])]
        num_findings = len(options["findings"])
        num_images = num_findings * sum(images_per_finding(size, PER_FINDING, num_findings) for size in sizes if size)
        return TRAINING_MEGABYTES + num_images * options["engine_settings"].get("size", 0) ** 2 // 10**6


def _default_runs(system: SemisynSettings, sizes: Sequence[int | str]) -> dict[str, DetectorRun]:
    """Return the paper's runs and the controls ``unedited`` and ``shuffled``. ``sizes``: as for DetectorsPlan.
    If no reference has the role train, return only ``synthetic`` and ``shuffled``, which need no real images."""
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


def _image_source(name: str, reference: ReferenceSettings) -> str:
    existing = existing_file if reference.images.endswith((".csv", ".parquet")) else existing_folder
    return str(existing(f"semisyn.references.{name}.images", reference.images))


def _patient_tables(references: Mapping[str, ReferenceSettings]) -> list[str]:
    """Return the tables of the patients whose images have experts' boxes: the users' files, then the workflow's."""
    return [
        str(existing_file(f"semisyn.references.{name}.patients", reference.patients))
        for name, reference in references.items()
        if reference.patients
    ] + [f"results/semisyn/references/{name}/images.parquet" for name in references if references[name].images]


class EditingPlan:
    """Configurations of the editing, and the engines that edit images with them."""

    def __init__(self, settings: Settings):
        """Derive the plan. Raises UserError for a missing folder."""
        system, section = settings.semisyn, settings.semisyn.editing
        duplicates = find_duplicates(system.compared)
        distinct = {name: config for name, config in system.compared.items() if name not in duplicates}
        self._engine_by_config = {name: config.engine for name, config in (section.configs | system.compared).items()}
        # whether the stage semisyn_selection selects the configuration of each finding, together named `chosen`
        self.is_selected = section.choice == SELECTION
        names = distinct if self.is_selected else {section.choice.get(name, DEFAULT_CONFIG) for name in system.findings}
        # engines of the configurations in `chosen`
        self.chosen_engines = sorted({self._engine_by_config[name] for name in names})
        self.compared_configs = list(distinct)  # configurations that the selection compares, without duplicates
        self.engines = sorted({*self.chosen_engines, *(self._engine_by_config[name] for name in distinct)})
        # {engine: its input files}, {engine: its GPUs}, {engine: groups of compared configurations, one job each}
        self.files = {name: engine_inputs("semisyn.editing", name, section.as_dict()) for name in self.engines}
        self.gpus = {name: num_gpus("semisyn.editing", name, settings) for name in self.engines}
        self.groups = {name: _group_configs(name, distinct) for name in self.engines}

    def engines_of(self, config: str) -> list[str]:
        """Return the engines that make a configuration's images: several for ``chosen``, the best for each finding."""
        return self.chosen_engines if config == CHOSEN_CONFIG else [self._engine_by_config[config]]

    def ungrouped_pattern(self, engine: str) -> str:
        """Return a regular expression of an engine's configurations that are edited in a job each, not in a group."""
        names = "|".join(re.escape(name) for group in self.groups[engine] for name in group)
        return (f"(?!(?:{names})/)" if names else "") + r"[A-Za-z0-9][A-Za-z0-9_.-]*"

    def options(self, stage_options: dict, engine: str, configs: Sequence[str], choice: dict | str) -> dict:
        """Return the options for making the images of some configurations with an engine. ``choice``: what the
        configuration ``chosen`` stands for, {finding: configuration}, or "selection" if a stage decides it."""
        return stage_options | {
            "engine_settings": stage_options["engine_settings"].get(engine, {}),
            "choice": choice,
            "configs": {name: stage_options["configs"][name] for name in configs},
        }

    def single_options(self, stage_options: dict, engine: str) -> Callable[[Any], dict]:
        """Return a function that returns the options for editing one configuration, given by a rule's wildcards.
        The options of a configuration do not depend on other configurations, so adding one reruns no other."""
        choice, configs = stage_options["choice"], self.compared_configs
        if choice != SELECTION:
            choice = {finding: choice.get(finding, DEFAULT_CONFIG) for finding in stage_options["findings"]}
            configs = sorted({*choice.values()})
        chosen_options = self.options(stage_options, engine, configs, choice) | {"parts": 1}
        return lambda wildcards: (
            chosen_options
            if wildcards.config == CHOSEN_CONFIG
            else self.options(stage_options, engine, [wildcards.config], {})
        )


def _group_configs(engine: str, configs: Mapping[str, EditingConfig]) -> list[list[str]]:
    """Return groups of 2 to :data:`MAX_CONFIGS` configurations of an engine that share part of the computation."""
    keys, groups = read_declaration("cxr.semisyn.editing", engine, "SHARED_KEYS", ()), {}
    for name, config in configs.items():
        if config.engine == engine and keys:
            groups.setdefault(tuple(getattr(config, key) for key in keys), []).append(name)
    parts = (group[at : at + MAX_CONFIGS] for group in groups.values() for at in range(0, len(group), MAX_CONFIGS))
    return [part for part in parts if len(part) > 1]


class SemisynPlan:
    """Files and options for SemiSynCXR's rules, from the settings. Paths are relative to the working directory."""

    def __init__(self, settings: Settings, options: dict[str, dict], shards: list[str]):
        """Derive the plan. ``options``: {stage: its options}. ``shards``: names of the cohort's shards.
        Raises UserError for a missing file or a finding without a description."""
        system = settings.semisyn
        # file with findings of the user, [] for none; {requested finding: its label}
        self.findings_file, self.labels = _read_findings(system)
        # {question of the readers' form: {answer: label}} for findings that the user adds or renames
        own_labels = {name: label for name, label in self.labels.items() if FINDINGS.get(name) != label}
        self.form_labels = {"finding": own_labels} if own_labels else {}
        self.prior_files, self.prior_formats = _prior_inputs(system, self.findings_file, shards)
        # these options depend on which files exist
        self.healthy_files, self.healthy_options = _healthy_inputs(settings)
        self.editing = EditingPlan(settings)
        self.realism = RealismPlan(settings, shards)
        self.shards = shards
        # names of the shards of every configuration except `chosen`
        self.trial_shards = [f"{part:02d}" for part in range(system.selection.parts)]
        # sizes of the exports: numbers of images of all findings together, or names of parts of the dataset
        self.sizes = list(PARTS) if system.dataset.sizes == "auto" else system.dataset.sizes
        self.export_options = export_options(settings, options, self.labels)
        edited = [
            f"results/semisyn/editing/{engine}/chosen/{shard}.h5"
            for engine in self.editing.chosen_engines
            for shard in shards
        ]
        self.detectors = DetectorsPlan(settings, options["semisyn_detectors"], self.sizes, shards, edited)
        self.detection_files, self.detection_options = _detection_inputs(system, self.detectors)
        # {prompts, readers or realism: [path of its reference]}, and {…: [module that reads it]}; [] for none
        names = {stage: getattr(system, stage).reference for stage in ("prompts", "readers", "realism")}
        self.references = {stage: [reference_file(system, name)] if name else [] for stage, name in names.items()}
        self.formats = {
            stage: [f"annotations.{system.references[name].format}"] if name else [] for stage, name in names.items()
        }
        self.readers_sheets = find_sheets("semisyn.readers.sheets", system.readers.sheets)

    def shards_of(self, config: str) -> list[str]:
        """Return the shard names of a configuration's images: the cohort's for ``chosen``, else ``trial_shards``."""
        return self.shards if config == CHOSEN_CONFIG else self.trial_shards

    def source_shards(self, wildcards: Any) -> list[str]:
        """Return the cohort's shards from which a shard of edited images is made: one for ``chosen``, otherwise all."""
        return [wildcards.shard] if wildcards.config == CHOSEN_CONFIG else self.shards

    def edited_features(self, engine: str, wildcards: Any) -> list[str]:
        """Return the files with an engine's features of the images that were edited with a configuration."""
        stem = f"results/semisyn/realism/{wildcards.config}"
        return [f"{stem}/{shard}.{engine}.features.h5" for shard in self.shards_of(wildcards.config)]


def _detection_inputs(system: SemisynSettings, detectors: DetectorsPlan) -> tuple[dict[str, list[str]], dict]:
    """Return ({name of an input: files}, options that say what each file is) for the rule that scores detectors.
    Raises UserError for predictions on an unknown reference."""
    runs, files, synthetic = [], [], {}
    for run, paths_by_reference in system.detection.predictions.items():
        for name, paths in paths_by_reference.items():
            key = f"semisyn.detection.predictions.{run}.{name}"
            if name not in system.references:
                reference_names = ", ".join(system.references) or "none"
                raise UserError(f"{key}: {name!r} is not in semisyn.references ({reference_names}): correct the name")
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
    """Return (file with findings of the user or [], {requested finding: label}). Raises UserError for a wrong name."""
    path = str(existing_file("semisyn.findings_file", system.findings_file)) if system.findings_file else ""
    label_by_finding = read_labels(path) if path else FINDINGS
    names_by_key = {"findings": system.findings} | {
        f"references.{name}.classes": set(reference.classes.values()) for name, reference in system.references.items()
    }
    for key, names in names_by_key.items():
        if unknown := [name for name in names if name not in label_by_finding]:
            raise UserError(
                f"semisyn.{key} names {unknown[0]!r}, but the findings are {', '.join(label_by_finding)}: "
                "correct the name, or describe the finding in semisyn.findings_file"
            )
    return path or [], {name: label_by_finding[name] for name in system.findings}


def _prior_inputs(
    system: SemisynSettings, findings_file: str | list, shards: list[str]
) -> tuple[dict[str, str | list[str]], list[str]]:
    """Return ({name of an input: files} from which the priors are made, modules that read these files)."""
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


def _healthy_inputs(settings: Settings) -> tuple[dict[str, str], dict]:
    """Return ({name of an input: file}, options that depend on which files exist) for selecting healthy images.
    Images of references for validation, test or priors are listed, because training data must not contain them."""
    system, section, cohort = settings.semisyn, settings.semisyn.healthy, settings.cohort
    table = existing_file("semisyn.healthy.chexpert", section.chexpert) if section.chexpert else None
    if table is None and cohort.source == "mimic":  # the table of MIMIC-CXR-JPG, if it is beside the other tables
        folders = [Path(cohort.tables)] if cohort.tables else []
        folders.append(mimic_base(cohort.root))
        endings = ("csv", "csv.gz")
        paths = [path for folder in folders for ending in endings for path in folder.glob(f"*-chexpert.{ending}")]
        table = min(paths, default=None)
    if section.labels == "chexpert" and table is None:
        raise UserError(
            "semisyn.healthy.labels is 'chexpert', but no table of these labels was found: set semisyn.healthy.chexpert"
        )
    stem, uses_table = "results/reports/{shard}", table is not None and section.labels != "reports"
    files = {"reports": f"{stem}.jsonl", "reports_excluded": f"{stem}.excluded.parquet"}
    files = {"chexpert": str(table)} if uses_table else files
    if cohort.source == "mimic" and (metadata := mimic_tables(cohort.root, cohort.tables).get("metadata")):
        files["metadata"] = str(metadata)
    files |= engine_inputs("semisyn.healthy", section.classifier, section.as_dict())
    references = {
        name: {"format": reference.format, "path": reference_file(system, name), "image_id": reference.image_id}
        for name, reference in system.references.items()
        if reference.role in (VAL, TEST) or name == _fitted_reference(system)
    }
    files |= {f"reference_{name}": reference["path"] for name, reference in references.items()}
    return files, {"labels": "chexpert" if uses_table else "reports", "references": references}
