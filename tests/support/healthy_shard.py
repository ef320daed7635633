"""A shard of chests for the tests of semisyn_healthy: rectangles for lungs and hearts, as the stages write them."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import schema
from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import EXCLUDED_SCHEMA, read_table, write_table
from cxr.base.vocabulary import ORGAN_LABELS
from cxr.imaging.boxes.detect_boxes import COLUMNS as BOXES
from cxr.imaging.cohort.rows import IMAGES, SHARD
from cxr.semisyn.healthy.select_healthy import run_shard
from cxr.semisyn.healthy.settings import HealthySettings
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings

CHEST = {"right lung": (100, 80, 240, 400), "left lung": (272, 80, 412, 400), "heart": (220, 250, 340, 400)}
"""Boxes of a usable chest: CTR 120 / 312."""


@dataclass
class Film:
    """One image: what earlier stages and its report told. ``organs``: None where the organs stage excluded it."""

    image_id: str
    subject_id: str = ""
    study_id: str = ""
    view: str = "PA"
    split: str = "train"
    path: str = "missing.png"
    organs: dict | None = field(default_factory=lambda: dict(CHEST))
    boxes: tuple[tuple[str, float], ...] = ()
    report: dict | None = field(default_factory=dict)
    frame: str = ""
    """Reason of the stage frames, "" for a film with a frame."""
    boxes_reason: str = ""
    told: dict = field(default_factory=dict)
    """The manifest's own columns."""

    def __post_init__(self):
        self.subject_id = self.subject_id or f"p-{self.image_id}"
        self.study_id = self.study_id or f"s-{self.image_id}"


def options(**changed) -> HealthySettings:
    """The defaults, with labels by reports."""
    plain = stage_options(Settings())["semisyn_healthy"]
    plain |= {"labels": "reports", "splits": ["train"], "devices": "not_positive"}
    return HealthySettings.from_dict(plain | changed)


def line(film: Film) -> dict:
    """A line of the reports stage, of a normal chest unless the film's report says otherwise."""
    plain = {"tuples": [], "other_tuples": [], "sentences": ["The lungs are clear."], "mentions_lungs": True}
    plain |= {"comparison_only": False, "unknown_words": [], "study_id": film.study_id}
    return plain | (film.report or {})


def _excluded(path: Path, rows: list[tuple[str, str, str]]) -> None:
    made = [
        {"image_id": image, "study_id": "", "stage": stage, "reason": reason, "detail": "told"}
        for image, stage, reason in rows
    ]
    write_table(path, pl.DataFrame(made, schema=EXCLUDED_SCHEMA))


def write(folder: Path, films: list[Film]) -> dict[str, str]:
    """Write the inputs of a shard; return them by the names of the stage's arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {name: getattr(film, name, None) for name in SHARD} | {"rank": 0, "report_missing": False} for film in films
    ]
    write_table(folder / "cohort.parquet", pl.DataFrame(rows, schema=schema(SHARD)))
    extra = sorted({name for film in films for name in film.told})
    listed = [
        {name: getattr(film, name, None) for name in IMAGES} | {name: film.told.get(name, "") for name in extra}
        for film in films
    ]
    write_table(
        folder / "images.parquet", pl.DataFrame(listed, schema=schema(IMAGES) | dict.fromkeys(extra, pl.String))
    )
    framed = [film for film in films if not film.frame]
    with ShardWriter(folder / "frames.h5", empty={"image": ((512, 512), np.uint8)}) as writer:
        for film in framed:
            writer.append(film.image_id, image=np.full((512, 512), 90, np.uint8))
    with ShardWriter(
        folder / "organs.h5", labels=ORGAN_LABELS, empty={"mask": ((len(ORGAN_LABELS), 512, 512), bool)}
    ) as writer:
        for film in framed:
            if film.organs is not None:
                writer.append(film.image_id, mask=_masks(film.organs))
    _excluded(folder / "frames_excluded.parquet", [(f.image_id, "frames", f.frame) for f in films if f.frame])
    gone = [(film.image_id, "organs", "cut_off") for film in framed if film.organs is None]
    _excluded(folder / "organs_excluded.parquet", gone)
    (folder / "reports.jsonl").write_text("".join(json.dumps(line(f)) + "\n" for f in films if f.report is not None))
    unread = [(film.image_id, "reports", "not_english") for film in films if film.report is None]
    _excluded(folder / "reports_excluded.parquet", unread)
    boxes = [
        (film.image_id, 10.0, 10.0, 20.0, 20.0, confidence, name, True)
        for film in framed
        for name, confidence in film.boxes
    ]
    write_table(folder / "boxes.parquet", pl.DataFrame(boxes, schema=schema(BOXES), orient="row"))
    failed = [(film.image_id, "boxes", film.boxes_reason) for film in framed if film.boxes_reason]
    _excluded(folder / "boxes_excluded.parquet", failed)
    names = ("cohort", "images", "frames_excluded", "organs_excluded", "reports_excluded", "boxes", "boxes_excluded")
    files = {name: str(folder / f"{name}.parquet") for name in names}
    return files | {"frames": str(folder / "frames.h5"), "organs": str(folder / "organs.h5"),
                    "reports": str(folder / "reports.jsonl")}  # fmt: skip


def _masks(boxes: dict) -> np.ndarray:
    masks = np.zeros((len(ORGAN_LABELS), 512, 512), bool)
    for place, label in enumerate(ORGAN_LABELS):
        x1, y1, x2, y2 = boxes.get(label, (0, 0, 0, 0))
        masks[place, y1:y2, x1:x2] = True
    return masks


def select(
    folder: Path, films: list[Film], chosen: HealthySettings | None = None, references: dict | None = None, **files: str
):
    """Run the stage; return {image_id: (reason, detail, stage)} of the excluded images, and the table of the others.

    Nothing may be lost: the stage's ledger proves it. ``files`` are laid over the films' own; "" takes one away.
    """
    given = {name: path for name, path in (write(folder, films) | files).items() if path}
    output, excluded = folder / "healthy.parquet", folder / "excluded.parquet"
    run_shard(
        shard="00", output=output, excluded=excluded, options=chosen or options(), references=references or {}, **given
    )
    gone = {row["image_id"]: (row["reason"], row["detail"], row["stage"]) for row in read_table(excluded).to_dicts()}
    kept = read_table(output)
    assert sorted([*gone, *kept["image_id"]]) == sorted(film.image_id for film in films)
    return gone, kept
