"""The training loop: resuming after a kill, updates of several micro-batches, skipped updates."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import ROOT, every
from cxr.base.errors import UserError
from cxr.base.tables import read_table
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.training import fit
from cxr.ils.training.fit import Fit, Scores, learning_rate
from cxr.nets.fitting import loop, plain
from training_runs import Killed, as_json, data, options, run_until, train, updates, written


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> dict:
    return data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, given) -> Path:
    """A training that nothing interrupted: 3 epochs of 4 updates, the fourth of 2 pairs."""
    return train(tmp_path_factory.mktemp("whole"), given)


def test_a_whole_run(whole):
    table = updates(whole)
    assert table["update"].to_list() == list(range(1, 13))
    assert table["epoch"].to_list() == [1] * 4 + [2] * 4 + [3] * 4
    assert table["pairs"].to_list() == [4, 4, 4, 2] * 3
    # each positive once an epoch, and as many negatives
    assert table["positives"].to_numpy().reshape(3, 4).sum(1).tolist() == [7, 7, 7]
    assert not table["skipped"].any()
    np.testing.assert_allclose(table["loss"], table["text"] + table["bce"] + table["dice"], rtol=1e-6)
    assert table["gradient_norm"].is_finite().all()
    epochs = read_table(whole / "epochs.tsv")
    assert epochs["update"].to_list() == [4, 8, 12]
    assert not (whole / "checkpoint").exists()
    assert list((whole / "tensorboard").iterdir())
    Rosalia.from_pretrained(whole / "model")


@pytest.mark.parametrize("kills", every(3, [[6, 7, 10], [1], [3], [8], [11]]))
def test_killed_and_gone_on_with_it_is_the_same_to_the_byte(tmp_path, given, whole, monkeypatch, kills):
    # checkpoints are after 3, 6, 9 and 12 updates, validation after 4, 8 and 12: one killed before update 8 has its
    # validation behind it and the checkpoint before
    for update in kills:
        run_until(tmp_path, given, monkeypatch, update)
    done = []
    original = Fit._update
    monkeypatch.setattr(
        Fit, "_update", lambda self, update, *rest: done.append(update) or original(self, update, *rest)
    )
    assert written(train(tmp_path, given)) == written(whole)
    assert done == list(range(kills[-1] // 3 * 3, 12))


def test_dropout_is_part_of_what_is_the_same(tmp_path, given, whole):
    """Without it the comparison above would not see a generator that is out of step."""
    undropped = train(tmp_path, given, options({"lora": {"rank": 4, "alpha": 8, "dropout": 0.0}}))
    one, other = (updates(folder)["loss"].to_numpy() for folder in (undropped, whole))
    np.testing.assert_array_equal(one[:3], other[:3])  # an adapter starts as nothing, and the first two rates are 0
    assert (abs(one - other)[3:] > 1e-4).all()


KILLED = """
import json, os, signal, sys
from cxr.ils.training.settings import TrainingOptions
from cxr.ils.training.fit import Fit
from cxr.ils.training.train import run_training
held = json.loads(sys.stdin.read())
original = Fit._update
def update(self, number, *rest):
    noted = original(self, number, *rest)
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return noted
Fit._update = update
run_training(**held | {"options": TrainingOptions.from_dict(held["options"])})
"""


@pytest.mark.slow
def test_a_killed_process_leaves_what_the_next_goes_on_from(tmp_path, given, whole):
    done = subprocess.run(
        [sys.executable, "-c", KILLED], input=as_json(tmp_path, given, options(), {}), text=True,
        env={"PYTHONPATH": str(ROOT / "scripts"), "OMP_NUM_THREADS": "1"}, check=False, capture_output=True,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert not (tmp_path / "model").exists()
    assert torch.load(tmp_path / "checkpoint/checkpoint.pt")["state"]["update"] == 6
    assert written(train(tmp_path, given)) == written(whole)


@pytest.mark.parametrize(("update", "warning"), [(1, "SIGTERM"), (3, "SIGURG"), (5, "SIGURG")])
def test_told_to_stop_it_writes_down_how_far_it_is(tmp_path, given, whole, monkeypatch, update, warning):
    """As before SLURM's time limit: within an epoch, or in the last update of one, which is scored afterwards."""
    warned = signal.Signals[warning]
    original = Fit._update

    def stop(self, number, *rest):
        if number == update:
            readers = [reader.pid for reader in multiprocessing.active_children()]
            assert readers
            for process in (*readers, os.getpid()):  # as SLURM: to all of them
                os.kill(process, warned)
        return original(self, number, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Fit, "_update", stop)
        before = signal.getsignal(warned)
        with pytest.raises(UserError, match=rf"^training was stopped .*: step {update + 1} of 12 is saved"):
            train(tmp_path, given, threads=2)  # a reader, which must not end
        assert signal.getsignal(warned) is before
    assert torch.load(tmp_path / "checkpoint/checkpoint.pt", weights_only=True)["state"]["update"] == update + 1
    assert written(train(tmp_path, given)) == written(whole)


def test_neither_readers_nor_checkpoints_change_a_byte(tmp_path, given, whole):
    assert written(train(tmp_path, given, threads=3, checkpoint_every=5)) == written(whole)


def test_images_per_pass_of_sam_change_losses_by_rounding_alone(tmp_path, given, whole):
    one, other = (updates(folder)["loss"] for folder in (train(tmp_path, given, batches={"sam": 1}), whole))
    np.testing.assert_allclose(one[:3], other[:3], rtol=1e-4)  # later updates add the differences up


@pytest.mark.parametrize("change", every(2, ["settings", "code", "lines", "masks"]))
def test_a_checkpoint_of_another_training_is_not_gone_on_with(tmp_path, given, monkeypatch, change, caplog):
    made = options({"epochs": 1})
    run_until(tmp_path / "out", given, monkeypatch, 3, made)
    code = "1"
    if change == "settings":
        made = options({"epochs": 1, "learning_rate": 1e-3})
    elif change == "code":
        code = "2"
    elif change == "lines":
        kept = tmp_path / "train.jsonl"
        kept.write_text("\n".join(Path(given["train"]).read_text().splitlines()[1:]))
        given = given | {"train": str(kept)}
    else:
        more = tmp_path / "00.h5"
        more.write_bytes(Path(given["masks"][0]).read_bytes() + b"0")
        given = given | {"masks": [str(more), given["masks"][1]]}
    done, original = [], Fit._update
    with monkeypatch.context() as patched:
        patched.setattr(Fit, "_update", lambda *given: done.append(given[1]) or original(*given))
        went_on = train(tmp_path / "out", given, made, code=code)
    assert done == list(range(len(updates(went_on))))
    assert "holds a checkpoint made with other settings, inputs or code: the training restarts" in caplog.text
    assert written(went_on) == written(train(tmp_path / "fresh", given, made, code=code))


def test_killed_while_results_are_written(tmp_path, given, whole, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("cxr.ils.training.train.write_rows", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            train(tmp_path, given)
    assert written(train(tmp_path, given)) == written(whole)


def test_tensorboard_holds_the_whole_course_after_a_kill(tmp_path, given, whole, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_until(tmp_path, given, monkeypatch, 7)
    train(tmp_path, given)
    held = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    losses = held.Scalars("update/loss")
    assert [each.step for each in losses] == list(range(1, 13))
    np.testing.assert_allclose([each.value for each in losses], updates(whole)["loss"], rtol=1e-6)
    assert [each.step for each in held.Scalars("validation/giou")] == [4, 8, 12]


def loss_columns(table) -> np.ndarray:
    return table.select("loss", "text", "bce", "dice", "gradient_norm").to_numpy()


def test_micro_batches_add_up_to_the_batch(tmp_path, given):
    """Where micro-batches have as many positives and answers of as many tokens, means over them are those of all."""
    recipe = {"batch": 8, "balance": "exact", "lora": {"rank": 0}, "epochs": 2}
    one = updates(train(tmp_path / "one", given, options(recipe | {"micro_batch": 8})))
    four = updates(train(tmp_path / "four", given, options(recipe | {"micro_batch": 2})))
    # 14 pairs an epoch: an update of 8 pairs, and a last one of the 6 that are left
    assert one["pairs"].to_list() == four["pairs"].to_list() == [8, 6, 8, 6]
    np.testing.assert_allclose(loss_columns(one), loss_columns(four), rtol=2e-4)


def test_micro_batches_without_equal_halves_weigh_their_pairs_differently(tmp_path, given):
    """The published loss is a mean over the positives and tokens of a micro-batch, not of the batch."""
    recipe = {"batch": 8, "balance": "expectation", "lora": {"rank": 0}, "epochs": 1}
    one = updates(train(tmp_path / "one", given, options(recipe | {"micro_batch": 8})))
    four = updates(train(tmp_path / "four", given, options(recipe | {"micro_batch": 2})))
    np.testing.assert_allclose(one["bce"], four["bce"], rtol=2e-4)  # a mean over all pairs
    assert (abs(one["dice"] / four["dice"] - 1) > 1e-3).all()
    assert (abs(one["text"] / four["text"] - 1) > 1e-3).all()


def test_learning_rate_by_hand():
    rates = [learning_rate(update, 1.0, 4, 10) for update in range(10)]
    np.testing.assert_allclose(rates, [0, 0, 1 / 4, 2 / 4, 3 / 4, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6])
    assert learning_rate(1, 1.0, 0, 10) == 0  # that schedule warms up for two updates at least
    assert learning_rate(2, 1.0, 0, 10) == 0.5
    assert [learning_rate(update, 3e-4, 100, 15_450) for update in (101, 15_449)] == [
        pytest.approx(3e-4), pytest.approx(3e-4 * 2 / 15_350)
    ]  # fmt: skip


def spoilt(monkeypatch, when: set[int], how: str) -> list[int]:
    """Let the losses of some micro-batches, counted from 0, have a fault; return a list that counts all."""
    original, seen = fit.compute_losses, []

    def losses(output, *rest):
        found = original(output, *rest)
        seen.append(len(seen))
        if seen[-1] in when:
            if how == "gradient":  # a loss of the same value, whose gradient is none
                found["loss"] = found["loss"] + torch.sqrt((output.seg * 0).sum())
                assert torch.isfinite(found["loss"])
            else:
                found["loss"] = found["loss"] * float(how)
        return found

    monkeypatch.setattr(fit, "compute_losses", losses)
    return seen


@pytest.mark.parametrize("how", ["nan", "inf", "gradient"])
@pytest.mark.parametrize("micro", [4, 2])
def test_an_update_without_a_number_is_skipped_and_counted(tmp_path, given, monkeypatch, caplog, how, micro):
    weights = {}
    original = plain.Runner.take_step

    def update(self, rate):
        before = [value.detach().clone() for value in self.parameters.values()]
        norm = original(self, rate)
        after = list(self.parameters.values())
        weights[len(weights)] = all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
        assert all(value.isfinite().all() for value in after)
        assert all(value.grad is None for value in after)
        return norm

    monkeypatch.setattr(plain.Runner, "take_step", update)
    # of the sixth update the first micro-batch, of two or one
    spoilt(monkeypatch, {9} if micro == 2 else {5}, how)
    table = updates(train(tmp_path, given, options({"micro_batch": micro, "epochs": 2})))
    assert table["skipped"].to_list() == [False] * 5 + [True] + [False] * 2
    # at a learning rate of 0, in the first two, nothing changes either
    assert weights == {number: number in (0, 1, 5) for number in range(8)}
    assert not math.isfinite(table["gradient_norm"][5])
    assert "step 6 is skipped" in caplog.text
    assert table["loss"].to_numpy()[6:].max() < 100
    assert "nan" not in (tmp_path / "epochs.tsv").read_text().lower()


def test_a_skipped_update_is_as_if_it_had_not_been(tmp_path, given, monkeypatch):
    """Neither weights nor moments nor the gradient of the next update know of it."""
    steps = {}

    def course(folder: Path, spoil: bool) -> None:
        with monkeypatch.context() as patched:
            original = plain.Runner.take_step

            def update(self, rate):
                if not spoil and len(steps.setdefault(folder, [])) == 5:  # the update is left out by hand
                    self.optimiser.zero_grad(set_to_none=True)
                    norm = 0.0
                else:
                    norm = original(self, rate)
                steps.setdefault(folder, []).append(norm)
                return norm

            patched.setattr(plain.Runner, "take_step", update)
            if spoil:
                spoilt(patched, {5}, "nan")
            train(folder, given)

    course(tmp_path / "spoilt", True)
    course(tmp_path / "left out", False)
    one, other = written(tmp_path / "spoilt"), written(tmp_path / "left out")
    assert one["model/model.safetensors"] == other["model/model.safetensors"]
    assert one["epochs.tsv"] == other["epochs.tsv"]


def test_too_many_stop_the_run_with_one_sentence(tmp_path, given, monkeypatch):
    seen = spoilt(monkeypatch, {2, 4, 5}, "nan")
    monkeypatch.setattr(loop, "NAN_LIMIT", 2)
    with pytest.raises(UserError, match=r"^training: 2 steps .* not a number: lower learning_rate"):
        train(tmp_path, given)
    assert len(seen) == 5
    assert not (tmp_path / "model").exists()


def kept(
    folder: Path, given: dict, monkeypatch, gious: list[float], n_accs: list[float] | None = None, keep: str = "giou",
    **more: object,
) -> tuple[dict, list[dict]]:  # fmt: skip
    """Train with given scores; return the weights that were written, and those there were at each look."""
    looks, values, others = [], iter(gious), iter(n_accs or [0.0] * len(gious))

    def scores(model, *_):
        looks.append({name: value.clone() for name, value in model.state_dict().items()})
        return Scores(next(values), 0.0, next(others))

    with monkeypatch.context() as patched:
        patched.setattr(fit, "score_pairs", scores)
        train(folder, given, options({"lora": {"rank": 0}, "keep": keep}, **more))
    return Rosalia.from_pretrained(folder / "model").state_dict(), looks


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("gious", "best"),
    [([0.1, 0.5, 0.3], 1), ([0.4, 0.4, 0.4], 0), ([0.1, 0.2, 0.3], 2), ([math.nan] * 3, 2), ([0.0, 0.0, 0.0], 0)],
)
def test_the_best_epoch_is_kept_and_without_a_score_the_last(tmp_path, given, monkeypatch, gious, best):
    found, looks = kept(tmp_path, given, monkeypatch, gious)
    assert [same(found, look) for look in looks] == [number == best for number in range(3)]


@pytest.mark.parametrize(
    ("keep", "gious", "n_accs", "best", "values"),
    [
        ("giou", [0.5, 0.4, 0.3], [0.0, 0.4, 0.9], 0, [0.5, 0.4, 0.3]),
        ("mean", [0.5, 0.4, 0.3], [0.0, 0.4, 0.9], 2, [0.25, 0.4, 0.6]),
        ("mean", [0.5, 0.6, 0.3], [math.nan] * 3, 1, [0.5, 0.6, 0.3]),
        ("mean", [math.nan] * 3, [0.9, 0.5, 0.4], 2, None),
    ],
)
def test_the_epoch_is_kept_by_the_rule_that_is_set(tmp_path, given, monkeypatch, keep, gious, n_accs, best, values):
    found, looks = kept(tmp_path, given, monkeypatch, gious, n_accs, keep)
    assert [same(found, look) for look in looks] == [number == best for number in range(3)]
    told = read_table(tmp_path / "epochs.tsv")["value"]
    assert told.is_nan().all() if values is None else told.to_list() == pytest.approx(values)


def test_a_batch_that_does_not_come_out():
    recipe = options().recipe
    assert replace(recipe, batch=24, micro_batch=4).micro_batches_per_step(3) == 2
    for batch, ranks in ((24, 4), (4, 2), (6, 1)):
        with pytest.raises(UserError, match=rf"^batch is {batch}, which is not a multiple of micro_batch .4. times"):
            replace(recipe, batch=batch, micro_batch=4).micro_batches_per_step(ranks)


def test_bfloat16_keeps_float32_weights_and_trains(tmp_path, given):
    table = updates(train(tmp_path, given, options({"dtype": "bfloat16", "epochs": 1, "gradient_checkpointing": True})))
    assert not table["skipped"].any()
    model = Rosalia.from_pretrained(tmp_path / "model")
    assert {value.dtype for value in model.parameters()} == {torch.float32}


def test_gradient_checkpointing_changes_no_update(tmp_path, given, whole):
    """Dropout is drawn again as it was when activations are computed twice."""
    again = train(tmp_path, given, options({"gradient_checkpointing": True}))
    np.testing.assert_allclose(loss_columns(updates(again)), loss_columns(updates(whole)), rtol=1e-4)
