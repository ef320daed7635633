"""Select the images of a shard that show no finding and in which both lungs and the heart were found."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from cxr.annotations.regions import image_name, read_annotations
from cxr.base.columns import Column, Columns, read_columns, schema
from cxr.base.engines import Setup, engine_module
from cxr.base.faults import broken_part
from cxr.base.hdf5 import Shard
from cxr.base.jobs import log, progress
from cxr.base.ledger import Ledger
from cxr.base.regular_files import open_regular
from cxr.base.resources import load_resource
from cxr.base.tables import read_lines, read_table, read_tables, write_rows, write_table
from cxr.base.user_tables import read_frame
from cxr.base.vocabulary import FINDINGS
from cxr.dicom.files import HEAD_BYTES, HeaderError, detect_file_kind, get_text, normalize_text, read_dicom
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.healthy import engine
from cxr.semisyn.healthy.engine import CRITERIA, STAGE, Exclusion
from cxr.semisyn.healthy.labels import ReportLabels, TableLabels
from cxr.semisyn.healthy.settings import HealthySettings

RESOURCE_FILES = ("semisyn/paper.yaml", "columns/semisyn_healthy.toml")
HEALTHY: Columns = {
    **read_columns("semisyn_healthy", "healthy"),
    **{
        f"score_{finding}": Column(pl.Float64, f"The classifier's score of {name.lower()}; null where it has none.")
        for finding, name in FINDINGS.items()
    },
    "labels": Column(pl.String, "Source of the labels: `chexpert` or `reports`."),
}
FUNNEL = read_columns("semisyn_healthy", "funnel")
METADATA = "PatientOrientationCodeSequence_CodeMeaning"
"""Column of MIMIC-CXR-JPG's metadata table with the patient's position."""
MANIFEST = "position"
"""Column of a manifest with the patient's position."""
FIELDS = ("PatientOrientationCodeSequence", "PatientPosition")
"""DICOM elements (0054,0410) and (0018,5100) with the position. The first that is understood counts."""
PATTERNS = {
    # first, because "semi-erect" contains "erect"
    "Semi-erect": r"\bSEMI[ -]?(?:ERECT|UPRIGHT|RECUMBENT)|\bF-10460\b",
    "Erect": r"\b(?:ERECT|UPRIGHT|STANDING|ORTHOSTATIC)\b|\bF-10440\b",
    "Sitting": r"\b(?:SITTING|SEATED)\b",
    "Recumbent": r"\b(?:RECUMBENT|SUPINE|PRONE|DECUBITUS|LYING|HFS|HFP|HFDR|HFDL|FFS|FFP|FFDR|FFDL)\b|\bF-10450\b",
}
"""{position: regular expression of texts that name it}. The first match counts."""


def run(
    *, shards: Sequence[str], excluded: str, images: str, funnel: str, options: HealthySettings,
    references: Iterable[str],
) -> None:  # fmt: skip
    """Concatenate the shards' tables into ``images``. Count in ``funnel`` the exclusions listed in ``excluded``."""
    healthy_images = read_tables(shards)
    write_table(images, healthy_images.sort("image_id"), HEALTHY)
    stopped = read_table(excluded).select("stage", "reason").iter_rows()
    paper = load_resource(RESOURCE_FILES[0])["healthy_images"]
    num_unknown = int((healthy_images["position"] == "").sum())
    table = funnel_table(stopped, len(healthy_images), describe_criteria(options, references, num_unknown), paper)
    write_table(funnel, table, FUNNEL)
    log.info("healthy: %d of %d images", len(healthy_images), table["in"][0])
    if not len(healthy_images):
        log.warning("healthy: no image passed, so no finding can be placed: %s counts the reasons", Path(funnel).name)


def describe_criteria(options: HealthySettings, references: Iterable[str], untold: int) -> dict[str, str]:
    """Return {criterion: its description}. ``untold``: number of healthy images of unknown position."""
    module = engine_module("cxr.semisyn.healthy", options.classifier)
    unseen = [finding for finding in FINDINGS if finding in getattr(module, "UNSEEN", ())]
    devices = {"not_positive": "no device", "negative": "devices denied", "any": "devices are not checked"}
    reference_names = ", ".join(references)
    return {
        "frame": "decoded, and chosen from its study",
        "view": f"view {' or '.join(options.views)}",
        "position": f"patient {' or '.join(options.positions)} (unknown for {untold} of the pool)",
        "reference": f"in no reference ({reference_names or 'none is set, so nobody is excluded'})",
        "split": f"split {' or '.join(options.splits)}",
        "labels": f"labelled by {options.labels}",
        "finding": "no finding",
        "device": devices[options.devices],
        "classifier": f"negative by {options.classifier}" + (f" (does not see {', '.join(unseen)})" if unseen else ""),
        "organs": "organs found",
        "heart": "a heart",
        "lungs": "two lungs apart",
    }


def funnel_table(
    stopped: Iterable[tuple[str, str]], healthy: int, sentences: Mapping[str, str], paper: int
) -> pl.DataFrame:
    """Return :data:`FUNNEL`: a row for each criterion, described by ``sentences``, then one for the healthy pool.
    ``stopped``: (stage, reason) of each excluded image; ``healthy``: size of the pool; ``paper``: that in the paper."""
    reasons: dict[str, Counter[str]] = {name: Counter() for name in CRITERIA}
    for stage, reason in stopped:
        reasons[engine.criterion_of(stage, reason)][reason] += 1
    num_remaining = healthy + sum(counts.total() for counts in reasons.values())
    rows = []
    for name, counts in reasons.items():
        reason_counts = ", ".join(f"{reason} {number}" for reason, number in sorted(counts.items()))
        rows.append((sentences[name], num_remaining, num_remaining - counts.total(), reason_counts, None))
        num_remaining -= counts.total()
    rows.append(("healthy", healthy, healthy, "", paper))
    return pl.DataFrame(rows, schema=schema(FUNNEL), orient="row")


def parse_position(text: str) -> str:
    """Return the position that a text from a table or a DICOM header names, or "" if it names none."""
    normalised = normalize_text(text)
    return next((name for name, pattern in PATTERNS.items() if re.search(pattern, normalised)), "")


def read_header_position(path: str | Path) -> str:
    """Return the patient's position from a DICOM header, or "" if there is none or the file is no readable DICOM."""
    try:
        with open_regular(path) as file:
            if detect_file_kind(file.read(HEAD_BYTES)) != "dicom":
                return ""
        header = read_dicom(path, list(FIELDS))
    except (OSError, HeaderError) as error:
        if broken_part(error):
            raise
        return ""
    return next(filter(None, (parse_position(get_text(header, name)) for name in FIELDS)), "")


def run_shard(
    *, shard: str, cohort: str, images: str, frames: str, frames_excluded: str, organs: str, organs_excluded: str,
    output: str, excluded: str, options: HealthySettings, references: Mapping[str, Mapping],
    compute: dict | None = None, **files: str,
) -> None:  # fmt: skip
    """Write the healthy images of a shard to ``output``, and all other images to ``excluded``, with the stage that
    excluded them. ``files``: files of labels (``chexpert`` or ``reports``, ``reports_excluded``), positions
    (``metadata``), references (``reference_<name>``) and the classifier. Raise UserError for a faulty file."""
    rows = read_table(cohort).sort("image_id").to_dicts()
    listed = read_table(images)
    image_ids = {row["image_id"] for row in rows}
    shard_images = listed.filter(pl.col("image_id").is_in(sorted(image_ids)))
    text_by_image = dict(shard_images.select("image_id", MANIFEST).iter_rows()) if MANIFEST in listed.columns else {}
    if metadata := files.get("metadata"):
        table = read_frame(metadata, "cohort.tables", ("dicom_id", METADATA), ids=("dicom_id",))
        text_by_image |= dict(table.select("dicom_id", METADATA).iter_rows()) if METADATA in table.columns else {}
    positions = {text: parse_position(text or "") for text in set(text_by_image.values())}
    position_by_image = {image: positions[text] for image, text in text_by_image.items() if positions[text]}
    reserved: dict[str, str] = {}  # {image_id: reference that has it, or another image of its patient}
    for name, settings in references.items():
        annotations = read_annotations(f"semisyn.references.{name}.path", settings["path"], settings["format"])
        reserved_ids = {image_name(settings["image_id"], image) for image in annotations.image_names}
        reserved_images = listed.filter(pl.col("image_id").is_in(sorted(reserved_ids)))
        if options.exclude_patients:
            reserved_images = listed.join(reserved_images.select("subject_id").unique(), on="subject_id", how="semi")
        reserved = dict.fromkeys(reserved_images["image_id"], name) | reserved
    frame_faults, organ_faults = _read_faults("frames", frames_excluded), _read_faults("organs", organs_excluded)
    classifier_module = engine_module("cxr.semisyn.healthy", options.classifier)
    classifier = classifier_module.load(options, Setup.of_job(files, compute, options.classifier))
    if options.labels == TableLabels.name:
        labels = TableLabels(files["chexpert"], options.devices)
    else:
        reasons = dict(read_table(files["reports_excluded"]).select("image_id", "reason").iter_rows())
        labels = ReportLabels(read_lines(files["reports"]), reasons, options.devices)

    def check_image(image: Mapping[str, str]) -> Exclusion | dict:
        """Check all criteria in order. Return why the image is excluded, or its row of :data:`HEALTHY`."""
        name = image["image_id"]
        if name in frame_faults:
            return frame_faults[name]
        if image["view"] not in options.views:
            return Exclusion("not_pa", image["view"] or "unknown")
        position = position_by_image.get(name) or read_header_position(image["path"])
        if position not in options.positions and (position or "metadata" in files):
            return Exclusion("not_erect", position or "unknown")
        if name in reserved:
            return Exclusion("in_reference", reserved[name])
        if image["split"] not in options.splits:
            return Exclusion("other_split", image["split"])
        if exclusion := labels.exclusion_of(image):
            return exclusion
        boxes = engine.organ_boxes(organ_shard.masks(name)) if name in organ_shard else None
        ctr = engine.cardiothoracic_ratio(boxes) if boxes else None
        scores = classifier.scores(name, lambda: frame_shard.get("image", name))
        if isinstance(scores, Exclusion):
            return scores
        if positive_findings := classifier.explain_positive(scores, ctr, image["view"]):
            return Exclusion("classifier_positive", positive_findings)
        if boxes is None:
            return organ_faults[name]
        if exclusion := engine.check_organs(boxes):
            return exclusion
        row = {key: image[key] for key in ("image_id", "study_id", "subject_id", "split", "view")}
        row |= {"shard": shard, "position": position, "ctr": ctr, "labels": labels.name}
        row |= {f"{organ}_{side}": box[at] for organ, box in boxes.items() for at, side in enumerate(CORNERS)}
        return row | {f"score_{finding}": scores.get(finding) for finding in FINDINGS}

    ledger, healthy_rows = Ledger(STAGE), []
    with Shard(frames) as frame_shard, Shard(organs) as organ_shard:
        for image in progress(rows, len(rows), "healthy"):
            verdict = check_image(image)
            if isinstance(verdict, Exclusion):
                ledger.exclude(image["image_id"], image["study_id"], verdict.reason, verdict.detail)
                ledger.excluded[-1]["stage"] = verdict.stage
            else:
                ledger.accept(image["image_id"])
                healthy_rows.append(verdict)
        ledger.finish(excluded, image_ids)
    write_rows(output, healthy_rows, HEALTHY)


def _read_faults(stage: str, path: str) -> dict[str, Exclusion]:
    """Return {image_id: exclusion by the earlier ``stage``} from that stage's table of exclusions."""
    rows = read_table(path).select("image_id", "reason", "detail")
    return {image: Exclusion(reason, detail, stage) for image, reason, detail in rows.iter_rows()}
