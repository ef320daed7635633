"""A training by DeepSpeed's ZeRO-2, on the CPU, beside the plain one: `make test-deepspeed`."""

import importlib.util
import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from conftest import ROOT
from cxr.base.errors import UserError
from cxr.base.tables import write_lines
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.training import fit
from cxr.ils.training import train as stage
from cxr.ils.training.fit import learning_rate
from cxr.ils.training.settings import TrainingOptions
from cxr.nets.fitting import launch
from training_runs import data, options, train, updates, written

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None,
    reason="deepspeed is not installed here: `make test-deepspeed` installs and runs it",
)
CURVE = ("loss", "text", "bce", "dice", "gradient_norm")


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> dict:
    return data(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _on_a_cpu(monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # ninja is beside this Python
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))


def deepspeed(recipe: dict | None = None, **more: object) -> TrainingOptions:
    """Settings of a training by DeepSpeed; lite is trained by one process otherwise."""
    made = options({"epochs": 2} | (recipe or {}), **more)
    return replace(made, lite=replace(made.lite, runner="deepspeed"))


def over(processes: int, monkeypatch) -> None:
    monkeypatch.setattr(launch, "count_gpus", lambda device, num_requested: processes)


def faulty(patched, fault: str) -> None:
    patched.setattr(stage, "WORKER", "faulty_worker")
    patched.setenv("PYTHONPATH", str(ROOT / "tests/support"))
    patched.setenv("FAULT", fault)


def checkpointed(folder: Path) -> int:
    """The update after which the last checkpoint was written."""
    with safe_open(folder / "checkpoint/checkpoint.safetensors", "pt") as file:
        return json.loads(file.metadata()["state"])["update"]


def curve(folder: Path) -> np.ndarray:
    return updates(folder).select(CURVE).to_numpy()


@pytest.fixture(scope="module")
def plain(tmp_path_factory, given) -> Path:
    return train(tmp_path_factory.mktemp("plain"), given, options({"epochs": 2}))


def test_one_process_is_the_plain_runner(tmp_path, given, plain, caplog):
    caplog.set_level("INFO")
    train(tmp_path, given, deepspeed())
    one, other = curve(tmp_path), curve(plain)
    np.testing.assert_allclose(one[0], other[0], rtol=1e-6)
    np.testing.assert_allclose(one, other, rtol=1e-4)
    for name in ("update", "epoch", "learning_rate", "positives", "pairs", "skipped"):
        assert updates(tmp_path)[name].to_list() == updates(plain)[name].to_list()
    weights, wanted = (load_file(folder / "model/model.safetensors") for folder in (tmp_path, plain))
    assert weights.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-3, atol=1e-4)
    # what the process reports is in the stage's log
    assert "process 0: updates: 8 of 8" in caplog.text
    assert "process 0: epoch 2: validation gIoU" in caplog.text
    assert not (tmp_path / "checkpoint").exists()


def test_two_processes_are_two_micro_batches_of_one(tmp_path, given, monkeypatch):
    recipe = {"micro_batch": 2, "lora": {"rank": 4, "alpha": 8, "dropout": 0.0}}
    train(tmp_path / "plain", given, options({"epochs": 2} | recipe))
    over(2, monkeypatch)
    train(tmp_path / "two", given, deepspeed(recipe))
    one, two = updates(tmp_path / "plain"), updates(tmp_path / "two")
    for name in ("pairs", "positives"):  # of both processes
        assert one[name].to_list() == two[name].to_list()
    # the fourth update has 2 pairs: one micro-batch in the one, a pair for each process in the other
    full = one["pairs"].to_numpy() == 4
    assert full.tolist() == [True, True, True, False] * 2
    np.testing.assert_allclose(curve(tmp_path / "two")[:3], curve(tmp_path / "plain")[:3], rtol=1e-4)
    np.testing.assert_allclose(two["bce"], one["bce"], rtol=2e-2)


def test_accumulated_over_two_processes(tmp_path, given, monkeypatch):
    recipe = {"batch": 8, "micro_batch": 2, "balance": "exact", "lora": {"rank": 4, "alpha": 8, "dropout": 0.0}}
    train(tmp_path / "plain", given, options({"epochs": 2} | recipe))
    over(2, monkeypatch)
    train(tmp_path / "two", given, deepspeed(recipe))
    one, two = updates(tmp_path / "plain"), updates(tmp_path / "two")
    assert one["pairs"].to_list() == [8, 6, 8, 6]
    assert two["pairs"].to_list() == [8, 8, 8, 8]  # filled up, so that both processes have halves
    np.testing.assert_allclose(curve(tmp_path / "two")[0], curve(tmp_path / "plain")[0], rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("processes", [1, 2])
def test_killed_and_gone_on_with_it_is_the_same(tmp_path, given, monkeypatch, dtype, processes):
    over(processes, monkeypatch)
    made = deepspeed({"dtype": dtype, "micro_batch": 4 // processes})
    whole = written(train(tmp_path / "whole", given, made))
    with monkeypatch.context() as patched:
        faulty(patched, "kill 4")
        with pytest.raises(RuntimeError, match="a process of the training ended with code"):
            train(tmp_path / "killed", given, made)
    assert json.loads((tmp_path / "killed/checkpoint/job.json").read_text())["folder"]
    assert checkpointed(tmp_path / "killed") == 3
    assert written(train(tmp_path / "killed", given, made)) == whole
    model = Rosalia.from_pretrained(tmp_path / "killed/model")
    assert all(value.isfinite().all() for value in model.parameters())


def test_bfloat16_is_close(tmp_path, given, plain):
    train(tmp_path, given, deepspeed({"dtype": "bfloat16", "gradient_checkpointing": True}))
    np.testing.assert_allclose(updates(tmp_path)["loss"], updates(plain)["loss"], rtol=0.05)
    weights = load_file(tmp_path / "model/model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.bfloat16}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_loss_that_is_no_number_on_one_process_is_skipped_by_all(tmp_path, given, monkeypatch, dtype, caplog):
    over(2, monkeypatch)
    caplog.set_level("INFO")
    made = deepspeed({"dtype": dtype, "micro_batch": 1, "epochs": 2, "balance": "expectation"})
    faulty(monkeypatch, "nan 5 1")
    table = updates(train(tmp_path, given, made))
    assert table["skipped"].to_list() == [False] * 5 + [True] + [False] * 2
    assert table["loss"].is_nan().to_list() == table["skipped"].to_list()
    assert "step 6 is skipped" in caplog.text
    assert all(value.isfinite().all() for value in load_file(tmp_path / "model/model.safetensors").values())


def test_a_skipped_update_leaves_nothing_behind(tmp_path, given, monkeypatch):
    """Neither gradients nor moments of it are in what follows, which is that of the plain runner."""
    recipe = {"epochs": 2, "micro_batch": 2}
    seen, original = [], fit.compute_losses

    def spoilt(*arguments):
        found = original(*arguments)
        seen.append(len(seen))
        # of the sixth update (three have two micro-batches, the fourth has one) both
        return found | {"loss": found["loss"] * (float("nan") if seen[-1] in (9, 10) else 1.0)}

    with monkeypatch.context() as patched:
        patched.setattr(fit, "compute_losses", spoilt)
        train(tmp_path / "plain", given, options(recipe))
    faulty(monkeypatch, "nan 5 0")
    train(tmp_path / "deepspeed", given, deepspeed(recipe))
    one, other = curve(tmp_path / "plain"), curve(tmp_path / "deepspeed")
    assert np.isnan(one).any(1).tolist() == np.isnan(other).any(1).tolist() == [False] * 5 + [True] + [False] * 2
    np.testing.assert_allclose(np.delete(other, 5, 0), np.delete(one, 5, 0), rtol=1e-4)


def test_too_many_stop_the_run_with_one_sentence(tmp_path, given, monkeypatch):
    faulty(monkeypatch, "nan 2 0")
    monkeypatch.setenv("NAN_LIMIT", "1")
    with pytest.raises(UserError, match=r"^training: 1 steps had a loss .* lower learning_rate, or set dtype") as found:
        train(tmp_path, given, deepspeed())
    assert "\n" not in str(found.value)


def test_a_mistake_in_one_process_reaches_the_user(tmp_path, given, monkeypatch, caplog):
    """A mask that cannot be read, by whichever process needs it: its sentence, and no word of the launcher."""
    import h5py

    over(2, monkeypatch)
    caplog.set_level("INFO")
    path = tmp_path / "00.h5"
    raw = bytearray(Path(given["masks"][0]).read_bytes())
    with h5py.File(given["masks"][0]) as file:
        place = file["mask"].id.get_offset() or file["mask"].id.get_chunk_info(0).byte_offset
    raw[place + 5 : place + 25] = b"\xff" * 20
    path.write_bytes(raw)
    with pytest.raises(UserError, match=r"^pair \S+: \S+00\.h5 is damaged: delete it and run again") as found:
        train(tmp_path / "out", given | {"masks": [str(path), given["masks"][1]]}, deepspeed({"micro_batch": 2}))
    assert "\n" not in str(found.value)
    assert "Traceback" not in caplog.text


def test_a_batch_that_the_processes_cannot_share(tmp_path, given, monkeypatch):
    over(3, monkeypatch)
    with pytest.raises(UserError, match=r"batch is 4, .* multiple of micro_batch \(2\) times the number of GPUs \(3\)"):
        train(tmp_path, given, deepspeed({"micro_batch": 2}))


@pytest.mark.parametrize(("warmup", "total"), [(1, 5), (2, 7), (4, 10), (100, 250), (20, 20)])
def test_the_learning_rate_is_warmup_decay_lr(warmup, total):
    from deepspeed.runtime.lr_schedules import WarmupDecayLR

    optimiser = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=3e-4)
    schedule = WarmupDecayLR(
        optimiser, total_num_steps=total, warmup_min_lr=0, warmup_max_lr=3e-4, warmup_num_steps=warmup,
        warmup_type="linear",
    )  # fmt: skip
    for update in range(total):
        (rate,) = {group["lr"] for group in optimiser.param_groups}
        assert rate == pytest.approx(learning_rate(update, 3e-4, warmup, total), rel=1e-9, abs=1e-15), update
        optimiser.step()
        schedule.step()  # as DeepSpeed's engine does after each update


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_gone_on_with_another_number_of_gpus(tmp_path, given, monkeypatch, dtype, before, after):
    """`compute` may change (docs/systems/rosalia.md): weights and moments are resumed, the course is the same."""
    made = deepspeed({"dtype": dtype, "micro_batch": 1, "lora": {"rank": 4, "alpha": 8, "dropout": 0.0}})
    over(before, monkeypatch)
    whole = curve(train(tmp_path / "whole", given, made))
    with monkeypatch.context() as patched:
        faulty(patched, "kill 5")
        with pytest.raises(RuntimeError):
            train(tmp_path / "killed", given, made)
    assert checkpointed(tmp_path / "killed") == 3
    over(after, monkeypatch)
    found = curve(train(tmp_path / "killed", given, made))
    np.testing.assert_array_equal(found[:3], whole[:3])
    np.testing.assert_allclose(found[3:7], whole[3:7], rtol=0.05 if dtype == "bfloat16" else 1e-3)
    assert updates(tmp_path / "killed")["pairs"].to_list() == updates(tmp_path / "whole")["pairs"].to_list()


@pytest.mark.parametrize(("update", "processes"), [(4, 2), (3, 2), (1, 1)])
def test_told_to_stop_all_write_down_how_far_they_are(tmp_path, given, monkeypatch, update, processes):
    """SIGTERM at a time limit, here to one process alone; resumed, it is the same to the byte."""
    over(processes, monkeypatch)
    made = deepspeed({"dtype": "bfloat16", "micro_batch": 4 // processes})
    whole = written(train(tmp_path / "whole", given, made))
    with monkeypatch.context() as patched:
        faulty(patched, f"term {update} {processes - 1}")
        told = rf"^training was stopped .*: step {update + 1} of 8 is saved, rerun to resume"
        with pytest.raises(UserError, match=told):
            train(tmp_path / "stopped", given, made)
    assert checkpointed(tmp_path / "stopped") == update + 1
    assert written(train(tmp_path / "stopped", given, made)) == whole


@pytest.mark.parametrize("warning", [signal.SIGTERM, signal.SIGURG])
def test_the_launcher_passes_on_that_it_is_to_stop(tmp_path, given, monkeypatch, warning):
    """Whoever ends the job itself: the processes below it write down how far they are."""
    over(2, monkeypatch)
    made = deepspeed({"micro_batch": 2, "epochs": 40})

    def once_it_runs() -> None:
        while not list((tmp_path / "tensorboard").glob("*")):
            time.sleep(0.2)
        os.kill(os.getpid(), warning)

    threading.Thread(target=once_it_runs, daemon=True).start()
    with pytest.raises(UserError, match=r"^training was stopped .* of 160 is saved"):
        train(tmp_path, given, made)
    assert checkpointed(tmp_path) > 0


def test_a_process_without_a_seg_holds_up_no_other(tmp_path, given, monkeypatch):
    """Answers of negatives may do without [SEG]; then one process has a mask to learn from, and another none."""
    lines = [json.loads(text) for text in Path(given["train"]).read_text().splitlines()]
    for line in lines:
        line["answer"] = line["answer"] if line["seg"] else "There is no edema."
    write_lines(tmp_path / "train.jsonl", lines)
    changed = given | {"train": str(tmp_path / "train.jsonl")}
    recipe = {"micro_batch": 1, "balance": "expectation", "lora": {"rank": 4, "alpha": 8, "dropout": 0.0}}
    train(tmp_path / "plain", changed, options({"epochs": 2} | recipe))
    over(2, monkeypatch)
    train(tmp_path / "two", changed, deepspeed(recipe), time_to_answer=120)
    one, two = updates(tmp_path / "plain"), updates(tmp_path / "two")
    assert two["pairs"].to_list() == one["pairs"].to_list()
    np.testing.assert_allclose(curve(tmp_path / "two")[:2], curve(tmp_path / "plain")[:2], rtol=1e-3)


@pytest.mark.slow
def test_a_process_that_hangs_ends_the_job_with_a_sentence(tmp_path, given, monkeypatch):
    over(2, monkeypatch)
    faulty(monkeypatch, "hang 2 1")
    with pytest.raises(UserError, match=r"^training: one of its 2 processes no longer answers \(") as told:
        train(tmp_path, given, deepspeed({"micro_batch": 2}), time_to_answer=20, time_to_stop=30)
    assert "\n" not in str(told.value)
