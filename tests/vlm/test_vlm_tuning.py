"""Tuning: what is learned, what stays as it was, and the same bytes after a kill."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from cxr.base.errors import UserError
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.geometry.unions import union_iou
from cxr.nets.fitting import loop
from cxr.vlm.answers.ask import load_collator
from cxr.vlm.families.engine import PARTS, part_of
from cxr.vlm.models import MODEL, load_model, load_run
from cxr.vlm.reading import read_answer
from cxr.vlm.samples import ImageStore, Sample, read_samples
from cxr.vlm.tuning import fit
from cxr.vlm.tuning.fit import epoch_order
from cxr.vlm.tuning.settings import Recipe
from cxr.vlm.tuning.tune import balance_domains, make_optimizer
from vlm_runs import OPTIONS, RECIPE, SIDE, ask, contents, data, recipe, tune


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return data(tmp_path_factory.mktemp("drawn"))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, given):
    folder = tmp_path_factory.mktemp("tuned")
    return tune(folder, given, recipe(epochs=3))


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A model that has learned two pictures by heart."""
    folder = tmp_path_factory.mktemp("learned")
    few = data(folder, pictures=2)
    return few, tune(folder, few, recipe(updates=130, learning_rate=5e-3), checkpoint_every=1000)


def losses(run) -> np.ndarray:
    return read_table(run.parent / "updates.tsv")["loss"].to_numpy()


def test_an_order_has_every_sample_once():
    lengths = [int(length) for length in np.random.default_rng(1).integers(10, 90, 203)]
    order = epoch_order(lengths, 8, 42, 0)
    assert sorted(at for update in order for at in update) == list(range(203))
    assert [*sorted(map(len, order))[:1], len(order)] == [3, 26]
    assert order == epoch_order(lengths, 8, 42, 0)
    assert order != epoch_order(lengths, 8, 42, 1)
    assert order != epoch_order(lengths, 8, 43, 0)
    spread = np.mean([np.ptp([lengths[at] for at in update]) for update in order])
    assert spread < 0.3 * np.ptp(lengths)


def test_an_epochs_smaller_update_is_made_or_left_out(tmp_path):
    lengths = [10] * 203
    whole = epoch_order(lengths, 8, 42, 0)
    assert epoch_order(lengths, 8, 42, 0, drop_last=True) == [part for part in whole if len(part) == 8]
    assert [len(part) for part in epoch_order([10] * 5, 8, 42, 0, drop_last=True)] == [5]
    given = data(tmp_path / "of ten", pictures=5)
    for drop, sizes in ((False, [2, 4, 4]), (True, [4, 4])):
        tune(tmp_path / str(drop), given, recipe(epochs=1, drop_last=drop))
        updates = read_table(tmp_path / str(drop) / "updates.tsv")
        assert (sorted(updates["samples"]), updates["epoch"][-1]) == (sizes, 1.0)


def test_updates_tell_each_task_its_samples_and_its_loss(tmp_path):
    """One update of all samples, beside the losses of the untuned model by hand; any micro-batch tells the same."""
    given = data(tmp_path, pictures=3)
    talk = {"question": "what is it?", "answer": "a thing. it is bright."}
    told = {"sample_id": "t", "image_id": "p0", "source": "drawn", "split": "train", "task": "talk", "boxes": {}}
    write_lines(tmp_path / "lines.jsonl", [*given["rows"], told | {"turns": [talk, talk]}])
    rows = []
    for size in (7, 1):
        run = tune(tmp_path / str(size), given, recipe(batch=7, micro_batch=size, epochs=1, learning_rate=1e-12))
        rows += read_table(tmp_path / str(size) / "updates.tsv").to_dicts()
    loaded, collator, losses = load_run(run, "", torch.float32), load_collator(run, ""), {}
    with ImageStore(given["pictures"], SIDE) as store, torch.no_grad():
        for sample in read_samples(given["lines"]):
            batch = collator.batch([collator.encode(sample, store.get(sample))])
            loss = fit.TextLoss().sums(loaded.model, batch)["text"]
            losses.setdefault(sample.task, []).append((float(loss), fit.count_learned(batch.labels)))
    for row in rows:
        parts = [part.split() for part in row["by_task"].split("; ")]
        assert [(name, int(number)) for name, number, _ in parts] == [("grounding", 6), ("talk", 1)]
        for name, _, loss in parts:
            total, tokens = np.sum(losses[name], axis=0)
            assert float(loss) == pytest.approx(total / tokens, abs=2e-4)


def test_the_rate_rises_and_falls_as_a_cosine():
    plan = Recipe.from_dict(RECIPE | {"warmup_ratio": 0.1})
    rates = [plan.rate(update, 100) for update in range(100)]
    np.testing.assert_allclose(rates[:10], np.arange(1, 11) / 10)
    np.testing.assert_allclose(rates[10:], [0.5 + 0.5 * math.cos(math.pi * done / 90) for done in range(90)])


def test_loss_falls_and_the_model_reaches_the_boxes(learned, tmp_path):
    few, run = learned
    assert losses(run)[-1] < 0.1 < 2 < losses(run)[0]
    answers = {line["sample_id"]: line for line in read_lines(ask(tmp_path / "a.jsonl", few, run))}
    rows = {row["query_id"]: np.array(row["boxes"]) for row in few["rows"]}
    ious = {
        name: union_iou(read_answer(line["text"], line["convention"], line["seen"])[1], rows[name])
        for name, line in answers.items()
    }
    assert min(ious.values()) > 0.8, ious
    other = {name: name.replace("bright", "?").replace("dark", "bright").replace("?", "dark") for name in rows}
    swapped = [
        union_iou(read_answer(line["text"], line["convention"], line["seen"])[1], rows[other[name]])
        for name, line in answers.items()
    ]
    assert max(swapped) == 0  # it is the query that tells which


def test_two_runs_give_the_same_bytes(tuned, given, tmp_path):
    again = tune(tmp_path, given, recipe(epochs=3))
    assert contents(again) == contents(tuned)
    assert (tmp_path / "updates.tsv").read_bytes() == (tuned.parent / "updates.tsv").read_bytes()


@pytest.mark.parametrize("killed", [1, 4, 8])
def test_killed_and_resumed_it_gives_the_same_bytes(tuned, given, tmp_path, monkeypatch, killed):
    original, seen = fit.TuningLoop._update, []

    def update(self, number, *rest):
        if number == killed and killed not in seen:
            seen.append(number)
            raise KeyboardInterrupt
        seen.append(number)
        return original(self, number, *rest)

    monkeypatch.setattr(fit.TuningLoop, "_update", update)
    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path, given, recipe(epochs=3))
    assert not (tmp_path / "run").exists()
    run = tune(tmp_path, given, recipe(epochs=3))
    assert seen[killed + 1] == killed - killed % 2  # it went on at the last checkpoint, of every second update
    assert contents(run) == contents(tuned)
    assert (tmp_path / "updates.tsv").read_bytes() == (tuned.parent / "updates.tsv").read_bytes()
    assert not (tmp_path / "checkpoint").exists()


def test_a_checkpoint_of_other_settings_is_never_resumed(given, tmp_path, monkeypatch, caplog):
    original = fit.TuningLoop._update

    def update(self, number, *rest):
        if number == 3:
            raise KeyboardInterrupt
        return original(self, number, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(fit.TuningLoop, "_update", update)
        with pytest.raises(KeyboardInterrupt):
            tune(tmp_path, given)
    tune(tmp_path, given, recipe(learning_rate=1e-3))
    assert "holds a checkpoint made with other settings, inputs or code: the training restarts" in caplog.text


def test_micro_batches_do_not_change_the_loss(given, tmp_path):
    whole, parts = (tune(tmp_path / str(size), given, recipe(micro_batch=size)) for size in (4, 1))
    np.testing.assert_allclose(losses(parts), losses(whole), rtol=1e-4)
    np.testing.assert_allclose(losses(parts)[:2], losses(whole)[:2], rtol=1e-5)


def test_a_batch_that_does_not_divide_is_refused(given, tmp_path):
    with pytest.raises(UserError, match="batch is 4, which is not a multiple of micro_batch"):
        Recipe.from_dict(RECIPE | {"micro_batch": 3}).micro_batches_per_step(1)


def test_adapters_leave_the_base_as_it_is(learned, given, tmp_path):
    _, base = learned
    before = contents(base)
    run = tune(tmp_path, given, recipe(method="lora", learning_rate=1e-2, epochs=4), base=str(base / MODEL))
    assert contents(base) == before
    assert {path.name for path in (run / "adapter").iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    assert losses(run)[-1] < losses(run)[0]
    again = tune(tmp_path / "again", given, recipe(method="lora", learning_rate=1e-2, epochs=4), base=str(base / MODEL))
    assert contents(again) == contents(run)
    adapted, plain = load_run(run), load_model("qwen25vl", base / MODEL)
    values = dict(adapted.model.named_parameters())
    kept = {name.replace("base_model.model.", "").replace(".base_layer", ""): value for name, value in values.items()}
    assert all(torch.equal(kept[name], value) for name, value in plain.model.named_parameters())
    assert {part_of(adapted.family, name) for name in values if "lora_" in name} == {"language"}
    ids = torch.arange(4, 12)[None]
    mask = torch.ones_like(ids)
    with torch.no_grad():
        one = adapted.model(input_ids=ids, attention_mask=mask).logits
        merged = adapted.model.merge_and_unload()(input_ids=ids, attention_mask=mask).logits
        none = plain.model(input_ids=ids, attention_mask=mask).logits
    torch.testing.assert_close(one, merged, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(one, none, atol=1e-3)


def changed(run, base) -> set[str]:
    before, after = (dict(load_model("qwen25vl", folder / MODEL).model.named_parameters()) for folder in (base, run))
    family = load_model("qwen25vl", base / MODEL).family
    return {part_of(family, name) for name, value in after.items() if not torch.equal(value, before[name])}


@pytest.mark.parametrize("parts", [["projector"], ["vision", "language"], list(PARTS)])
def test_only_the_named_parts_change(tuned, given, tmp_path, parts):
    run = tune(tmp_path, given, recipe(parts=parts, epochs=1), base=str(tuned / MODEL))
    assert changed(run, tuned) == set(parts)


def test_a_parts_step_is_adamws(tuned):
    loaded = load_model("qwen25vl", tuned / MODEL)
    plan = Recipe.from_dict(RECIPE | {"rates": {"vision": 1e-4}, "learning_rate": 1e-2})
    named = dict(loaded.model.named_parameters())
    made = make_optimizer(named, loaded.family, plan)
    torch.manual_seed(0)
    before = {name: value.detach().double().clone() for name, value in named.items()}
    for value in named.values():
        value.grad = torch.randn_like(value)
    for group in made.param_groups:  # as the runners do
        group["lr"] = 1e-2 * group["scale"]
    made.step()
    for name, value in named.items():
        rate = 1e-4 if part_of(loaded.family, name) == "vision" else 1e-2
        slope = value.grad.double()
        # the first step: both moments are corrected to the gradient and its square
        wanted = before[name] - rate * slope / (slope.abs() + 1e-8)
        torch.testing.assert_close(value.double(), wanted, atol=1e-6, rtol=1e-5)


def test_what_is_not_learned_is_listed(given, tmp_path):
    rows = [*given["rows"], given["rows"][0] | {"query_id": "long", "query": "the bright thing " * 200}]
    rows.append(given["rows"][0] | {"query_id": "speaks", "query": "the thing<|im_end|> ignore this"})
    write_lines(tmp_path / "lines.jsonl", rows)
    run = tune(tmp_path, given | {"lines": str(tmp_path / "lines.jsonl")}, recipe(max_length=300, epochs=1))
    gone = read_table(run.parent / "left_out.parquet")
    assert gone["sample_id"].to_list() == ["long", "speaks"]
    assert gone["reason"].to_list() == ["too_long", "reserved"]
    assert gone["tokens"][0] > 300
    assert read_table(run.parent / "updates.tsv")["samples"].sum() == len(rows) - 2


def test_updates_without_a_number_are_skipped_and_limited(given, tmp_path, monkeypatch):
    original, spoilt = fit.text_loss, []

    def times(logits, labels, factor):
        return {name: value * factor for name, value in original(logits, labels).items()}

    def some(logits, labels):
        spoilt.append(len(spoilt))
        return times(logits, labels, math.nan if len(spoilt) in (2, 4) else 1.0)

    monkeypatch.setattr(fit, "text_loss", some)
    monkeypatch.setattr(loop, "NAN_LIMIT", 3)
    table = read_table(tune(tmp_path / "two", given).parent / "updates.tsv")
    assert [at for at, skipped in enumerate(table["skipped"]) if skipped] == [1, 3]
    assert np.isfinite(table["loss"].to_numpy()[-1])
    monkeypatch.setattr(fit, "text_loss", lambda logits, labels: times(logits, labels, math.nan))
    with pytest.raises(UserError, match="3 steps had a loss or gradient that is not a number: lower learning_rate"):
        tune(tmp_path / "all", given)


def test_told_to_stop_it_saves_and_goes_on(tuned, given, tmp_path, monkeypatch):
    original = fit.TuningLoop._update

    def stopping(self, number, *rest):
        noted, stop = original(self, number, *rest)
        return noted, stop or number == 4

    with monkeypatch.context() as patched:
        patched.setattr(fit.TuningLoop, "_update", stopping)
        with pytest.raises(UserError, match="step 5 of 9 is saved, rerun to resume there"):
            tune(tmp_path, given, recipe(epochs=3))
    assert contents(tune(tmp_path, given, recipe(epochs=3))) == contents(tuned)


@pytest.mark.parametrize("family", ["qwen3vl", "gemma3", "onevision"])
def test_other_families_learn_by_the_same_path(given, tmp_path, family):
    options = recipe(replace(OPTIONS, family=family), epochs=6, learning_rate=3e-3)
    run = tune(tmp_path, given, options)
    assert losses(run)[-1] < 0.6 * losses(run)[0]
    assert len(list(read_lines(ask(tmp_path / "a.jsonl", given, run)))) == len(given["rows"])


def test_a_balance_by_domain_has_every_sample_and_as_many_of_each(given, tmp_path):
    made = [Sample(f"s{at}", "a", "s", "train", "t", (), {}, domain="cxr" if at < 7 else "nuclei") for at in range(10)]
    found = balance_domains(made, 42)
    assert found[:10] == list(range(10))
    counts = Counter(found)
    assert sum(counts[at] for at in range(7, 10)) == 7
    assert {counts[at] for at in range(7)} == {1}
    assert {counts[at] for at in range(7, 10)} == {2, 3}
    assert found == balance_domains(made, 42)
    assert len({tuple(balance_domains(made, seed)) for seed in range(9)}) > 1
    rows = [row | {"domain": "cxr" if at < 9 else "nuclei"} for at, row in enumerate(given["rows"])]
    write_lines(tmp_path / "lines.jsonl", rows)
    options = replace(recipe(epochs=1), balance="domain")
    run = tune(tmp_path, given | {"lines": str(tmp_path / "lines.jsonl")}, options)
    assert read_table(run.parent / "updates.tsv")["samples"].sum() == 18


def test_a_run_of_some_tasks_is_one_on_their_lines_alone(given, tmp_path):
    """Its model, its updates and what it leaves out are, byte for byte, of a file that has no other lines."""
    tasks = ["classification", "conversation", "report_generation"]
    lines = [
        {"sample_id": f"s{at}", "image_id": row["image_id"], "source": "drawn", "split": "train",
         "task": tasks[at % 3], "turns": [{"question": f"What is it {at}?", "answer": f"A {row['query']}."}]}
        for at, row in enumerate(given["rows"])
    ]  # fmt: skip
    long = lines[0] | {"sample_id": "long", "turns": [{"question": "What? " * 400, "answer": "A thing."}]}
    write_lines(tmp_path / "all.jsonl", [*lines, long, long | {"sample_id": "other", "task": "conversation"}])
    write_lines(tmp_path / "own.jsonl", [line for line in [*lines, long] if line["task"] != "conversation"])
    options = recipe(max_length=300, updates=2)
    chosen = replace(options, tasks=["report_generation", "classification"])
    some = tune(tmp_path / "some", given | {"lines": str(tmp_path / "all.jsonl")}, chosen)
    alone = tune(tmp_path / "alone", given | {"lines": str(tmp_path / "own.jsonl")}, options)
    assert contents(some) == contents(alone)
    for name in ("updates.tsv", "left_out.parquet"):
        assert (some.parent / name).read_bytes() == (alone.parent / name).read_bytes()
    assert read_table(some.parent / "left_out.parquet")["sample_id"].to_list() == ["long"]
    assert len(read_table(some.parent / "updates.tsv")) == 2


def test_a_choice_of_tasks_without_a_line_ends_before_any_training(given, tmp_path):
    told = (
        r"tasks in vlm\.tuning\.runs are conversation, but those of .*lines\.jsonl are grounding: name one of these, or"
    )
    with pytest.raises(UserError, match=told):
        tune(tmp_path, given, replace(OPTIONS, tasks=["conversation"]))
    assert not (tmp_path / "run").exists()
