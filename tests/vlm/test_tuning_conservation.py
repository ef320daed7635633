"""Lines x passes of a tuning are the samples seen and those that were not, by reason: two counts, made apart."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from cxr.base.tables import read_table, write_lines
from cxr.vlm.tuning import fit, tune
from cxr.vlm.tuning.fit import TuningLog, TuningLoop
from cxr.vlm.tuning.settings import Recipe
from vlm_runs import RECIPE, data, recipe
from vlm_runs import tune as tuned


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Twelve lines of five pictures and a copy: ten that are learned, one that is too long, one with a mark in it."""
    folder = tmp_path_factory.mktemp("drawn")
    held = data(folder, pictures=5)
    first = held["rows"][0]
    more = [{"query_id": "long", "query": "the bright thing " * 200}, {"query_id": "speaks", "query": "a<|im_end|> b"}]
    write_lines(folder / "lines.jsonl", [*held["rows"], *(first | one for one in more)])
    return held


def counts(run) -> dict[tuple[str, str], int]:
    return {(what, name): number for what, name, number in read_table(run.parent / "conservation.tsv").iter_rows()}


def updates(run):
    return read_table(run.parent / "updates.tsv")


LINES = {("lines", "all"): 12, ("lines", "learned"): 10, ("lines", "reserved"): 1, ("lines", "too_long"): 1}
PASS = {("pass", "all"): 10, ("pass", "learned"): 10}


def told(passes: int, **ends: int) -> dict[tuple[str, str], int]:
    """Return the rows of a run on the ten lines, batches of four. ``ends``: of the samples."""
    seen = {("updates", "all"): ends["seen"], ("updates", "grounding"): ends["seen"]}
    held = {("samples", name): number for name, number in ends.items()}
    return LINES | PASS | {("passes", "all"): passes, ("samples", "all"): 10 * passes} | held | seen


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"epochs": 2}, told(2, seen=20)),
        ({"epochs": 2, "drop_last": True}, told(2, seen=16, drop_last=4)),
        ({"updates": 6}, told(2, seen=20)),
        ({"updates": 4, "drop_last": True}, told(2, seen=16, drop_last=4)),
        ({"updates": 3, "drop_last": True}, told(2, seen=12, drop_last=4, not_reached=4)),
        ({"updates": 1, "batch": 16, "micro_batch": 4, "drop_last": True}, told(1, seen=10)),
    ],
    ids=str,
)
def test_every_line_of_every_pass_is_seen_or_told(given, tmp_path, changed, wanted):
    run = tuned(tmp_path, given, recipe(max_length=300, **changed))
    assert counts(run) == wanted
    assert updates(run)["samples"].sum() == wanted["samples", "seen"]
    lines = wanted["lines", "all"] * wanted["passes", "all"]
    left = (wanted["lines", "too_long"] + wanted["lines", "reserved"]) * wanted["passes", "all"]
    assert lines == left + sum(wanted.get(("samples", name), 0) for name in ("seen", "drop_last", "not_reached"))


def test_updates_that_end_within_a_pass_leave_its_last_samples(given, tmp_path):
    """Which are four, or two where the smaller update is among them."""
    found = counts(tuned(tmp_path, given, recipe(max_length=300, updates=5)))
    assert found["passes", "all"] == 2
    order = fit.epoch_order([0] * 10, 4, 42, 1)
    assert found["samples", "not_reached"] in {len(part) for part in order}
    assert found["samples", "seen"] + found["samples", "not_reached"] == 20


def test_a_balance_sees_samples_again_and_other_tasks_are_told(given, tmp_path):
    rows = [row | {"domain": "cxr" if at < 8 else "nuclei"} for at, row in enumerate(given["rows"])]
    talk = {"sample_id": "t", "image_id": "p0", "source": "drawn", "split": "train", "task": "talk", "boxes": {}}
    turns = [{"question": "what is it?", "answer": "a thing."}]
    write_lines(tmp_path / "lines.jsonl", [*rows, talk | {"turns": turns}])
    options = replace(recipe(epochs=1), balance="domain", tasks=["grounding"])
    found = counts(tuned(tmp_path, given | {"lines": str(tmp_path / "lines.jsonl")}, options))
    assert found == {
        ("lines", "all"): 11, ("lines", "learned"): 10, ("lines", "other_task"): 1, ("pass", "all"): 16,
        ("pass", "learned"): 10, ("pass", "again"): 6, ("passes", "all"): 1, ("samples", "all"): 16,
        ("samples", "seen"): 16, ("updates", "all"): 16, ("updates", "grounding"): 16,
    }  # fmt: skip


def test_a_killed_run_counts_what_it_saw_once(given, tmp_path, monkeypatch):
    original = TuningLoop._update

    def update(self, number, *rest):
        noted = original(self, number, *rest)
        if number == 2:  # it is not saved, so it is made and counted again
            raise KeyboardInterrupt
        return noted

    with monkeypatch.context() as patched:
        patched.setattr(TuningLoop, "_update", update)
        with pytest.raises(KeyboardInterrupt):
            tuned(tmp_path, given, recipe(max_length=300, epochs=2))
    assert counts(tuned(tmp_path, given, recipe(max_length=300, epochs=2))) == told(2, seen=20)


# ---- a count that is not conserved ---------------------------------------------------------------------------------


def test_a_sample_that_an_order_loses_stops_the_job(given, tmp_path, monkeypatch):
    original = fit.epoch_order

    def losing(*of):
        first, *rest = original(*of)
        return [first[1:], *rest]

    monkeypatch.setattr(fit, "epoch_order", losing)
    with pytest.raises(AssertionError, match=r"^vlm_tuning: samples: 20 in, 18 accounted for \(seen 18, drop_last 0, "):
        tuned(tmp_path, given, recipe(max_length=300, epochs=2))
    assert not (tmp_path / "run").exists()


def test_a_line_that_leaves_without_a_reason_stops_the_job_before_any_update(given, tmp_path, monkeypatch):
    original = tune.select_samples

    def losing(*of):
        found, lengths, gone = original(*of)
        return found, lengths, gone[1:]

    monkeypatch.setattr(tune, "select_samples", losing)
    monkeypatch.setattr(TuningLoop, "_update", None)
    with pytest.raises(AssertionError, match=r"^vlm_tuning: lines: 12 in, 11 accounted for \(learned 10, other_task 0"):
        tuned(tmp_path, given, recipe(max_length=300))


def test_a_balance_that_loses_a_sample_stops_the_job(given, tmp_path, monkeypatch):
    monkeypatch.setattr(tune, "balance_domains", lambda samples, seed: [0, *range(len(samples) - 1)])
    with pytest.raises(AssertionError, match=r"^vlm_tuning: pass: 10 in, 11 accounted for \(learned 10, again 1\)"):
        tuned(tmp_path, given, replace(recipe(max_length=300), balance="domain"))


# ---- several ranks -------------------------------------------------------------------------------------------------


class Rank:
    """A runner of one of several ranks, which are threads: sums are over all of them, nothing is trained."""

    def __init__(self, rank: int, shared: SimpleNamespace):
        self.rank, self.ranks, self.shared = rank, shared.ranks, shared
        self.model = SimpleNamespace(train=lambda: None)
        self.device = torch.device("cpu")

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        self.shared.values[self.rank] = values
        self.shared.barrier.wait(30)
        total = sum(self.shared.values)
        self.shared.barrier.wait(30)
        return total

    def forward(self, call):
        return call(None)

    def load(self, folder):
        return None

    def backward(self, *of): ...

    def save(self, *of): ...

    def take_step(self, rate):
        return 1.0


class Objective:
    names, units, weights = ("text",), ("tokens",), (1.0,)

    def counts(self, batch):
        return [len(batch.numbers)]

    def sums(self, model, batch):
        return {"text": torch.ones(()), "each": torch.ones(len(batch.numbers))}


def batch_of(numbers: list[int]) -> SimpleNamespace:
    made = SimpleNamespace(numbers=numbers, labels=torch.ones(len(numbers), 2, dtype=torch.long))
    made.to = lambda device: made
    return made


def course_of(ranks: int, spoilt: int | None = None) -> list[list]:
    """Return what each rank counts of eleven samples in two epochs; the rank ``spoilt`` loses a sample a batch."""
    shared = SimpleNamespace(ranks=ranks, values=[None] * ranks, barrier=threading.Barrier(ranks))
    found: list = [None] * ranks

    def work(rank: int) -> None:
        one = TuningLoop(
            Rank(rank, shared), None, 1, 100, lambda: False, lengths=[5] * 11, tasks=["a", "b"] * 5 + ["b"],
            encode=lambda at: at, collate=batch_of, objective=Objective(),
            recipe=Recipe.from_dict(RECIPE | {"batch": 6, "micro_batch": 1}),
        )  # fmt: skip
        if rank == spoilt:
            one._batch = lambda part, samples: (batch_of(part or samples[:1]), [])
        try:
            found[rank] = fit.count_passes(one, one.run())
        except AssertionError as error:
            found[rank] = str(error)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_any_number_of_ranks_counts_every_sample_once(ranks):
    wanted = [
        ("passes", "all", 2), ("samples", "all", 22), ("samples", "seen", 22), ("updates", "all", 22),
        ("updates", "a", 10), ("updates", "b", 12),
    ]  # fmt: skip
    assert course_of(ranks) == [wanted] * ranks


def test_a_rank_that_does_not_see_its_share_stops_all(given):
    found = course_of(2, spoilt=1)
    assert found[0] == found[1]
    assert found[0].startswith("vlm_tuning: samples: 22 in, 12 accounted for (seen 12, drop_last 0, not_reached 0)")


def test_updates_that_tell_other_samples_than_the_ranks_counted_stop_the_job():
    one = TuningLoop(
        Rank(0, SimpleNamespace(ranks=1)), None, 1, 1, lambda: False, lengths=[5] * 4, tasks=["a"] * 4, encode=None,
        collate=None, objective=Objective(), recipe=Recipe.from_dict(RECIPE),
    )  # fmt: skip
    rows = [{"samples": 4}, {"samples": 3}]
    with pytest.raises(AssertionError, match=r"^vlm_tuning: updates: 7 in, 8 accounted for \(a 8\)"):
        fit.count_passes(one, TuningLog(2, 0, rows, {"a": 8}))
