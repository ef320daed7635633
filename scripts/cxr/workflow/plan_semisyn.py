"""The plan of SemiSynCXR: what its rules take from the settings besides their options, made at the parse."""

from dataclasses import dataclass
from pathlib import Path

from cxr.annotations.formats import FOLDERS
from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.vocabulary import FINDINGS
from cxr.imaging.cohort.check import mimic_base, mimic_tables
from cxr.semisyn.findings.catalogue import names_of
from cxr.workflow.engine_files import declared
from cxr.workflow.settings import Settings

PACKAGE = "cxr.semisyn"
TESTED = ("validate", "val", "test")
"""Roles of references whose patients must not feed training data."""


@dataclass(frozen=True)
class SemisynPlan:
    """What the rules of SemiSynCXR take from the settings. Paths are relative to Snakemake's working directory.

    healthy: input files of the healthy pool's rule, by name; healthy_told: those of its options that depend on which
    files there are. detection, detection_told: likewise of the scores of detectors. findings_file: the
    user's findings, [] without. priors: input files of the priors' rule, by name; priors_formats: modules that read
    them.
    """

    findings_file: str | list
    priors: dict[str, str | list[str]]
    priors_formats: list[str]
    healthy: dict[str, str]
    healthy_told: dict
    detection: dict[str, list[str]]
    detection_told: dict


def make_semisyn(settings: Settings, shards: list[str]) -> SemisynPlan:
    """Return the plan. Raises UserError for a missing file, or a finding that nothing describes."""
    priors, formats = _priors(settings, shards)
    references = _references(settings)
    labels, files = _labels(settings)
    files |= _metadata(settings) | _classifier(settings)
    files |= {f"reference_{name}": told["path"] for name, told in references.items()}
    detection, detection_told = _detection(settings)
    return SemisynPlan(
        findings_file=_findings(settings),
        priors=priors,
        priors_formats=formats,
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
    fitted = system.priors.reference if system.priors.source == "fit" else ""
    return {"predictions": files, "patients": tables, "references": paths}, {
        "runs": runs,
        "references": told,
        "prior_seen": [name for name in used if name == fitted],
    }


def _findings(settings: Settings) -> str | list:
    """Return the user's file of findings, [] without one."""
    system = settings.semisyn
    path = str(existing_file("semisyn.findings_file", system.findings_file)) if system.findings_file else ""
    known = names_of(path) if path else list(FINDINGS)
    asked = {"findings": system.findings, "placement.unsided": system.placement.unsided}
    asked |= {f"references.{name}.classes": set(told.classes.values()) for name, told in system.references.items()}
    for key, names in asked.items():
        if unknown := [name for name in names if name not in known]:
            raise UserError(
                f"semisyn.{key} names {unknown[0]!r}, but the findings are {', '.join(known)}: "
                "correct it, or describe it in semisyn.findings_file"
            )
    return path or []


def _priors(settings: Settings, shards: list[str]) -> tuple[dict[str, str | list[str]], list[str]]:
    """Return the files that the priors are made from, and the modules that read them."""
    chosen, files, formats = settings.semisyn.priors, {"findings_file": _findings(settings)}, []
    if chosen.source == "fit":
        told, key = settings.semisyn.references[chosen.reference], f"semisyn.references.{chosen.reference}.path"
        exists = existing_folder if told.format in FOLDERS else existing_file
        files["boxes"] = str(exists(key, told.path))
        formats.append(f"annotations.{told.format}")
    if chosen.zones == "fit":
        files["zone_boxes"] = str(existing_file("semisyn.priors.zones_table", chosen.zones_table))
        formats.append("annotations.chest_imagenome")
    if formats:
        files["images"] = "results/cohort/images.parquet"
        files |= {stage: [f"results/{stage}/{shard}.h5" for shard in shards] for stage in ("frames", "organs")}
    return files, formats


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
    fitted = system.priors.reference if system.priors.source == "fit" else ""
    return {
        name: {"format": told.format, "path": told.path, "image_id": told.image_id}
        for name, told in system.references.items()
        if told.role in TESTED or name == fitted
    }
