"""Select the images of a shard that show no finding and whose lungs and heart are usable."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import yaml

from cxr.annotations.regions import image_name, read_annotations
from cxr.base.columns import Column, Columns, schema
from cxr.base.engines import Setup, engine_module
from cxr.base.hdf5 import Shard
from cxr.base.jobs import log, progress
from cxr.base.ledger import Ledger
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_lines, read_table, write_table
from cxr.base.vocabulary import FINDINGS
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.healthy import criteria, positions
from cxr.semisyn.healthy.criteria import CRITERIA, ORGANS, STAGE, Exclusion, criterion_of
from cxr.semisyn.healthy.engine import Classifier, NoScores, load_classifier
from cxr.semisyn.healthy.labels import Labels, ReportLabels, TableLabels
from cxr.semisyn.healthy.settings import HealthySettings

Row = Mapping[str, str]
RESOURCE_FILES = ("semisyn/paper.yaml",)
_EDGES = {"x1": "Left edge", "y1": "Top edge", "x2": "Right edge", "y2": "Bottom edge"}
_NAMES = {"right": "right lung", "left": "left lung", "heart": "heart"}

HEALTHY: Columns = {
    "image_id": Column(pl.String, "Image."),
    "study_id": Column(pl.String, "Its study."),
    "subject_id": Column(pl.String, "Its patient."),
    "split": Column(pl.String, "train, validate or test."),
    "shard": Column(pl.String, "Shard of its patient."),
    "view": Column(pl.String, "View, by its code."),
    "position": Column(pl.String, "Erect, Semi-erect, Sitting or Recumbent; empty if unknown."),
    "ctr": Column(pl.Float64, "Cardiothoracic ratio: the heart's width over both lungs', outer edge to outer edge."),
    **{
        f"{organ}_{edge}": Column(pl.Int64, f"{edge_name} of the {_NAMES[organ]}'s box.", "frame pixels")
        for organ in ORGANS
        for edge, edge_name in _EDGES.items()
    },
    **{
        f"score_{finding}": Column(
            pl.Float64, f"The classifier's score of {name.lower()}, 0 to 1; null where it does not see that."
        )
        for finding, name in FINDINGS.items()
    },
    "labels": Column(pl.String, "Source of the labels: `chexpert` or `reports`."),
}
SCHEMA = schema(HEALTHY)
FUNNEL: Columns = {
    "criterion": Column(pl.String, "Criterion, in words; the last row is the pool."),
    "in": Column(pl.Int64, "Images that reached it."),
    "out": Column(pl.Int64, "Images that passed."),
    "reason": Column(pl.String, "Codes of the reasons it gives, with their numbers ([reasons.md](reasons.md))."),
    "paper": Column(pl.Int64, "Number in the paper; empty if not reported."),
}


def run(
    *, shards: Sequence[str], excluded: str | Path, images: str | Path, funnel: str | Path, options: HealthySettings,
    references: Iterable[str],
) -> None:  # fmt: skip
    """Concatenate the shards' tables into ``images``, sorted by image_id, and write ``funnel`` (:data:`FUNNEL`).

    ``excluded``: the ledger of all shards; ``references``: names of those whose patients are excluded.
    """
    healthy_images = pl.concat([read_table(path) for path in ([shards] if isinstance(shards, str) else shards)])
    write_table(images, healthy_images.sort("image_id"), HEALTHY)
    stopped = read_table(excluded).select("stage", "reason").iter_rows()
    paper = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["healthy_images"]
    num_unknown = int((healthy_images["position"] == "").sum())
    table = funnel_table(stopped, len(healthy_images), describe_criteria(options, references, num_unknown), paper)
    write_table(funnel, table, FUNNEL)
    log.info("healthy: %d of %d images", len(healthy_images), table["in"][0])
    if not len(healthy_images):
        log.warning("healthy: no image is left, so nothing can be placed: %s shows where they went", Path(funnel).name)


def describe_criteria(options: HealthySettings, references: Iterable[str], untold: int) -> dict[str, str]:
    """Return {criterion: its description}. ``untold``: number of healthy images of unknown position."""
    module = engine_module("cxr.semisyn.healthy", options.classifier)
    unseen = [finding for finding in FINDINGS if finding in getattr(module, "UNSEEN", ())]
    devices = {"not_positive": "no device", "negative": "devices denied", "any": "devices are not asked for"}
    reference_names = ", ".join(references)
    return {
        "frame": "decoded, and chosen of its study",
        "view": f"view {' or '.join(options.views)}",
        "position": f"patient {' or '.join(options.positions)} (of the pool {untold} do not tell)",
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
    """Return the funnel: a row per criterion in their order, then the pool with the paper's size.

    ``stopped``: (stage, reason) of every excluded image; ``healthy``: number of images in the pool.
    """
    reasons: dict[str, Counter[str]] = {name: Counter() for name in CRITERIA}
    for stage, reason in stopped:
        reasons[criterion_of(stage, reason)][reason] += 1
    num_remaining = healthy + sum(counts.total() for counts in reasons.values())
    rows = []
    for name, counts in reasons.items():
        reason_counts = ", ".join(f"{reason} {number}" for reason, number in sorted(counts.items()))
        rows.append((sentences[name], num_remaining, num_remaining - counts.total(), reason_counts, None))
        num_remaining -= counts.total()
    rows.append(("healthy", healthy, healthy, "", paper))
    return pl.DataFrame(rows, schema=schema(FUNNEL), orient="row")


def find_reserved(references: Mapping[str, Mapping], images: pl.DataFrame, patients: bool) -> dict[str, str]:
    """Return {image_id: reference} of the cohort's images that a reference reserves.

    ``references``: {name: {format, path, image_id (template)}}; ``images``: all images of the cohort, excluded ones
    too; ``patients``: reserve all images of a reference's patients, else only its own images. Raises UserError for a
    file that cannot be read.
    """
    reference_by_image: dict[str, str] = {}
    for name, settings in references.items():
        listed = read_annotations(f"semisyn.references.{name}.path", settings["path"], settings["format"]).seen
        image_ids = {image_name(settings["image_id"], image) for image in listed}
        reserved_images = images.filter(pl.col("image_id").is_in(sorted(image_ids)))
        if patients:
            reserved_images = images.join(reserved_images.select("subject_id").unique(), on="subject_id", how="semi")
        reference_by_image = dict.fromkeys(reserved_images["image_id"], name) | reference_by_image
    return reference_by_image


@dataclass
class HealthyScreen:
    """Checks an image against all criteria, in the order of :data:`cxr.semisyn.healthy.criteria.CRITERIA`."""

    options: HealthySettings
    stopped: Mapping[str, dict[str, Exclusion]]
    """{earlier stage: {image_id: why it excluded the image}}."""
    positions: Mapping[str, str]
    reserved: Mapping[str, str]
    exclude_unknown: bool
    labels: Labels
    classifier: Classifier
    frames: Shard
    organs: Shard

    def position_of(self, image: Row) -> str:
        """Return how the patient was positioned, "" if unknown. A table takes precedence over the header."""
        return self.positions.get(image["image_id"]) or positions.read_header_position(image["path"])

    def check_metadata(self, image: Row) -> Exclusion | None:
        """Return why an image is excluded by its metadata or labels, or None."""
        name = image["image_id"]
        if early := self.stopped["frames"].get(name):
            return early
        if image["view"] not in self.options.views:
            return Exclusion("not_pa", image["view"] or "unknown")
        position = self.position_of(image)
        if position not in self.options.positions and (position or self.exclude_unknown):
            return Exclusion("not_erect", position or "not told")
        if name in self.reserved:
            return Exclusion("in_reference", self.reserved[name])
        if image["split"] not in self.options.splits:
            return Exclusion("other_split", image["split"])
        return self.labels.exclusion_of(image)

    def check_image(self, image: Row) -> Exclusion | dict:
        """Return why an image is excluded, or its row in the table of healthy images."""
        if early := self.check_metadata(image):
            return early
        name = image["image_id"]
        boxes = criteria.organ_boxes(self.organs.masks(name)) if name in self.organs else None
        ctr = criteria.cardiothoracic_ratio(boxes) if boxes else None
        try:
            scores = self.classifier.scores(name, lambda: self.frames.get("image", name))
        except NoScores as error:
            return error.exclusion
        if positive_findings := self.classifier.explain_positive(scores, ctr, image["view"]):
            return Exclusion("classifier_positive", positive_findings)
        if boxes is None:
            return self.stopped["organs"][name]
        return criteria.check_organs(boxes) or self._row(image, boxes, ctr, scores)

    def _row(self, image: Row, boxes: Mapping[str, criteria.Box], ctr: float | None, scores: Mapping) -> dict:
        corners = {f"{organ}_{side}": box[place] for organ, box in boxes.items() for place, side in enumerate(CORNERS)}
        row = {name: image[name] for name in ("image_id", "study_id", "subject_id", "split", "view")}
        row |= {"position": self.position_of(image), "ctr": ctr, "labels": self.labels.name} | corners
        return row | {f"score_{finding}": scores.get(finding) for finding in FINDINGS}


def run_shard(
    *,
    shard: str,
    cohort: str | Path,
    images: str | Path,
    frames: str | Path,
    frames_excluded: str | Path,
    organs: str | Path,
    organs_excluded: str | Path,
    output: str | Path,
    excluded: str | Path,
    options: HealthySettings,
    references: Mapping[str, Mapping],
    compute: dict | None = None,
    **files: str,
) -> None:
    """Select the healthy images of a shard of the cohort.

    Writes ``output`` (Parquet: :data:`HEALTHY`, by image_id) and the ledger ``excluded``,
    which accounts for every image of the shard and names the stage that excluded it. ``files``: the label table
    (``chexpert``) or reports (``reports``, ``reports_excluded``), MIMIC's ``metadata``, the references
    (``reference_<name>``), and the classifier's files; ``references``: {name: {format, path, image_id}}.
    Raises UserError for an unusable file.
    """
    rows = read_table(cohort).sort("image_id").to_dicts()
    listed = read_table(images)
    image_ids = {row["image_id"] for row in rows}
    shard_images = listed.filter(pl.col("image_id").is_in(sorted(image_ids)))
    ledger, healthy_rows = Ledger(STAGE), []
    with Shard(frames) as frame_shard, Shard(organs) as organ_shard:
        screen = HealthyScreen(
            options=options,
            stopped={"frames": _read_excluded("frames", frames_excluded),
                     "organs": _read_excluded("organs", organs_excluded)},
            positions=positions.read_table_positions(shard_images, files.get("metadata")),
            reserved=find_reserved(references, listed, options.exclude_patients),
            exclude_unknown="metadata" in files,
            labels=_read_labels(options, files),
            classifier=load_classifier(options, Setup.of_job(files, compute, options.classifier)),
            frames=frame_shard,
            organs=organ_shard,
        )  # fmt: skip
        for image in progress(rows, len(rows), "healthy"):
            verdict = screen.check_image(image)
            if isinstance(verdict, Exclusion):
                ledger.exclude(image["image_id"], image["study_id"], verdict.reason, verdict.detail)
                ledger.excluded[-1]["stage"] = verdict.stage
            else:
                ledger.accept(image["image_id"])
                healthy_rows.append(verdict | {"shard": shard})
        ledger.finish(excluded, image_ids)
    write_table(output, pl.DataFrame(healthy_rows, schema=SCHEMA), HEALTHY)


def _read_excluded(stage: str, path: str | Path) -> dict[str, Exclusion]:
    rows = read_table(path).select("image_id", "reason", "detail")
    return {image: Exclusion(reason, detail, stage) for image, reason, detail in rows.iter_rows()}


def _read_labels(options: HealthySettings, files: Mapping[str, str]) -> Labels:
    if options.labels == TableLabels.name:
        return TableLabels(files["chexpert"], options.devices)
    reasons = dict(read_table(files["reports_excluded"]).select("image_id", "reason").iter_rows())
    return ReportLabels(read_lines(files["reports"]), reasons, options.devices)
