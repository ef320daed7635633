"""Small trainings through the stage: of the lite engine, on made-up pairs, in less than a second an epoch."""

import json
from pathlib import Path

import polars as pl
import pytest

import rosalia_pairs
from cxr.base.tables import read_table, write_lines
from cxr.ils.training.fit import Fit
from cxr.ils.training.settings import TrainingOptions
from cxr.ils.training.train import run_training

SIZES = {
    "image": 64, "patch": 8, "width": 16, "depth": 1, "clip_image": 32, "clip_patch": 16, "hidden": 32, "layers": 1,
}  # fmt: skip
LORA = {"rank": 4, "alpha": 8, "dropout": 0.3}
NAMED = ["lm_head", "embed_tokens", "project", "mask_decoder"]
"""The parts that the paper's recipe trains in full."""
COMPUTE = {
    "device": "cpu", "batches": {}, "checkpoint_every": 3, "gpus": 1, "batch": 1, "time_to_stop": 600,
    "time_to_answer": 600,
}  # fmt: skip
TABLES = ("updates.tsv", "epochs.tsv")
RESULTS = (*TABLES, "model/model.safetensors", "model/config.json", "model/tokenizer.json")


def options(recipe: dict | None = None, **more: object) -> TrainingOptions:
    """The stage's options: lite's recipe with adapters and dropout, 3 epochs of 4 updates, but for what is given.

    It begins at random, for the base has other sizes, and keeps the epoch that the paper's recipe would.
    """
    held = {"init": "random", "keep": "giou", "balance": "expectation"}
    held |= {"sizes": SIZES, "epochs": 3, "batch": 4, "micro_batch": 4, "warmup": 2, "lora": LORA, "trained": NAMED}
    return TrainingOptions.from_dict({"seed": 3, "lite": held | (recipe or {}), "max_length": 200} | more)


def data(folder: Path, **counts: int) -> dict:
    """Write pairs to train on (7 positives, 12 negatives) and others to validate on; return the stage's inputs."""
    given = rosalia_pairs.write(folder, **counts)
    lines = [json.loads(text) for text in Path(given["lines"]).read_text().splitlines()]
    write_lines(folder / "validate.jsonl", [line | {"pair_id": f"v{line['pair_id']}"} for line in lines[::2]])
    return {"train": given.pop("lines"), "validate": str(folder / "validate.jsonl")} | given


def outputs(folder: Path) -> dict:
    names = {"model": "model", "updates": "updates.tsv", "epochs": "epochs.tsv", "tensorboard": "tensorboard"}
    return {name: str(folder / place) for name, place in names.items()}


def train(
    folder: Path,
    given: dict,
    made: TrainingOptions | None = None,
    *,
    code: str = "1",
    threads: int = 1,
    **compute: object,
) -> Path:
    """Run the stage; return the folder with what it wrote."""
    run_training(
        **given, **outputs(folder), options=made or options(), attrs={"code_digest": code}, threads=threads,
        compute=COMPUTE | compute,
    )  # fmt: skip
    return folder


def written(folder: Path) -> dict[str, bytes]:
    """What a training's results hold, to the byte."""
    return {name: (folder / name).read_bytes() for name in RESULTS}


def updates(folder: Path) -> pl.DataFrame:
    return read_table(folder / "updates.tsv")


def as_json(folder: Path, given: dict, made: TrainingOptions, compute: dict) -> str:
    """The arguments of the stage for another process."""
    return json.dumps(
        {**given, **outputs(folder), "options": made.as_dict(), "attrs": {"code_digest": "1"}, "threads": 1}
        | {"compute": COMPUTE | compute}
    )


class Killed(Exception):
    pass


def run_until(folder: Path, given: dict, monkeypatch, update: int, made: TrainingOptions | None = None) -> None:
    """Run a training that stops before it works on the given update, counted from 0."""
    original = Fit._update

    def stop(self, number, *rest):
        if number == update:
            raise Killed
        return original(self, number, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Fit, "_update", stop)
        with pytest.raises(Killed):
            train(folder, given, made)
