"""Measure SemiSynCXR's editing with RadEdit: seconds per edit, for configurations one at a time and four together.

    python benchmarks/semisyn_editing_speed.py [--device auto|cpu|cuda] [--edits 8] [--batch 8] [--steps 4] [--tiny]
        [--output benchmarks/semisyn_editing_speed.tsv]

An edit is one image under one of the four configurations of `semisyn_editing.py`. The nets have their true sizes and
random weights; `--tiny` uses the small nets of the tests. The time of all steps is extrapolated from ``--steps`` and
from twice as many steps.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("scripts", "tests/support", "benchmarks")]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
import torch  # noqa: E402

import engines_nets  # noqa: E402
import tiny_diffusion  # noqa: E402
from cxr.base.engines import Setup  # noqa: E402
from cxr.base.tables import write_table  # noqa: E402
from cxr.nets.devices import select_device  # noqa: E402
from cxr.semisyn.editing import radedit  # noqa: E402
from cxr.semisyn.editing.engine import Job  # noqa: E402
from cxr.semisyn.editing.settings import EditingSettings  # noqa: E402
from engines_run import clock_of, device_name, frame  # noqa: E402
from semisyn_editing import CONFIGS, jobs  # noqa: E402

COLUMNS = {"what": pl.String, "device": pl.String, "batch": pl.Int64, "s_per_edit": pl.Float64, "peak_gb": pl.Float64}


def editor(given: argparse.Namespace, folder: Path, device: torch.device) -> radedit.RadEditor:
    """Write the nets' files into ``folder``, and return the editor that loads them."""
    torch.manual_seed(0)
    write = tiny_diffusion.write_radedit
    files = write(folder) if given.tiny else engines_nets.write_radedit(folder, {}, frame().image)
    settings = EditingSettings()
    dtype = "float32" if device.type == "cpu" else settings.dtype
    engine_settings, texts = {"dtype": dtype, "autoencoder": settings.autoencoder}, frozenset({"edema", "heart", ""})
    return radedit.load(None, Setup(engine_settings, files, given.device, given.batch), texts)


def seconds(used: radedit.RadEditor, parts: list[list[Job]], device: torch.device, few: int) -> float:
    """Return the seconds per edit, extrapolated to all steps; ``parts``: jobs of each batch; ``few``: number of steps
    to run."""
    clock, took, all_steps = clock_of(device), {}, used.settings["steps"]
    for steps in (few, 2 * few):
        used.settings["steps"] = steps
        used.edit_batch([frame().image] * len(parts[0]), [{}] * len(parts[0]), parts[0])  # libraries are loaded
        began = clock()
        for some in parts:
            used.edit_batch([frame().image] * len(some), [{}] * len(some), some)
        took[steps] = clock() - began
    used.settings["steps"] = all_steps
    edits = sum(map(len, parts))
    each = (took[2 * few] - took[few]) / few
    return float(np.maximum(took[few] + each * (all_steps - few), 0) / edits)


def batches(some: list[Job], size: int) -> list[list[Job]]:
    """Split jobs into batches of ``size`` jobs."""
    return [some[at : at + size] for at in range(0, len(some), size)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--edits", type=int, default=8, help="edits of each way, a multiple of four")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--output", default="benchmarks/semisyn_editing_speed.tsv")
    given = parser.parse_args()
    device, rows = select_device(given.device), []
    with tempfile.TemporaryDirectory() as folder:
        used = editor(given, Path(folder), device)
    every = jobs(max(1, given.edits // len(CONFIGS)), "")
    alone = [every[at :: len(CONFIGS)] for at in range(len(CONFIGS))]
    ways = {
        "one configuration at a time": [some for each in alone for some in batches(each, given.batch)],
        "four configurations of a source together": batches(every, given.batch),
    }
    for what, parts in ways.items():
        took = seconds(used, parts, device, given.steps)
        peak = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else float("nan")
        rows.append((what, device_name(device), given.batch, took, peak))
        print(f"{what}: {took:.3g} s an edit")
    table = pl.DataFrame(rows, schema=COLUMNS, orient="row").with_columns(pl.col(pl.Float64).round_sig_figs(3))
    write_table(given.output, table)


if __name__ == "__main__":
    main()
