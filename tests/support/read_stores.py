"""Read a file of every kind while the system refuses it: ``read_stores.py FOLDER KIND`` beside failing_calls.c.

KIND: ``files`` for the formats, ``models`` for the folders of models, whose libraries load slowly.

Prints {store: {"call number": the error's class and message}} as JSON.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import torch

from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_lines, read_table, scan_table, write_lines, write_table
from cxr.ils.evaluation.predictions import read_map
from cxr.imaging.weights import pickles, state_dict
from cxr.llm.messages import PromptImage
from cxr.nets import onnx, tensors
from cxr.nets.fitting import checkpoint
from cxr.nets.tensors import load_strict
from cxr.nets.weight_files import WeightFiles

ROOT = Path(__file__).parents[2]
NUMBERS = (5, 13, 23, 24, 37, 110, 116, 524)
"""EIO, EACCES, ENFILE, EMFILE, ENOLCK, ETIMEDOUT, ESTALE, ENOTSUPP."""


def read_shard(path: Path) -> None:
    with Shard(path) as shard:
        shard.get("image", "a")


def write_files(folder: Path) -> None:
    with ShardWriter(folder / "00.h5") as shard:
        shard.append("a", image=np.zeros((64, 64), np.uint8))
    write_table(folder / "table.parquet", pl.DataFrame({"a": [1]}))
    write_table(folder / "table.tsv", pl.DataFrame({"a": [1]}))
    write_lines(folder / "lines.jsonl", [{"a": 1}], checked=True)
    values = {"a": torch.zeros(2)}
    tensors.write_weights(
        folder / "net.safetensors", tensors.tensor_kinds(values), values.__getitem__, {"kind": "test"}
    )
    torch.save(values, folder / "net.pt")
    np.save(folder / "map.npy", np.zeros((2, 2)))
    shutil.copy(next((ROOT / "resources/anomaly").glob("*.onnx")), folder / "net.onnx")
    (folder / "checkpoint").mkdir()
    shutil.copy(folder / "net.safetensors", folder / "checkpoint" / checkpoint.FILE_NAME)
    from PIL import Image

    Image.new("L", (8, 8)).save(folder / "picture.png")
    for name in ("config.json", "segmenter.json", "run.json"):
        (folder / name).write_text("{}")


def files(folder: Path) -> dict[str, Callable[[], object]]:
    """Return how each format is read."""
    net = torch.nn.Module()
    net.a = torch.nn.Parameter(torch.zeros(2))
    return {
        "shard": lambda: read_shard(folder / "00.h5"),
        "parquet": lambda: read_table(folder / "table.parquet"),
        "tsv": lambda: read_table(folder / "table.tsv"),
        "scanned": lambda: scan_table(folder / "table.parquet"),
        "lines": lambda: list(read_lines(folder / "lines.jsonl")),
        "tensors": lambda: tensors.read_weights(folder / "net.safetensors", "test"),
        "strict": lambda: load_strict(net, folder / "net.safetensors"),
        "weights": lambda: WeightFiles(folder / "net.safetensors").__enter__(),
        "torch weights": lambda: WeightFiles(folder / "net.pt").__enter__(),
        "pickle": lambda: pickles.read_checkpoint(folder / "net.pt"),
        "state": lambda: state_dict.read_state(folder / "net.safetensors"),
        "checkpoint": lambda: checkpoint.read_checkpoint(folder / "checkpoint", lambda *_: None),
        "onnx": lambda: onnx.open_session(folder / "net.onnx"),
        "onnx layer": lambda: onnx._layer_session(str(folder / "net.onnx"), "x"),
        "picture": lambda: PromptImage(folder / "picture.png").to_pil(),
        "map": lambda: read_map(folder / "map.npy", 0.5),
    }


def models(folder: Path) -> dict[str, Callable[[], object]]:
    """Return how each kind of model's folder is read."""
    from cxr.diffusion.folders import read_json
    from cxr.ils.rosalia.config import read_config
    from cxr.ils.rosalia.sources import PairLines
    from cxr.segmentation.segmenter import Segmenter
    from cxr.vlm.families.engine import load_family
    from cxr.vlm.models import read_run

    return {
        "pairs": lambda: PairLines(folder / "lines.jsonl"),
        "rosalia": lambda: read_config(folder),
        "diffusion": lambda: read_json(folder / "config.json", "remedy"),
        "segmenter": lambda: Segmenter.load(folder),
        "run": lambda: read_run(folder),
        "family": lambda: load_family("onevision", folder),
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    write_files(place)
    readings = {"files": files, "models": models}[sys.argv[2]](place)
    said: dict[str, dict[str, str]] = {name: {} for name in readings}
    for call in ("OPEN", "READ"):
        for number in NUMBERS:
            os.environ[f"FAIL_{call}"] = str(number)
            for name, read in readings.items():
                try:
                    read()
                    said[name][f"{call} {number}"] = ""
                except Exception as error:
                    said[name][f"{call} {number}"] = f"{type(error).__name__}: {error}"
            del os.environ[f"FAIL_{call}"]
    print(json.dumps(said))
