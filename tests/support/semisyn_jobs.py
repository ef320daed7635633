"""Jobs of SemiSynCXR for the tests of its dataset: tables and shards with the columns that the stages before write."""

from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl

from cxr.base.columns import schema
from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import EXCLUDED_SCHEMA, write_table
from cxr.geometry.affine import fit_affine, to_frame
from cxr.imaging.cohort.rows import SHARD
from cxr.semisyn.dataset import job_tables
from cxr.semisyn.healthy.select_healthy import HEALTHY
from cxr.semisyn.placement.plan_jobs import BOXES, PLAN

SHAPE = (700, 600)
"""Rows and columns of the originals."""
AFFINE = fit_affine(SHAPE, 512, "pad")
FINDINGS = ["atelectasis", "cardiomegaly", "effusion", "pneumothorax"]
EDITED = {
    "job_id": pl.String, "number": pl.Int64, "kind": pl.String, "side": pl.String,
    **dict.fromkeys(("x1", "y1", "x2", "y2", "change_inside", "change_outside_max", "leak"), pl.Float64),
    "area": pl.Int64, "config": pl.String, "parameters": pl.String,
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One job. ``stage``: where it stopped ("placement", "editing"), "" for an edited one; ``sides``: of its boxes."""

    finding: str
    index: int
    image: int = 0
    sides: tuple[str, ...] = ("right",)
    stage: str = ""
    engine: str = "lite"

    @property
    def name(self) -> str:
        return f"{self.finding}-{self.index:06d}"

    @property
    def image_id(self) -> str:
        return f"film{self.image}"

    @property
    def shard(self) -> str:
        return f"{self.image % 2:02d}"

    def boxes(self) -> list[tuple[float, ...]]:
        """One box a side, with edges that no decimal number of few digits tells."""
        shift = self.index / 7 + self.image / 3
        at = {"right": 90 + shift, "left": 300 + shift, "": 200 + shift}
        return [(at[side], 151 + shift, at[side] + 80 + 1 / 3, 260 + shift / 9) for side in self.sides]


def jobs() -> list[Job]:
    """Jobs with every outcome: four asked of each finding, five planned."""
    found = [Job("atelectasis", index, image=index) for index in range(5)]
    found += [
        Job("cardiomegaly", index, image=index, sides=("",), stage="editing" * (index == 1)) for index in range(5)
    ]
    stages = ("placement", "", "editing", "", "")
    found += [Job("effusion", index, image=index, sides=("right", "left"), stage=stages[index]) for index in range(5)]
    return found + [Job("pneumothorax", index, image=index, sides=("left",), engine="radedit") for index in range(5)]


def frame_of(image: int) -> np.ndarray:
    return to_frame(original_of(image), AFFINE, 512)


def original_of(image: int) -> np.ndarray:
    """A picture without noise that a resampling would lose, uint8."""
    y, x = np.mgrid[0 : SHAPE[0], 0 : SHAPE[1]]
    return (60 + 100 * np.sin(x / 90 + image) ** 2 * np.cos(y / 110) ** 2).astype(np.uint8)


def edited_of(job: Job) -> tuple[np.ndarray, np.ndarray]:
    """The frame with its boxes 30 levels brighter, and the mask of these."""
    image, lesion = frame_of(job.image).astype(int), np.zeros((512, 512), bool)
    for x1, y1, x2, y2 in job.boxes():
        lesion[round(y1) : round(y2), round(x1) : round(x2)] = True
    image[lesion] += 30
    return np.clip(image, 0, 255).astype(np.uint8), lesion


def write(folder: Path, made: list[Job] | None = None, splits: tuple[str, ...] = ("train",), asked: int = 4) -> dict:
    """Write everything below ``folder``/results; return the arguments of the stage's tables, with the shards' files.

    ``asked``: images asked of each finding; the jobs beyond are spare.
    """
    made = jobs() if made is None else made
    results = folder / "results"
    images = sorted({job.image for job in made})
    plan = [
        (j.name, j.finding, j.index, j.image_id, j.shard, f"A {j.finding}", j.finding, j.index >= asked, j.index < 2)
        for j in made
    ]
    paths = {"plan": results / "semisyn/placement/plan.parquet", "healthy": results / "semisyn/healthy/images.parquet"}
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    write_table(paths["plan"], pl.DataFrame(plan, schema=schema(PLAN), orient="row"), PLAN)
    write_table(paths["healthy"], _healthy(images, splits), HEALTHY)
    found: dict = {name: str(path) for name, path in paths.items()}
    found |= {"placed": [], "edited": [], "edited_boxes": [], "not_edited": [], "frames": [], "cohort": []}
    lost = [job for job in made if job.stage == "placement"]
    found["not_placed"] = _ledger(results / "semisyn/placement/excluded.parquet", lost, "placement", "no_room")
    for shard in ("00", "01"):
        own = [job for job in made if job.shard == shard]
        found["placed"].append(_placed(results / f"semisyn/placement/{shard}.parquet", own))
        films = [image for image in images if f"{image % 2:02d}" == shard]
        found["frames"].append(_frames(results / f"frames/{shard}.h5", films))
        found["cohort"].append(_cohort(results / f"cohort/{shard}.parquet", folder, films))
        for engine in ("lite", "radedit"):
            stem = results / f"semisyn/editing/{engine}/chosen"
            asked = [job for job in own if job.engine == engine and job.stage != "placement"]
            refused = [job for job in asked if job.stage == "editing"]
            kept = [job for job in asked if not job.stage]
            found["not_edited"].append(_ledger(stem / f"{shard}.excluded.parquet", refused, "editing", "leaked"))
            found["edited"].append(_edited(stem / f"{shard}.h5", kept))
            found["edited_boxes"].append(_edited_boxes(stem / f"{shard}.boxes.parquet", kept))
    return found


def tables(folder: Path, given: dict, validation: float = 0.3) -> dict[str, str]:
    """Run the tables of the stage; return their paths. ``validation``: fraction of the patients for validation."""
    made = {name: str(folder / f"{name}.parquet") for name in ("images", "boxes", "jobs")}
    made |= {name: str(folder / f"{name}.tsv") for name in ("conservation", "counts")}
    inputs = {name: paths for name, paths in given.items() if name not in ("frames", "cohort")}
    with mock.patch.object(job_tables, "VALIDATION_SHARE", validation):
        job_tables.run(**inputs, **made, findings=FINDINGS, seed=1)
    return made


def _healthy(images: list[int], splits: tuple[str, ...]) -> pl.DataFrame:
    rows = []
    for number in images:
        row = dict.fromkeys(HEALTHY) | {"image_id": f"film{number}", "study_id": f"s{number}", "view": "PA"}
        rows.append(
            row | {"subject_id": f"p{number}", "split": splits[number % len(splits)], "shard": f"{number % 2:02d}"}
        )
    return pl.DataFrame(rows, schema=schema(HEALTHY))


def _ledger(path: Path, gone: list[Job], stage: str, reason: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"image_id": job.name, "study_id": "", "stage": f"semisyn_{stage}", "reason": reason, "detail": ""}
        for job in gone
    ]
    write_table(path, pl.DataFrame(rows, schema=EXCLUDED_SCHEMA))
    return str(path)


def _placed(path: Path, own: list[Job]) -> str:
    none = dict.fromkeys(BOXES)
    rows = [
        none | {"job_id": job.name, "image_id": job.image_id, "finding": job.finding, "side": side, "zone": "base",
                **dict(zip(("x1", "y1", "x2", "y2"), box, strict=True))}
        for job in own if job.stage != "placement"
        for side, box in zip(job.sides, job.boxes(), strict=True)
    ]  # fmt: skip
    write_table(path, pl.DataFrame(rows, schema=schema(BOXES)), BOXES)
    return str(path)


def _frames(path: Path, films: list[int]) -> str:
    with ShardWriter(path, pictures=("image",), empty={"image": ((512, 512), np.uint8)}) as writer:
        for number in films:
            shape = np.array(SHAPE, np.int32)
            writer.append(f"film{number}", image=frame_of(number), to_original=AFFINE, original_shape=shape)
    return str(path)


def _cohort(path: Path, folder: Path, films: list[int]) -> str:
    import cv2

    rows = []
    for number in films:
        image = folder / f"film{number}.png"
        cv2.imwrite(str(image), original_of(number))
        rows.append(dict.fromkeys(SHARD) | {"image_id": f"film{number}", "path": str(image)})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, pl.DataFrame(rows, schema=schema(SHARD)), SHARD)
    return str(path)


def _edited(path: Path, kept: list[Job]) -> str:
    empty = {"image": ((512, 512), np.uint8), "lesion": ((512, 512), bool)}
    empty |= {"to_original": ((2, 3), np.float64), "original_shape": ((2,), np.int32)}
    with ShardWriter(path, pictures=("image",), empty=empty) as writer:
        for job in sorted(kept, key=lambda one: one.name):
            image, lesion = edited_of(job)
            shape = np.array(SHAPE, np.int32)
            writer.append(job.name, image=image, lesion=lesion, to_original=AFFINE, original_shape=shape)
    return str(path)


def _edited_boxes(path: Path, kept: list[Job]) -> str:
    rows = []
    for job in kept:
        for kind, inset in (("conditioning", 0.0), ("visible", 5.25)):
            for number, (side, box) in enumerate(zip(job.sides, job.boxes(), strict=True)):
                corners = (box[0] + inset, box[1] + inset, box[2] - inset, box[3] - inset)
                rows.append((job.name, number, kind, side, *corners, 12.5, 0.0, 0.01, 900, job.engine, "{}"))
    write_table(path, pl.DataFrame(rows, schema=EDITED, orient="row"))
    return str(path)
