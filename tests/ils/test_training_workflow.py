"""The rule `training` on the slice of the embedded cohort: what it writes, and when it is run again."""

import shutil
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest

from conftest import SLICE, snakemake, write_settings
from cxr.base.tables import read_table
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.tokens import Tokens
from declared_tables import tables_of
from training_runs import SIZES

RECIPE = {
    "init": "random",
    "sizes": SIZES,
    "epochs": 2,
    "batch": 4,
    "micro_batch": 4,
    "warmup": 2,
    "balance": "expectation",
}


@pytest.fixture(scope="module")
def trained(workflow_run, tmp_path_factory) -> Path:
    """A copy of the slice's run in which `snakemake training` has run."""
    copy = tmp_path_factory.mktemp("training") / "run"
    shutil.copytree(workflow_run, copy, symlinks=True)
    write_settings(copy, SLICE | {"training": {"lite": RECIPE}})
    snakemake(copy, "training")
    return copy


@pytest.mark.slow
def test_what_a_training_leaves(trained):
    folder = trained / "results/training/default"
    assert {path.name for path in folder.iterdir()} == {
        "model", "updates.tsv", "epochs.tsv", "tensorboard", "curves.png"
    }  # fmt: skip
    updates, epochs = read_table(folder / "updates.tsv"), read_table(folder / "epochs.tsv")
    assert {path: why for path, why in tables_of(trained).items() if "training" in path} == {
        "results/training/{run}/updates.tsv": "", "results/training/{run}/epochs.tsv": ""
    }  # fmt: skip
    lines = (trained / "results/dataset/default/train.jsonl").read_text().splitlines()
    positives = sum('"seg": true' in line for line in lines)
    per_epoch = -(-2 * positives // 4)
    assert updates["update"].to_list() == list(range(1, 2 * per_epoch + 1))
    assert updates.group_by("epoch").agg(pl.col("pairs").sum()).sort("epoch").rows() == [
        (1, 2 * positives), (2, 2 * positives)
    ]  # fmt: skip
    assert epochs["update"].to_list() == [per_epoch, 2 * per_epoch]
    model, tokens = Rosalia.from_pretrained(folder / "model"), Tokens.load(folder / "model")
    assert model.config.seg_id == tokens.seg
    picture = cv2.imread(str(folder / "curves.png"))
    assert picture.shape[0] > 400
    blue, black = (np.abs(picture.astype(int) - colour).max(-1) < 40 for colour in ((0xB2, 0x72, 0), (0, 0, 0)))
    assert blue.sum() > 100
    assert black.sum() > 100
    log = (trained / "logs/training/default.log").read_text()
    assert f"updates: {2 * per_epoch} of {2 * per_epoch}" in log
    assert "SYN0" not in log  # no patient
    assert "You are using a model of type" not in log


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rule"), [("published", "training_published"), ("sam.safetensors", "training_sam")])
def test_published_layouts_are_made_when_asked_for(trained, dry_run, name, rule):
    assert dry_run(trained, f"results/training/default/{name}") == {rule: 1}


@pytest.mark.slow
def test_a_training_is_run_again_for_its_own_settings_alone(trained, dry_run):
    others = {
        "compute": {"checkpoint_every": 7, "batches": {"sam": 2}, "gpus": 3},
        "training": {"lite": RECIPE, "rosalia": {"learning_rate": 1e-4}},
        "inference": {"text": False},
        "replicates": 100,
    }
    write_settings(trained, SLICE | others)
    assert dry_run(trained, "training") == {}
    write_settings(trained, SLICE | {"training": {"lite": RECIPE | {"learning_rate": 1e-3}}})
    assert set(dry_run(trained, "training")) == {"training_run", "training_curves", "training"}


@pytest.mark.slow
def test_a_second_training_leaves_the_first_as_it_is(trained, dry_run):
    second = {"lite": RECIPE, "runs": {"default": {}, "again": {}}}
    write_settings(trained, SLICE | {"training": second})
    assert dry_run(trained, "training") == {"training": 1, "training_run": 1, "training_curves": 1}
    bad = {"lite": RECIPE | {"batch": 6}}
    write_settings(trained, SLICE | {"training": bad})
    done = snakemake(trained, "training", "--dry-run", check=False)
    assert done.returncode
    assert "lite.batch is 6, no multiple of micro_batch 4: change one" in done.stdout + done.stderr
