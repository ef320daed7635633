"""The plan of SemiSynCXR: what its rules take from the settings besides their options, made at the parse."""

from dataclasses import dataclass
from pathlib import Path

from cxr.base.errors import UserError, existing_file
from cxr.imaging.cohort.check import mimic_base, mimic_tables
from cxr.workflow.engine_files import declared
from cxr.workflow.settings import Settings

PACKAGE = "cxr.semisyn"
TESTED = ("validate", "val", "test")
"""Roles of references whose patients must not feed training data."""


@dataclass(frozen=True)
class SemisynPlan:
    """What the rules of SemiSynCXR take from the settings. Paths are relative to Snakemake's working directory.

    healthy: input files of the healthy pool's rule, by name; healthy_told: those of its options that depend on which
    files there are. detection, detection_told: likewise of the scores of detectors.
    """

    healthy: dict[str, str]
    healthy_told: dict
    detection: dict[str, list[str]]
    detection_told: dict


def make_semisyn(settings: Settings) -> SemisynPlan:
    """Return the plan. Raises UserError for a missing file."""
    references = _references(settings)
    labels, files = _labels(settings)
    files |= _metadata(settings) | _classifier(settings)
    files |= {f"reference_{name}": told["path"] for name, told in references.items()}
    detection, detection_told = _detection(settings)
    return SemisynPlan(
        healthy=files,
        healthy_told={"labels": labels, "references": references},
        detection=detection,
        detection_told=detection_told,
    )


def _detection(settings: Settings) -> tuple[dict[str, list[str]], dict]:
    """Return the files of the scores of detectors, and the options that tell which file is what.

    Raises UserError for predictions of a reference that is not there.
    """
    system = settings.semisyn
    runs, files = [], []
    for run, of in system.detection.predictions.items():
        for name, paths in of.items():
            key = f"semisyn.detection.predictions.{run}.{name}"
            if name not in system.references:
                known = ", ".join(system.references) or "none"
                raise UserError(f"{key} is of no reference: semisyn.references has {known}")
            runs += [[run, number, name] for number in range(len(paths))]
            files += [str(existing_file(key, path)) for path in paths]
    used = {name: told for name, told in system.references.items() if any(name == of for *_, of in runs)}
    told = [{"name": name} | one.model_dump(exclude={"patients"}) for name, one in used.items()]
    tables = [str(existing_file(f"semisyn.references.{n}.patients", o.patients)) for n, o in used.items() if o.patients]
    paths = [str(existing_file(f"semisyn.references.{name}.path", one.path)) for name, one in used.items()]
    fitted = getattr(getattr(system, "priors", None), "reference", "")
    return {"predictions": files, "patients": tables, "references": paths}, {
        "runs": runs,
        "references": told,
        "prior_seen": [name for name in used if name == fitted],
    }


def _labels(settings: Settings) -> tuple[str, dict[str, str]]:
    """Return the source of the labels, and its files."""
    chosen = settings.semisyn.healthy
    table = existing_file("semisyn.healthy.chexpert", chosen.chexpert) if chosen.chexpert else _of_tables(settings)
    if chosen.labels == "chexpert" and table is None:
        raise UserError(
            "semisyn.healthy.labels is 'chexpert', but there is no table: name one in semisyn.healthy.chexpert"
        )
    if table is not None and chosen.labels != "reports":
        return "chexpert", {"chexpert": str(table)}
    stem = "results/reports/{shard}"
    return "reports", {"reports": f"{stem}.jsonl", "reports_excluded": f"{stem}.excluded.parquet"}


def _of_tables(settings: Settings) -> Path | None:
    """Return MIMIC-CXR-JPG's table of CheXpert labels, where it lies beside the other tables."""
    if settings.cohort.source != "mimic":
        return None
    folders = [Path(settings.cohort.tables)] if settings.cohort.tables else []
    folders.append(mimic_base(settings.cohort.root))
    found = [path for folder in folders for ending in ("csv", "csv.gz") for path in folder.glob(f"*-chexpert.{ending}")]
    return min(found, default=None)


def _metadata(settings: Settings) -> dict[str, str]:
    if settings.cohort.source != "mimic":
        return {}
    found = mimic_tables(settings.cohort.root, settings.cohort.tables).get("metadata")
    return {"metadata": str(found)} if found else {}


def _classifier(settings: Settings) -> dict[str, str]:
    """Return the files of the classifier: other rules' results, and a user's own."""
    chosen = settings.semisyn.healthy
    package, name = f"{PACKAGE}.healthy", chosen.classifier
    own = {
        key: str(existing_file(f"semisyn.healthy.{name}.{key}", getattr(getattr(chosen, name), key)))
        for key in declared(package, name, "FILES", ())
    }
    return declared(package, name, "INPUTS", {}) | own


def _references(settings: Settings) -> dict[str, dict[str, str]]:
    """Return {name: format, path, image_id} of the references that are tested on or that priors are fitted on."""
    system = settings.semisyn
    fitted = getattr(getattr(system, "priors", None), "reference", "")
    return {
        name: {"format": told.format, "path": told.path, "image_id": told.image_id}
        for name, told in getattr(system, "references", {}).items()
        if told.role in TESTED or name == fitted
    }
