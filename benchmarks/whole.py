"""Measure the speed of the stages that make the dataset: images per second of each stage and of all together.

    python benchmarks/whole.py [--studies 48] [--threads 1] [--output benchmarks/whole.tsv]

The embedded cohort is one shard, and every stage runs in this process, including reading and writing. Snakemake, which
needs some seconds to start a job, is not used. Core seconds include the decoding processes. The first image of a stage
includes the time to load its libraries and weights.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import cv2  # noqa: E402
import polars as pl  # noqa: E402

from cxr.base.hdf5 import Shard  # noqa: E402
from cxr.base.jobs import settings_arguments  # noqa: E402
from cxr.base.tables import read_lines, read_table, write_table  # noqa: E402
from cxr.base.vocabulary import SPLITS  # noqa: E402
from cxr.ils.dataset import make_pairs  # noqa: E402
from cxr.ils.masks import make_masks  # noqa: E402
from cxr.imaging.anatomy import segment_anatomy  # noqa: E402
from cxr.imaging.anomaly import map_anomalies  # noqa: E402
from cxr.imaging.boxes import detect_boxes  # noqa: E402
from cxr.imaging.cohort import make_cohort  # noqa: E402
from cxr.imaging.frames import make_frames  # noqa: E402
from cxr.imaging.organs import segment_organs  # noqa: E402
from cxr.imaging.phantom import make_phantom  # noqa: E402
from cxr.language.reports import read_reports  # noqa: E402
from cxr.workflow.params import stage_options  # noqa: E402
from cxr.workflow.settings import Settings, read  # noqa: E402

STAGES = {
    "phantom": make_phantom,
    "cohort": make_cohort,
    "frames": make_frames,
    "reports": read_reports,
    "organs": segment_organs,
    "anomaly": map_anomalies,
    "anatomy": segment_anatomy,
    "boxes": detect_boxes,
    "masks": make_masks,
}
IMAGE_STAGES = {
    "frames": ("cohort",),
    "reports": ("cohort",),
    "organs": ("frames",),
    "anomaly": ("frames", "organs"),
    "anatomy": ("frames", "anomaly", "organs"),
    "boxes": ("frames",),
}
"""{stage with one output shard per input shard: stages that it reads}."""
ENDINGS = {"cohort": "parquet", "reports": "jsonl", "boxes": "parquet"}


def core_seconds() -> float:
    """Return the core seconds of this process and its finished child processes."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


class Bench:
    """The stages, run one after another in a folder, and the time of each."""

    def __init__(self, folder: Path, settings: Settings, threads: int):
        self.folder, self.options, self.threads = folder, stage_options(settings), threads
        self.thresholds = settings.thresholds.sets["default"].as_dict()
        self.rows: list[dict] = []

    def path(self, stage: str, ending: str | None = None) -> str:
        """Return the file of a stage's only shard."""
        return str(self.folder / stage / f"00.{ending or ENDINGS.get(stage, 'h5')}")

    def module(self, stage: str, **more: object) -> tuple[ModuleType, dict]:
        """Return (module of a stage, arguments that every stage takes)."""
        module = STAGES[stage]
        work = module.run_shard if hasattr(module, "run_shard") else module.run
        arguments = settings_arguments(work, self.options[stage] | more)
        return module, arguments | {"attrs": {}, "threads": self.threads}

    def time(self, stage: str, work: Callable[[], object], images: Callable[[], int]) -> None:
        """Run one stage, and record its time and its number of images."""
        cores, wall = core_seconds(), time.perf_counter()
        work()
        row = {"stage": stage, "core_s": core_seconds() - cores, "wall_s": time.perf_counter() - wall}
        self.rows.append(row | {"images": images()})

    def run(self) -> None:
        """Run every stage, from the embedded cohort to the pairs."""
        module, shared = self.module("phantom")
        made = {name: str(self.folder / "phantom" / name) for name in ("manifest.csv", "truth.jsonl", "truth.h5")}
        module.run(**dict(zip(("manifest", "truth", "truth_masks"), made.values(), strict=True)), **shared)
        self.options["cohort"]["manifest"] = made["manifest.csv"]
        module, shared = self.module("cohort")
        tables = {"images": self.path("images", "parquet"), "excluded": self.path("excluded", "parquet")}
        self.time(
            "cohort",
            lambda: module.run(shards=[self.path("cohort")], **tables, **shared),
            lambda: len(read_table(tables["images"])),
        )
        for stage, inputs in IMAGE_STAGES.items():
            self._image_stage(stage, {name: self.path(name) for name in inputs})
        self._masks_and_dataset()

    def _image_stage(self, stage: str, inputs: dict[str, str]) -> None:
        module, shared = self.module(stage)
        made = {"output": self.path(stage), "excluded": self.path(stage, "excluded.parquet")}
        if stage == "frames":
            made["corrected"] = self.path(stage, "corrected.parquet")
        first = next(iter(inputs.values()))
        self.time(stage, lambda: module.run_shard(**inputs, **made, **shared), lambda: rows_of(first))

    def _masks_and_dataset(self) -> None:
        module, shared = self.module("masks", thresholds=self.thresholds)
        del shared["threads"]
        names = ("cohort", "frames", "organs", "anomaly", "anatomy", "boxes", "reports")
        inputs = {name: self.path(name) for name in names} | {"boxes_excluded": self.path("boxes", "excluded.parquet")}
        made = {name: self.path("masks", f"{name}.parquet") for name in ("findings", "units", "studies", "excluded")}
        made["output"] = self.path("masks")
        self.time("masks", lambda: module.run_shard(**inputs, **made, **shared), lambda: rows_of(made["studies"]))
        dataset_arguments = settings_arguments(make_pairs.run, self.options["dataset"])
        files = {name: self.path("dataset", f"{name}.parquet") for name in ("excluded", "dropped")}
        files |= {split: self.path("dataset", f"{split}.jsonl") for split in SPLITS}
        inputs = {"reports": [self.path("reports")], "units": [made["units"]], "studies": [made["studies"]]}
        self.time(
            "dataset",
            lambda: make_pairs.run(**inputs, **files, **dataset_arguments),
            lambda: rows_of(made["studies"]),
        )
        print(f"{sum(1 for split in SPLITS for _ in read_lines(files[split]))} pairs")


def rows_of(path: str) -> int:
    """Return the number of rows in a shard."""
    if path.endswith(".parquet"):
        return len(read_table(path))
    with Shard(path) as shard:
        return len(shard)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=48)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", default="benchmarks/whole.tsv")
    given = parser.parse_args()
    cv2.setNumThreads(1)
    phantom = {"studies": given.studies, "subjects": min(given.studies, 40)}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), read({"phantom": phantom, "cohort": {"shards": 1}}), given.threads)
        bench.run()
    table = pl.DataFrame(bench.rows)
    whole = {"stage": "whole", "core_s": table["core_s"].sum(), "wall_s": table["wall_s"].sum()}
    table = pl.concat([table, pl.DataFrame([whole | {"images": table["images"][0]}])])
    rate = (pl.col("images") / pl.col("core_s")).alias("images_per_core_s")
    table = table.select("stage", "images", "core_s", "wall_s", rate)
    table = table.with_columns(pl.col(pl.Float64).round_sig_figs(3))
    write_table(given.output, table)
    with pl.Config(tbl_rows=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
        print(table)
    print(f"table in {given.output}")


if __name__ == "__main__":
    main()
