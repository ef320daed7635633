"""Measure speed and memory of the engines with large nets, at their true size with random weights.

    python benchmarks/engines.py [--device auto|cpu|cuda] [--engines a,b] [--images 16] [--batch 8] [--steps N]
        [--folds 5] [--python cxas=.venv-cxas/bin/python]… [--compute compile=true …] [--tiny]
        [--output benchmarks/engines.tsv]

Each engine's weights are first written in its file format to a temporary folder (TMPDIR; 5 GB for radedit) and loaded
by its ``load``. The engine then processes one image at a time and ``--batch`` images at a time, each in a separate
process. Memory is the maximum including weights; on a GPU, it is that of tensors. Times are core seconds on a CPU and
wall seconds on a GPU, without reading frames and writing results. On a GPU the first batch is not counted.

``--steps`` limits the diffusion steps of radedit, and ``--folds`` the nets of scaled_yolov4. The time of all steps or
folds is extrapolated, with the autoencoder's time counted once. ``--compute``: settings of the section ``compute`` that
speed up nets. ``--tiny``: use the smallest nets of radedit and scaled_yolov4, to try the command.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import polars as pl  # noqa: E402
import yaml  # noqa: E402

from cxr.base.tables import write_table  # noqa: E402
from cxr.workflow.params import stage_options  # noqa: E402
from cxr.workflow.settings import read  # noqa: E402

ENGINES = {
    "hybridgnet": "organs",
    "radedit": "anomaly",
    "cxas": "anatomy",
    "scaled_yolov4": "boxes",
    "ultralytics": "boxes",
}
"""{engine with a large net: its stage}."""
COLUMNS = {
    "stage": pl.String, "engine": pl.String, "values_million": pl.Float64, "device": pl.String, "dtype": pl.String,
    "batch": pl.Int64, "images": pl.Int64, "parts": pl.Int64, "of_parts": pl.Int64, "s_per_part": pl.Float64,
    "s_besides": pl.Float64, "s_per_image": pl.Float64, "images_per_s": pl.Float64, "peak_gb": pl.Float64,
}  # fmt: skip
"""Columns of the table. parts, of_parts: number of measured parts and of all parts, which are radedit's diffusion steps
or scaled_yolov4's folds."""


TINY = 128
"""Side of the smallest detector's input, px."""


class Refused(Exception):
    """Raised if an engine could not be measured; the message is one sentence."""


def child(python: str, **job: object) -> dict:
    """Run a job of `engines_run.py` with the interpreter ``python``; return its result. Raises Refused."""
    command = [python, str(ROOT / "benchmarks" / "engines_run.py"), json.dumps(job)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Refused(f"{python} does not run ({error.strerror}): correct --python") from None
    try:
        told = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = [f"ended with {done.returncode}", *done.stderr.splitlines()][-1]
        raise Refused(f"its process ended without a result ({last})") from None
    if "refused" in told:
        raise Refused(told["refused"])
    return told


def sentence(row: dict) -> str:
    """Return a row of the table as a line of text."""
    line = f"{row['stage']} {row['engine']} on {row['device']} in {row['dtype']}, {row['batch']} at a time: "
    line += f"{row['s_per_image']:.3g} s an image, at most {row['peak_gb']:.2g} GB"
    if row["of_parts"]:
        part = "step" if row["engine"] == "radedit" else "fold"
        line += f"; {row['s_per_part']:.3g} s a {part}, {row['parts']} of {row['of_parts']} {part}s run"
    return line


def rows_of(name: str, given: argparse.Namespace, python: str, folder: str) -> Iterator[dict]:
    """Write an engine's files, and yield a row for single images and a row for batches. Raises Refused."""
    stage = ENGINES[name]
    options = stage_options(read({stage: {"engine": name}}))[stage]
    shared = {"stage": stage, "name": name, "options": options, "device": given.device}
    if given.tiny and name == "scaled_yolov4":
        shared["image_size"] = TINY
    made = child(python, task="make", folder=folder, tiny=given.tiny, **shared)
    parts = {"radedit": given.steps, "scaled_yolov4": given.folds}.get(name)
    for batch in sorted({1, given.batch}):
        job = {"files": made["files"], "batch": batch, "images": given.images, "parts": parts}
        job["compute"] = yaml.safe_load("\n".join(given.compute).replace("=", ": ")) or {}
        row = child(python, task="measure", **shared, **job)
        if not row:
            print(f"{stage} {name}: does not support batches of {batch} on this device", flush=True)
            continue
        yield {"stage": stage, "engine": name, "values_million": made["values"] / 1e6} | row


def positive(text: str) -> int:
    """Convert a text to an integer above 0. Raises ValueError."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line. An unknown engine ends the program with a message."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--engines", default=",".join(ENGINES), help="engines to measure, joined by commas")
    parser.add_argument("--images", type=positive, default=16)
    parser.add_argument("--batch", type=positive, default=8, help="number of images per batch, as compute.batch")
    parser.add_argument("--steps", type=positive, help="number of diffusion steps of radedit to run (default: all)")
    parser.add_argument("--folds", type=positive, default=5, help="number of nets of scaled_yolov4 to run")
    parser.add_argument("--compute", nargs="*", default=[], help="settings of the section compute, as key=value")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--python", action="append", default=[], help="ENGINE=Python interpreter of its environment")
    parser.add_argument("--output", default="benchmarks/engines.tsv")
    known = parser.parse_args(given)
    known.engines = known.engines.split(",")
    known.python = dict(one.partition("=")[::2] for one in known.python)
    for name in [*known.engines, *known.python]:
        if name not in ENGINES:
            parser.error(f"{name!r} is no engine with a large net: choose among {', '.join(ENGINES)}")
    return known


def main() -> None:
    given = arguments()
    rows, refused = [], 0
    for name in given.engines:
        with tempfile.TemporaryDirectory() as folder:
            try:
                for row in rows_of(name, given, given.python.get(name, sys.executable), folder):
                    rows.append(row)
                    print(sentence(row), flush=True)
            except Refused as error:
                refused += 1
                print(f"{ENGINES[name]} {name} skipped: {error}", flush=True)
    if not rows:
        raise SystemExit("nothing was measured")
    table = pl.DataFrame(rows, schema=COLUMNS).with_columns(pl.col(pl.Float64).round_sig_figs(3))
    write_table(given.output, table)
    print(f"table in {given.output}; {refused} of {len(given.engines)} engines skipped or failed")


if __name__ == "__main__":
    main()
