"""A tuning by DeepSpeed's ZeRO-2 and ZeRO-3, on the CPU, beside the plain one: `make test-deepspeed`."""

import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import vlm_masks
from cxr.base.tables import read_table
from cxr.nets.fitting import launch
from cxr.vlm.families.engine import load_family
from cxr.vlm.models import MODEL, SEGMENTER
from cxr.vlm.tuning import tune as stage
from vlm_runs import OPTIONS, contents, data, recipe, tune

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None,
    reason="deepspeed is not installed here: `make test-deepspeed` installs and runs it",
)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _on_a_cpu(monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # ninja is beside this Python
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> dict:
    return data(tmp_path_factory.mktemp("drawn"), pictures=4)


@pytest.fixture(scope="module")
def plain(tmp_path_factory, given) -> Path:
    return tune(tmp_path_factory.mktemp("plain"), given, recipe())


def losses(run: Path) -> np.ndarray:
    return read_table(run.parent / "updates.tsv")["loss"].to_numpy()


def by(zero: int):
    return recipe(runner="deepspeed", zero=zero, micro_batch=2)


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("processes", [1, 2])
def test_any_number_of_processes_gives_the_plain_runners_losses(given, plain, tmp_path, monkeypatch, zero, processes):
    monkeypatch.setattr(launch, "count_gpus", lambda device, num_requested: processes)
    run = tune(tmp_path, given, by(zero))
    np.testing.assert_allclose(losses(run)[:2], losses(plain)[:2], rtol=1e-5)
    np.testing.assert_allclose(losses(run), losses(plain), rtol=1e-3)
    counts, wanted = ((one.parent / "conservation.tsv").read_text() for one in (run, plain))
    assert counts == wanted
    weights, wanted = (load_file(folder / MODEL / "model.safetensors") for folder in (run, plain))
    assert weights.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-2, atol=2e-3)


def test_stopped_and_resumed_with_shared_weights_it_is_the_same(given, tmp_path, monkeypatch):
    """Two processes are told to stop after the first update, by their job's end, and then resume."""
    monkeypatch.setattr(launch, "count_gpus", lambda device, num_requested: 2)
    whole = tune(tmp_path / "whole", given, by(3))
    with monkeypatch.context() as patched:
        patched.setattr(stage, "WORKER", "faulty_tuner")
        patched.setenv("PYTHONPATH", str(ROOT / "tests/support"))
        with pytest.raises(RuntimeError, match="a process of the training ended with code"):
            tune(tmp_path / "killed", given, by(3))
    assert not (tmp_path / "killed/run").exists()
    assert (tmp_path / "killed/checkpoint/checkpoint.safetensors").is_file()
    assert contents(tune(tmp_path / "killed", given, by(3))) == contents(whole)


@pytest.mark.parametrize("zero", [2, 3])
def test_pictures_are_cut_as_by_the_plain_runner(tmp_path, monkeypatch, zero):
    """Two processes, which start from links to a base of other tiles."""
    drawn = data(tmp_path, pictures=4, sizes=((128, 128),))
    options = recipe(replace(OPTIONS, family="onevision", side=128), micro_batch=2)
    base = str(tune(tmp_path / "base", drawn, options) / MODEL)
    options = replace(options, tiling={"tiles": "anyres_max_1", "grid": 3})
    wanted = tune(tmp_path / "plain", drawn, options, base=base)
    monkeypatch.setattr(launch, "count_gpus", lambda device, num_requested: 2)
    run = tune(tmp_path / "shared", drawn, recipe(options, runner="deepspeed", zero=zero), base=base)
    np.testing.assert_allclose(losses(run), losses(wanted), rtol=1e-3)
    for name in ("config.json", "preprocessor_config.json", "processor_config.json"):
        assert (run / MODEL / name).read_bytes() == (wanted / MODEL / name).read_bytes()
    tiling = load_family("onevision", run / MODEL).tiling
    assert (tiling.most, len(tiling.pinpoints)) == (1, 9)


@pytest.mark.parametrize("zero", [2, 3])
def test_a_head_of_masks_is_learned_as_by_the_plain_runner(tmp_path, monkeypatch, zero):
    """Two processes; micro-batches with and without a [SEG] stand beside each other."""
    drawn = vlm_masks.scenes(tmp_path / "drawn", pictures=1)
    options = vlm_masks.recipe(batch=4, updates=2)
    wanted = vlm_masks.tune(tmp_path / "plain", drawn, options)
    monkeypatch.setattr(launch, "count_gpus", lambda device, num_requested: 2)
    run = vlm_masks.tune(
        tmp_path / "shared", drawn, vlm_masks.recipe(options, runner="deepspeed", zero=zero, micro_batch=1)
    )
    np.testing.assert_allclose(losses(run), losses(wanted), rtol=1e-3)
    weights, held = (load_file(folder / SEGMENTER / "segmenter.safetensors") for folder in (run, wanted))
    assert weights.keys() == held.keys()
    for name, value in held.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-2, atol=2e-3)
