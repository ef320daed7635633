"""Measure the stage dataset at the size of MIMIC-CXR: images per second, and memory, for one threshold set.

    python benchmarks/pairs.py [--results results] [--studies 227835] [--shards 64]

The studies of a finished run (`make demo`) are copied under new names until there are ``--studies`` studies, spread
over the shards. The stage runs on a tenth of them, then on all, each in a separate process.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import polars as pl  # noqa: E402

from cxr.base.jobs import settings_arguments  # noqa: E402
from cxr.base.tables import read_lines, read_table, write_lines, write_table  # noqa: E402
from cxr.base.vocabulary import SPLITS  # noqa: E402
from cxr.ils.dataset import make_pairs  # noqa: E402
from cxr.workflow.params import stage_options  # noqa: E402
from cxr.workflow.settings import read  # noqa: E402


def copies(results: Path, folder: Path, studies: int, shards: int) -> None:
    """Write the inputs of the stage: renamed copies of every study of ``results``, at least one in each shard."""
    rows = pl.concat(map(read_table, sorted(results.glob("masks/default/*.studies.parquet"))))
    units = pl.concat(map(read_table, sorted(results.glob("masks/default/*.units.parquet"))))
    said = {line["study_id"]: line for path in results.glob("reports/*.jsonl") for line in read_lines(path)}
    said = [said[study_id] for study_id in sorted(set(rows["study_id"]))]
    times = max(shards, studies // len(said))
    for shard in range(shards):
        numbers = [f"{number:05d}-" for number in range(shard, times, shards)]
        for name, table in (("studies", rows), ("units", units)):
            renamed = pl.concat([table.with_columns(study_id=number + pl.col("study_id")) for number in numbers])
            write_table(folder / f"{shard:02d}.{name}.parquet", renamed)
        lines = ({**line, "study_id": number + line["study_id"]} for number in numbers for line in said)
        write_lines(folder / f"{shard:02d}.jsonl", lines)


def measured(folder: Path) -> None:
    """Run the stage on the files in ``folder``, and print its speed, memory and output size."""
    chosen = stage_options(read({}))["dataset"]
    files = {split: str(folder / f"{split}.out") for split in SPLITS}
    files |= {name: str(folder / "out" / f"{name}.parquet") for name in ("excluded", "dropped")}
    inputs = {name: sorted(map(str, folder.glob(f"*.{name}.parquet"))) for name in ("units", "studies")}
    inputs["reports"] = sorted(map(str, folder.glob("*.jsonl")))
    images = sum(len(read_table(path)) for path in inputs["studies"])
    began, wall = time.process_time(), time.perf_counter()
    make_pairs.run(**inputs, **files, **settings_arguments(make_pairs.run, chosen))
    core_s, wall_s = time.process_time() - began, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    written = sum(Path(files[split]).stat().st_size for split in SPLITS) / 1e6
    print(f"{images:>10,} images {core_s:>8.1f} core s {wall_s:>8.1f} s {images / core_s:>8,.0f} a core s "
          f"{peak:>6,.0f} MB of memory, {written:,.0f} MB of lines", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--studies", type=int, default=227_835)
    parser.add_argument("--shards", type=int, default=64)
    given = parser.parse_args()
    for studies in (given.studies // 10, given.studies):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            process = get_context("spawn").Process(target=copies, args=(given.results, folder, studies, given.shards))
            process.start()
            process.join()
            process = get_context("spawn").Process(target=measured, args=(folder,))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"the stage failed in {folder}")


if __name__ == "__main__":
    main()
