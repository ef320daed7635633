"""Read all results about one study. A stage that has not run yet gets the state :data:`NO_RESULTS`."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.edited_images import is_unedited, read_edited_image
from cxr.base.errors import UserError
from cxr.base.exclusions import STAGES
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table

BY_THRESHOLDS = ("masks", "dataset")
ACCEPTED, STOPPED, NOT_REACHED, NO_RESULTS = "passed", "stopped", "not reached", "no results yet"
ARRAYS = {"frames": "image", "organs": "mask", "anomaly": "anomaly", "anatomy": "mask"}
"""{stage: name of the array in its HDF5 files that the page shows}."""


@dataclass(frozen=True)
class Step:
    """The result of one stage for an image. ``state``: ``ACCEPTED``, ``STOPPED``, ``NOT_REACHED`` or ``NO_RESULTS``."""

    stage: str
    state: str
    reason: str = ""
    detail: str = ""


@dataclass
class Image:
    """One image of the study: its row of the cohort, and its results in the stages that do not depend on thresholds."""

    row: dict
    steps: list[Step]
    arrays: dict[str, np.ndarray | dict[str, np.ndarray]] = field(default_factory=dict)
    boxes: list[dict] = field(default_factory=list)
    unedited: bool = False
    """Whether the anomaly stage left the image as it was, because no finding needs an anomaly map."""
    corrections: list[str] = field(default_factory=list)
    """Parts of the image file that the frames stage corrected or ignored."""

    @property
    def image_id(self) -> str:
        return self.row["image_id"]

    @property
    def stop(self) -> Step | None:
        """The step of the first stage that excluded the image, or None."""
        return next((step for step in self.steps if step.state == STOPPED), None)


@dataclass
class Outcome:
    """The rows of one image under one threshold set in the tables of the stages masks and dataset. ``units``: positive
    instructions. ``evidence``: the image's row of the table ``studies``. ``dropped``: pairs that were not made."""

    steps: list[Step]
    findings: list[dict]
    units: list[dict]
    evidence: dict | None
    pairs: list[dict]
    dropped: list[dict]
    masks: dict[str, np.ndarray]
    settings: str
    """JSON of the settings that are stored with the masks, or "" without masks."""


@dataclass
class Study:
    """A study and all results about it."""

    study_id: str
    images: list[Image]
    report: dict | None
    """The study's line in a file of results/reports, or None if its report was not read."""
    outcomes: dict[str, dict[str, Outcome]]
    """{threshold set: {image_id: result}}."""
    provenance: dict[str, tuple[str, str]]
    """{stage: (code digest, JSON of the settings)}, for the stages whose files record both."""


def find_study_rows(results: Path, study_id: str, *, is_number: bool = False) -> list[dict]:
    """Return the rows of a study in the cohort's table of images. Raises UserError if the study is not in the table.
    ``is_number`` is whether the requested id was parsed as a number and may have lost leading zeros."""
    path = results / "cohort" / "images.parquet"
    if not path.is_file():
        raise UserError(f"study is {study_id!r}, but {path} is missing: make it with `snakemake cohort`")
    table = read_table(path)
    rows = table.filter(pl.col("study_id") == study_id).sort("image_id").to_dicts()
    if not rows:
        studies = table["study_id"].n_unique()
        zeros = " (write an id with leading zeros as study=\"'007'\")" if is_number else ""
        raise UserError(
            f"study is {study_id!r}, which is not one of the {studies} studies of {path}: give one of these ids{zeros}"
        )
    return rows


SMALL_TABLES = (
    "cohort/*.parquet", "*/*.excluded.parquet", "frames/*.corrected.parquet", "masks/*/*.excluded.parquet",
    "dataset/*/*.parquet",
)  # fmt: skip
"""Patterns of small tables. If results on a study's page change, at least one of these tables is rewritten too."""


def results_digest(results: Path) -> str:
    """Return a digest, 16 hexadecimal digits, of the names, sizes and modification times of :data:`SMALL_TABLES`."""
    digest = hashlib.sha256()
    for pattern in SMALL_TABLES:
        for path in sorted(results.glob(pattern)):
            state = path.stat()
            digest.update(f"{path.relative_to(results)} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def read_study(results: Path, study_id: str, thresholds: Sequence[str]) -> Study:
    """Return a study with its results under the sets ``thresholds``, or under all sets with masks if it is empty.
    Raises UserError for an unknown study, or for a threshold set without masks."""
    rows = find_study_rows(results, study_id)
    names = {path.parent.name for path in results.glob("masks/*/*.findings.parquet")}
    sets = sorted(names, key=lambda name: (name != "default", name))
    if missing := [name for name in thresholds if name not in sets]:
        raise UserError(
            f"thresholds names {missing[0]!r}, but the sets with masks are {', '.join(sets) or 'none'}: "
            f"choose one of these, or make the masks with `snakemake results/masks/{missing[0]}/index.parquet`"
        )
    shards = sorted({row["shard"] for row in rows if row["shard"]})
    paths = [path for shard in shards if (path := results / "reports" / f"{shard}.jsonl").is_file()]
    line = next((line for path in paths for line in read_lines(path) if line["study_id"] == study_id), None)
    images = [_read_image(results, row) for row in rows]
    outcomes = {
        name: {image.image_id: _read_outcome(results, name, image, line) for image in images}
        for name in thresholds or sets
    }
    provenance = {}
    for stage in ARRAYS:
        if shards and (path := results / stage / f"{shards[0]}.h5").is_file():
            with Shard(path) as file:
                provenance[stage] = str(file.attrs.get("code_digest", "")), str(file.attrs.get("settings", ""))
    return Study(study_id, images, line, outcomes, provenance)


def _read_rows(path: Path, image_id: str) -> list[dict] | None:
    if not path.is_file():
        return None
    return read_table(path).filter(pl.col("image_id") == image_id).to_dicts()


def _read_image(results: Path, row: dict) -> Image:
    image, image_id, shard = Image(row, [Step("cohort", ACCEPTED)]), row["image_id"], row["shard"]
    if row["reason"]:
        excluded = _read_rows(results / "cohort" / "excluded.parquet", image_id)
        image.steps = [Step("cohort", STOPPED, row["reason"], excluded[0]["detail"] if excluded else "")]
    for stage in STAGES[1 : -len(BY_THRESHOLDS)]:
        image.steps.append(_stage_step(results / stage / f"{shard}.excluded.parquet", stage, image, image.steps))
    passed = {step.stage for step in image.steps if step.state == ACCEPTED}
    corrected = _read_rows(results / "frames" / f"{shard}.corrected.parquet", image_id) or []
    image.corrections = [row["correction"] for row in corrected]
    with ExitStack() as stack:
        shards = {
            stage: stack.enter_context(Shard(results / stage / f"{shard}.h5")) for stage in ARRAYS if stage in passed
        }
        for stage, file in shards.items():
            name = ARRAYS[stage]
            image.arrays[stage if name == "mask" else name] = (
                file.masks(image_id) if name == "mask" else file.get(name, image_id)
            )
        if "anomaly" in passed:
            image.arrays["edited"] = read_edited_image(shards["anomaly"], shards["frames"], image_id)
            image.unedited = is_unedited(shards["anomaly"], image_id)
    if "boxes" in passed:
        image.boxes = _read_rows(results / "boxes" / f"{shard}.parquet", image_id) or []
    return image


REQUIRED_STAGES = {
    "frames": ("cohort",),
    "reports": ("cohort",),
    "organs": ("frames",),
    "anomaly": ("organs",),
    "anatomy": ("anomaly",),
    "boxes": ("frames",),
    "masks": ("reports", "anatomy", "boxes"),
    "dataset": ("masks",),
}
"""{stage: stages that an image must have passed before this stage accepts it}."""


def _stage_step(excluded: Path, stage: str, image: Image, before: Sequence[Step]) -> Step:
    states = {step.stage: step.state for step in before}
    needed = [states[name] for name in REQUIRED_STAGES[stage]]
    if any(state in (STOPPED, NOT_REACHED) for state in needed):
        return Step(stage, NOT_REACHED)
    rows = _read_rows(excluded, image.image_id)
    if rows is None or NO_RESULTS in needed:
        return Step(stage, NO_RESULTS)
    return Step(stage, STOPPED, rows[0]["reason"], rows[0]["detail"]) if rows else Step(stage, ACCEPTED)


def _read_outcome(results: Path, name: str, image: Image, line: dict | None) -> Outcome:
    folder, joined, shard = results / "masks" / name, results / "dataset" / name, image.row["shard"]
    masks_step = _stage_step(folder / f"{shard}.excluded.parquet", "masks", image, image.steps)
    dataset_step = _stage_step(joined / "excluded.parquet", "dataset", image, [*image.steps, masks_step])
    outcome = Outcome([masks_step, dataset_step], [], [], None, [], [], {}, "")
    if masks_step.state == ACCEPTED:
        findings, outcome.units, evidence = (
            _read_rows(folder / f"{shard}.{name}.parquet", image.image_id) or []
            for name in ("findings", "units", "studies")
        )
        outcome.findings = sorted(findings, key=itemgetter("finding"))
        outcome.evidence = next(iter(evidence), None)
        mask_ids = {row["mask_id"] for row in (*outcome.findings, *outcome.units)} - {None}
        with Shard(folder / f"{shard}.h5", key="mask_id") as masks:
            outcome.masks = {mask_id: masks.get("mask", mask_id) for mask_id in sorted(mask_ids)}
            outcome.settings = str(masks.attrs.get("settings", ""))
    if dataset_step.state in (ACCEPTED, STOPPED):
        outcome.dropped = _read_rows(joined / "dropped.parquet", image.image_id) or []
    if dataset_step.state == ACCEPTED:
        outcome.pairs = list(_read_pairs(joined / f"{image.row['split']}.jsonl", image.image_id))
    return outcome


def _read_pairs(path: Path, image_id: str) -> Iterator[dict]:
    """Yield an image's pairs from a split's file ``path``. For speed, only lines with the image's id are parsed."""
    name = json.dumps(image_id, ensure_ascii=False)
    with open(path, encoding="utf-8") as file:
        candidates = (json.loads(text) for text in file if name in text)
        yield from (line for line in candidates if line["image_id"] == image_id)
