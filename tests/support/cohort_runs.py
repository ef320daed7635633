"""Run the cohort stage for the tests: write tables, read and check results."""

import csv
import gzip
from pathlib import Path

import polars as pl

from cxr.base.exclusions import REASONS
from cxr.base.jobs import settings_arguments
from cxr.base.seeds import shard_names, shard_of
from cxr.base.tables import read_table
from cxr.imaging.cohort.make_cohort import run
from cxr.imaging.cohort.settings import CohortSettings
from cxr.imaging.frames.make_frames import run_shard
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings
from dicom_files import dataset, encoded, picture, stored_values

COLUMNS = ("subject_id", "study_id", "image_id", "image_path", "report_path")


def options(**changes: object) -> CohortSettings:
    return CohortSettings.from_dict({"source": "manifest", "shards": 4} | changes)


class Result:
    """What the stage wrote."""

    def __init__(self, folder: Path, shards: int):
        self.names = shard_names(shards)
        self.paths = {name: folder / f"{name}.parquet" for name in self.names}
        self.shards = {name: read_table(path) for name, path in self.paths.items()}
        self.accepted = pl.concat(self.shards.values())
        self.images = read_table(folder / "images.parquet")
        self.excluded = read_table(folder / "excluded.parquet")
        self.reasons = dict(self.excluded.select("image_id", "reason").iter_rows())
        self.details = dict(self.excluded.select("image_id", "detail").iter_rows())

    def check_conserved(self, count: int) -> None:
        ids = [*self.accepted["image_id"], *self.excluded["image_id"]]
        assert len(ids) == len(set(ids)) == count == self.images.height
        assert set(ids) == set(self.images["image_id"])
        told = {image: reason for image, reason in self.images.select("image_id", "reason").iter_rows() if reason}
        assert told == self.reasons
        assert set(self.reasons.values()) <= REASONS.keys()
        for name, table in self.shards.items():
            assert table["image_id"].is_sorted()
            assert all(shard_of(subject, len(self.names)) == int(name) for subject in table["subject_id"])
        assert self.accepted.group_by("subject_id").agg(pl.col("split").n_unique())["split"].max() in (1, None)


def run_cohort(folder: Path, threads: int = 2, seed: int = 2026, **changes: object) -> Result:
    chosen = options(**changes)
    out = folder / "out"
    run(
        shards=[str(out / f"{name}.parquet") for name in shard_names(chosen.shards)],
        images=str(out / "images.parquet"),
        excluded=str(out / "excluded.parquet"),
        options=chosen,
        seed=seed,
        attrs={},
        threads=threads,
    )
    return Result(out, chosen.shards)


def write_csv(path: Path, header: tuple[str, ...], rows: list[tuple]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def run_frames(cohort: Path, output: Path) -> dict[str, str]:
    chosen = settings_arguments(run_shard, stage_options(Settings())["frames"])
    excluded = output.with_suffix(".excluded.parquet")
    made = {"output": output, "excluded": excluded, "corrected": output.with_suffix(".corrected.parquet")}
    files = {name: str(path) for name, path in made.items()}
    run_shard(cohort=str(cohort), **files, **chosen, attrs={}, threads=2)
    return dict(read_table(excluded).select("image_id", "reason").iter_rows())


def manifest_of(folder: Path, subjects: dict[str, int], xray: bytes, split: dict[str, str] | None = None) -> str:
    """Write a manifest with so many studies of one image for each subject."""
    folder.mkdir(exist_ok=True)
    studies = [(subject, f"{subject}-{n}") for subject, number in subjects.items() for n in range(number)]
    for _, study in studies:
        (folder / f"{study}.dcm").write_bytes(xray)
    rows = [
        (subject, study, f"{study}-i", f"{study}.dcm", "", (split or {}).get(study, "")) for subject, study in studies
    ]
    return write_csv(folder / "m.csv", (*COLUMNS, "split"), rows)


def of(**tags: object) -> bytes:
    return encoded(dataset(stored_values(picture(200, 180), 8, False), **tags))


def one(folder: Path, data: bytes, name: str = "a.dcm", **changes: object) -> Result:
    """Run a manifest of one image."""
    (folder / name).write_bytes(data)
    manifest = write_csv(folder / "m.csv", COLUMNS, [("p", "s", "i", name, "")])
    return run_cohort(folder, manifest=manifest, shards=1, **changes)
