"""Write into ``results`` in one of the stages' ways, to test a full disk: ``full_disk.py NAME``."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from cxr.base.atomic import atomic_file, atomic_folder
from cxr.base.hdf5 import ShardWriter
from cxr.base.jobs import start_logging
from cxr.base.tables import write_lines, write_table
from cxr.ils.dataset import mimic_ils
from cxr.plotting import plots

NOISE = np.random.default_rng(0).integers(0, 256, (512, 512), dtype=np.uint8)


def write_shard(path: Path) -> None:
    with ShardWriter(path.with_suffix(".h5")) as writer:
        for number in range(8):
            writer.append(f"i{number}", image=NOISE)


def write_figure(path: Path, save: Callable) -> None:
    figure = Figure(figsize=(4, 4))
    figure.subplots().imshow(NOISE)
    save(figure, path)


def write_folder(path: Path) -> None:
    with atomic_folder(path) as folder:
        for name in "ab":
            mimic_ils._write_mask(folder / name / "a.png", NOISE > 127)


def write_weights(path: Path) -> None:
    import torch

    with atomic_file(path) as temporary:
        torch.save({"a": torch.from_numpy(NOISE.copy())}, temporary)


def write_tensors(path: Path) -> None:
    from safetensors.numpy import save_file

    with atomic_file(path) as temporary:
        save_file({"a": NOISE}, temporary)


WRITERS = {
    "shard": write_shard,
    "parquet": lambda path: write_table(path.with_suffix(".parquet"), pl.DataFrame({"a": NOISE.ravel()})),
    "tsv": lambda path: write_table(path.with_suffix(".tsv"), pl.DataFrame({"a": NOISE.ravel()})),
    "lines": lambda path: write_lines(path, ({"a": row.tolist()} for row in NOISE), checked=True),
    "figure": lambda path: write_figure(path, lambda figure, place: plots.save_png(figure, place, 150)),
    "sheet": lambda path: write_figure(path, lambda figure, place: plots.save_jpeg(figure, place, 600, 95)),
    "folder": write_folder,
    "weights": write_weights,
    "tensors": write_tensors,
}

if __name__ == "__main__":
    start_logging("job.log")
    try:
        WRITERS[sys.argv[1]](Path("results/made"))
    except ImportError as error:
        print(f"{error.name} is not installed")
        sys.exit(3)
