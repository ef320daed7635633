"""The plan of the detectors of SemiSynCXR: their runs, and the files that each is trained on and scored against."""

from collections.abc import Sequence
from dataclasses import dataclass

from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.semisyn.references import TEST, TRAIN, VAL
from cxr.semisyn.shared import PARTS, images_per_finding
from cxr.workflow.engine_files import declared
from cxr.workflow.plan_semisyn_references import reference_file, told_of
from cxr.workflow.settings import Settings
from cxr.workflow.settings.semisyn.dataset import PER_FINDING
from cxr.workflow.settings.semisyn.detectors import DetectorRun
from cxr.workflow.settings.semisyn.references import Reference

PACKAGE = "cxr.semisyn.detectors"
IMAGES = "results/semisyn/dataset/images.parquet"
COHORT = "results/cohort/images.parquet"
MEGABYTES = 4000
"""Memory of a training without its images."""


@dataclass(frozen=True)
class DetectorsPlan:
    """What the detectors' rules take from the settings. Paths are relative to Snakemake's working directory.

    engine, engine_files, gpus: the engine, its input files and its number of GPUs. runs: {run: its options}; inputs:
    {run: input files of its trainings, by name}; megabytes: {run: memory}; numbers: of the seeds. references: {name:
    what the settings tell of it} of those that are learnt, scored, or fitted on their own images; annotations, frames:
    their files; pictures: {name: its pictures} of those that are not the cohort's; formats: modules that read them.
    scored: names of those with another role than train; roles: input files of the check of all. score_own: whether the
    stage semisyn_detection scores these detectors.
    """

    engine: str
    engine_files: dict[str, str]
    gpus: int
    runs: dict[str, dict]
    inputs: dict[str, dict[str, str | list[str]]]
    megabytes: dict[str, int]
    numbers: list[int]
    references: dict[str, dict]
    annotations: dict[str, str]
    frames: dict[str, list[str]]
    pictures: dict[str, str]
    formats: list[str]
    scored: list[str]
    roles: dict[str, str | list[str]]
    score_own: bool

    def predictions(self) -> list[tuple[str, int, str, str]]:
        """Return run, number of the seed, reference and file of all predictions that semisyn_detection scores."""
        run_keys = [(run, number, name) for run in self.runs for name in self.scored for number in self.numbers]
        return [(*run_key, "results/semisyn/detection/{}.s{}/{}.parquet".format(*run_key)) for run_key in run_keys]

    def listed(self, reference: str) -> dict:
        """Return what the list of a reference's pictures depends on: its labels and its role change none of them."""
        return {name: self.references[reference][name] for name in ("name", "format", "path", "image_id")}

    def asked(self, run: str, reference: str) -> dict:
        """Return the options of a run's predictions on a reference."""
        return {name: self.runs[run][name] for name in ("engine", "own", "findings")} | {
            "reference": self.references[reference]
        }


def detectors_plan(
    settings: Settings, options: dict, sizes: Sequence[int | str], shards: Sequence[str], edited: list[str]
) -> DetectorsPlan:
    """Return the plan. ``options``: of all runs together; ``sizes``: those of the dataset; ``edited``: its shards.

    Raises UserError for a missing file, or a run with more images than the dataset has.
    """
    system, section = settings.semisyn, settings.semisyn.detectors
    runs = section.runs or default_runs(settings, sizes)
    learnt = [name for name in system.references if any(name in run.real for run in runs.values())]
    scored = [name for name, reference in system.references.items() if reference.role in (VAL, TEST)]
    fitted = fitted_on(settings)
    used = {name: reference for name, reference in system.references.items() if name in (*learnt, *scored, *fitted)}
    annotations = {name: reference_file(settings, name) for name in used}
    pictures = {name: _pictures(name, reference) for name, reference in used.items() if reference.images}
    cohort = [f"results/frames/{shard}.h5" for shard in shards]
    frames = {name: [_own(name)] if name in pictures else cohort for name in used}
    image_tables = [f"results/semisyn/references/{name}/images.parquet" for name in pictures]
    patients = [COHORT, *_patients(used), *image_tables]
    options_by_reference = {name: told_of(name, reference) for name, reference in used.items()}
    validation_names = [name for name in scored if system.references[name].role == VAL]
    validation_options = _validated(settings, [options_by_reference[name] for name in validation_names])
    options_by_run = {
        run: _options(run, detector_run, options, sizes, options_by_reference) | validation_options
        for run, detector_run in runs.items()
    }
    painted = any(_painted(detector_run) for detector_run in runs.values())
    gpu = min(1, settings.compute.gpus) if declared(PACKAGE, section.engine, "GPU", False) else 0
    return DetectorsPlan(
        engine=section.engine,
        engine_files=_engine_files(settings),
        gpus=gpu,
        runs=options_by_run,
        inputs={
            run: _inputs(detector_run, annotations, pictures, patients, cohort, edited, validation_names)
            for run, detector_run in runs.items()
        },
        megabytes={run: _megabytes(run_options) for run, run_options in options_by_run.items()},
        numbers=list(range(options["seeds"])),
        references=options_by_reference,
        annotations=annotations,
        frames=frames,
        pictures=pictures,
        formats=sorted({f"annotations.{reference.format}" for reference in used.values()}),
        scored=scored,
        roles={"annotations": list(annotations.values()), "patients": patients}
        | ({"images": IMAGES} if painted else {}),
        score_own=bool(section.runs) or not system.detection.predictions,
    )


def fitted_on(settings: Settings) -> list[str]:
    """Return the reference that priors are fitted on, if its images are its own, else nothing."""
    priors, references = settings.semisyn.priors, settings.semisyn.references
    return [priors.reference] if priors.source == "fit" and references[priors.reference].images else []


def default_runs(settings: Settings, sizes: Sequence[int | str]) -> dict[str, DetectorRun]:
    """Return the paper's runs and two controls; without a reference to learn from, what synthetic images alone give."""
    real = [name for name, reference in settings.semisyn.references.items() if reference.role == TRAIN]
    alone = {"synthetic": DetectorRun(synthetic=sizes[-1])}
    if not real:
        return alone | {"shuffled": DetectorRun(extra=["shuffled"])}
    return (
        {"real": DetectorRun(real=real)}
        | {f"real+{size}": DetectorRun(real=real, synthetic=size) for size in sizes}
        | alone
        | {name: DetectorRun(real=real, extra=[name]) for name in ("unedited", "shuffled")}
    )


def _own(name: str) -> str:
    return f"results/semisyn/references/{name}/frames.h5"


def _pictures(name: str, reference: Reference) -> str:
    key = f"semisyn.references.{name}.images"
    return str(
        existing_file(key, reference.images)
        if reference.images.endswith((".csv", ".parquet"))
        else existing_folder(key, reference.images)
    )


def _patients(used: dict[str, Reference]) -> list[str]:
    return [
        str(existing_file(f"semisyn.references.{n}.patients", reference.patients))
        for n, reference in used.items()
        if reference.patients
    ]


def _painted(run: DetectorRun) -> bool:
    return bool(run.synthetic or run.extra)


def _options(
    run: str,
    detector_run: DetectorRun,
    options: dict,
    sizes: Sequence[int | str],
    options_by_reference: dict[str, dict],
) -> dict:
    shared = {key: value for key, value in options.items() if key not in ("seeds", "per_finding")}
    extra_size = (detector_run.extra_size or detector_run.synthetic or sizes[-1]) if detector_run.extra else 0
    most = (options["per_finding"] or PER_FINDING) * len(options["findings"])
    for key, size in (("synthetic", detector_run.synthetic), ("extra_size", extra_size)):
        if size not in PARTS and size > most:
            raise UserError(
                f"semisyn.detectors.runs.{run}.{key} is {size}, but the dataset has {most} images: lower it, or raise "
                "semisyn.dataset.per_finding"
            )
    run_options = detector_run.as_dict() | {"extra_size": extra_size}
    return shared | run_options | {"references": [options_by_reference[name] for name in detector_run.real]}


def _validated(settings: Settings, references: list[dict]) -> dict:
    """Return the options of a training's validation scores; ``references`` describes the references of the role val."""
    scores = settings.semisyn.detection
    return {"validation": references, "ious": scores.ious, "recalls": scores.points} if references else {}


def _inputs(
    detector_run: DetectorRun,
    annotations: dict,
    pictures: dict,
    patients: list[str],
    cohort: list[str],
    edited: list[str],
    validation_names: list[str],
) -> dict[str, str | list[str]]:
    """Return the input files of a run's trainings by name; ``validation_names``: references that they are scored on."""
    used = [*detector_run.real, *validation_names]
    files: dict[str, str | list[str]] = {
        "patients": patients,
        "references": [annotations[name] for name in detector_run.real],
    }
    files |= {"validation": [annotations[name] for name in validation_names]} if validation_names else {}
    files |= {f"frames_{name}": _own(name) for name in used if name in pictures}
    if "unedited" in detector_run.extra or any(name not in pictures for name in used):
        files["frames"] = cohort
    if _painted(detector_run):
        files |= {"images": IMAGES, "boxes": "results/semisyn/dataset/boxes.parquet", "edited": edited}
    return files


def _megabytes(options: dict) -> int:
    """Return the memory of a training: the engine lite holds its images."""
    sizes = [options["synthetic"], *[options["extra_size"]] * len(options["extra"])]
    findings = len(options["findings"])
    images = findings * sum(images_per_finding(size, PER_FINDING, findings) for size in sizes if size)
    return MEGABYTES + images * options["own"].get("size", 0) ** 2 // 10**6


def _engine_files(settings: Settings) -> dict[str, str]:
    """Return the user's files of the engine. Raises UserError for one that is missing."""
    section = settings.semisyn.detectors
    engine_settings = getattr(section, section.engine)
    return {
        key: str(existing_file(f"semisyn.detectors.{section.engine}.{key}", getattr(engine_settings, key)))
        for key in declared(PACKAGE, section.engine, "FILES", ())
        if getattr(engine_settings, key)
    }
