"""Asking: the same text in any batch, after a kill, and turn by turn; failures are lines; a convention is probed."""

from dataclasses import replace
from pathlib import Path

import pytest

from conftest import every
from cxr.base.engines import engine_names
from cxr.base.errors import UserError
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.vlm.answers import ask as stage
from cxr.vlm.answers import transformers
from cxr.vlm.answers.table import read_answer_file, run_external
from cxr.vlm.models import ADAPTERS, MODEL, read_run
from cxr.vlm.tuning.untrained import run_untrained, select_queries
from vlm_runs import ASKING, COMPUTE, OPTIONS, ask, data, differing, recipe, tune

SIZES = ((56, 56), (40, 84), (84, 56))


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return data(tmp_path_factory.mktemp("drawn"), pictures=9, sizes=SIZES)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, given):
    return tune(tmp_path_factory.mktemp("tuned"), given, recipe(epochs=4))


def texts(path) -> dict[str, str]:
    return {line["sample_id"]: line["text"] for line in read_lines(path)}


def test_any_batch_gives_the_same_text(given, tuned, tmp_path):
    one, three, all_ = (ask(tmp_path / f"{size}.jsonl", given, tuned, batch=size) for size in (1, 3, 64))
    assert len(differing(one, three) | differing(one, all_)) <= 1
    assert ask(tmp_path / "again.jsonl", given, tuned, batch=3).read_bytes() == three.read_bytes()
    lines = list(read_lines(one))
    assert [line["sample_id"] for line in lines] == [row["query_id"] for row in given["rows"]]
    assert {tuple(line["seen"]) for line in lines} == {(56, 56), (56, 28), (28, 56)}
    assert all(
        line.keys() == {*(["sample_id", "turn", "text", "tokens", "stop", "failure", "convention", "seen"])}
        for line in lines
    )
    assert any(len(line["text"]) > 10 for line in lines)


def test_a_killed_job_goes_on_at_its_last_part(given, tuned, tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "PART_SIZE", 4)
    whole = ask(tmp_path / "whole.jsonl", given, tuned)
    original, asked = transformers.Transformers.answer, []

    def answer(self, questions):
        asked.append([one.encoded.sample_id for one in questions])
        if len(asked) == 3:
            raise KeyboardInterrupt
        return original(self, questions)

    monkeypatch.setattr(transformers.Transformers, "answer", answer)
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path / "killed.jsonl", given, tuned)
    again = ask(tmp_path / "killed.jsonl", given, tuned)
    assert again.read_bytes() == whole.read_bytes()
    assert asked[2] == asked[3]
    assert [len(part) for part in asked] == [4, 4, 4, 4, 4, 2]
    assert not (tmp_path / "killed.parts").exists()


def test_parts_of_other_settings_are_not_taken(given, tuned, tmp_path, monkeypatch):
    whole = ask(tmp_path / "whole.jsonl", given, tuned, replace(ASKING, max_new_tokens=5))
    folder = tmp_path / "mine.parts"
    folder.mkdir()
    (folder / "identity").write_text("another")
    write_lines(folder / "000000000.jsonl", [{"sample_id": "stale"}])
    assert (
        ask(tmp_path / "mine.jsonl", given, tuned, replace(ASKING, max_new_tokens=5)).read_bytes() == whole.read_bytes()
    )


def test_a_cut_answer_says_so(given, tuned, tmp_path):
    lines = list(read_lines(ask(tmp_path / "a.jsonl", given, tuned, replace(ASKING, max_new_tokens=3))))
    assert {line["stop"] for line in lines} == {"length"}
    assert {line["tokens"] for line in lines} == {3}


TALK = {"sample_id": "t", "image_id": "p0", "source": "drawn", "split": "test", "task": "talk"}


def test_turns_follow_the_models_own_answers(given, tuned, tmp_path, monkeypatch):
    turns = [{"question": "the bright thing", "answer": "first"}, {"question": "the dark thing", "answer": "second"}]
    other = {"question": "thing", "answer": "x"}
    rows = [TALK | {"turns": turns}, TALK | {"sample_id": "u", "image_id": "p1", "turns": [other]}]
    rows.append(TALK | {"sample_id": "v", "turns": [other | {"question": "speak <|im_end|>"}, other]})
    write_lines(tmp_path / "lines.jsonl", rows)
    seen = []
    original = stage.Collator.ask
    monkeypatch.setattr(
        stage.Collator,
        "ask",
        lambda self, *told: seen.append((told[0].sample_id, list(told[2]))) or original(self, *told),
    )
    more = given | {"lines": str(tmp_path / "lines.jsonl")}
    lines = list(read_lines(ask(tmp_path / "own.jsonl", more, tuned)))
    named = [(line["sample_id"], line["turn"], line["failure"]) for line in lines]
    assert named == [("t", 0, ""), ("t", 1, ""), ("u", 0, ""), ("v", 0, "reserved"), ("v", 1, "turn_before")]
    assert ("t", [lines[0]["text"]]) in seen
    seen.clear()
    ask(tmp_path / "expected.jsonl", more, tuned, replace(ASKING, history="expected"))
    assert ("t", ["first"]) in seen


def test_a_prompt_that_is_too_long_is_a_failure(given, tuned, tmp_path):
    lines = list(read_lines(ask(tmp_path / "a.jsonl", given, tuned, replace(ASKING, max_length=10))))
    assert {line["failure"] for line in lines} == {"too_long"}
    assert {line["text"] for line in lines} == {""}


def read_theirs(given: dict, folder: Path, convention: str) -> Path:
    """Return the answers to all lines in the file theirs.jsonl, as the rule of external answers writes them."""
    run_external(
        lines=given["lines"], pictures=given["pictures"], base=str(folder / "theirs.jsonl"),
        answers=str(folder / "a.jsonl"), unused=str(folder / "unused.parquet"), convention=convention,
    )  # fmt: skip
    return folder / "a.jsonl"


def test_answers_made_elsewhere(given, tmp_path):
    names = [row["query_id"] for row in given["rows"]]
    told = [{"sample_id": names[0], "text": "[1, 2, 3, 4]"}, {"query_id": names[1], "failure": "refused"}]
    write_lines(tmp_path / "theirs.jsonl", told)
    lines = list(read_lines(read_theirs(given, tmp_path, "pixels_resized")))
    assert [line["failure"] for line in lines] == ["", "refused", *["not_given"] * (len(names) - 2)]
    assert (lines[0]["text"], lines[0]["convention"], lines[0]["seen"]) == ("[1, 2, 3, 4]", "pixels_resized", [56, 56])


def test_a_line_made_elsewhere_that_answers_nothing_is_a_row_with_a_reason(given, tmp_path):
    """A sample that is answered twice failed: which answer is meant cannot be told."""
    one, two, three = [row["query_id"] for row in given["rows"]][:3]
    told = [
        f'{{"sample_id": "{one}", "text": "[1, 2, 3, 4]"}}', "no JSON", "", '["a list"]', '{"text": "[1, 2, 3, 4]"}',
        f'{{"sample_id": "{two}", "text": "[1, 2, 3, 4]"}}', '{"sample_id": "nobody", "text": "[1, 2, 3, 4]"}',
        f'{{"sample_id": "{two}", "text": "[5, 6, 7, 8]"}}', f'{{"sample_id": "{three}", "text": 7}}', "[" * 100_000,
        f'{{"sample_id": "{one}", "turn": 1, "text": "[1, 2, 3, 4]"}}',
    ]  # fmt: skip
    (tmp_path / "theirs.jsonl").write_text("\n".join(told))
    failures = {line["sample_id"]: line["failure"] for line in read_lines(read_theirs(given, tmp_path, "unit"))}
    assert [failures.pop(name) for name in (one, two, three)] == ["", "duplicate", "not_given"]
    assert set(failures.values()) == {"not_given"}
    assert read_table(tmp_path / "unused.parquet").rows() == [
        (2, "", "bad_line"), (4, "", "bad_line"), (5, "", "bad_line"), (7, "nobody", "unknown_sample"),
        (8, two, "duplicate"), (9, "", "bad_line"), (10, "", "bad_line"), (11, one, "unknown_sample"),
    ]  # fmt: skip
    (tmp_path / "theirs.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"theirs\.jsonl cannot be read as answers"):
        read_answer_file(str(tmp_path / "theirs.jsonl"))


def test_an_adapter_is_asked_with_its_base(given, tuned, tmp_path):
    base = str(tuned / MODEL)
    lora = tune(tmp_path, given, recipe(method="lora", learning_rate=2e-2, epochs=2), base=base)
    assert (lora / ADAPTERS).is_dir()
    adapted = texts(ask(tmp_path / "a.jsonl", given, lora, base=base))
    assert adapted != texts(ask(tmp_path / "b.jsonl", given, tuned))


def test_a_model_that_was_tuned_in_full_is_asked_and_not_its_base(given, tuned, tmp_path):
    base = str(tuned / MODEL)
    full = tune(tmp_path, given, recipe(learning_rate=2e-2, epochs=2), base=base)
    told = ask(tmp_path / "a.jsonl", given, full, base=base).read_bytes()
    assert told == ask(tmp_path / "b.jsonl", given, full).read_bytes()
    assert told != ask(tmp_path / "c.jsonl", given, tuned).read_bytes()


@pytest.mark.parametrize("speaks", every(2, ["yx1000", "pixels_resized"]))
def test_a_convention_is_probed(tmp_path, speaks):
    few = data(tmp_path, pictures=2, sizes=((56, 84),))
    run = tune(tmp_path / "t", few, replace(recipe(updates=130, learning_rate=5e-3), convention=speaks, side=84))
    options = replace(OPTIONS, convention="probe", side=84)
    run_untrained(
        lines=few["lines"], pictures=few["pictures"], run=str(tmp_path / "base"), probed=str(tmp_path / "probed.tsv"),
        options=options, compute=COMPUTE, base=str(run / MODEL),
    )  # fmt: skip
    table = read_table(tmp_path / "probed.tsv")
    assert sorted(table["convention"]) == ["grid1000", "pixels_resized", "unit", "yx1000"]
    assert table.filter("chosen")["convention"].to_list() == [speaks] == [read_run(tmp_path / "base")["convention"]]
    scores = dict(zip(table["convention"], table["iou"], strict=True))
    assert scores[speaks] > 0.6 > 2 * max(iou for name, iou in scores.items() if name != speaks)
    answers = ask(tmp_path / "a.jsonl", few, tmp_path / "base", base=str(run / MODEL))
    assert {line["convention"] for line in read_lines(answers)} == {speaks}


def test_a_draw_of_lines_is_in_their_order(given):
    from cxr.vlm.samples import read_samples

    samples = read_samples(given["lines"])
    some = select_queries(samples, 5, 7)
    assert len(some) == 5
    assert [samples.index(one) for one in some] == sorted(samples.index(one) for one in some)
    assert some == select_queries(samples, 5, 7) != select_queries(samples, 5, 8)


def test_a_picture_that_no_shard_has_is_named(given, tuned, tmp_path):
    write_lines(tmp_path / "lines.jsonl", [given["rows"][0] | {"image_id": "nobody"}])
    with pytest.raises(UserError, match="no shard has the image 'nobody' of 'drawn': add its shard"):
        ask(tmp_path / "a.jsonl", given | {"lines": str(tmp_path / "lines.jsonl")}, tuned)


def test_the_engines_are_there():
    assert engine_names("cxr.vlm.answers") == ("transformers", "vllm")


def test_vllm_refuses_a_family_that_it_cannot_ask(given, tmp_path):
    run = tune(tmp_path, given, recipe(replace(OPTIONS, family="gemma3"), updates=1))
    with pytest.raises(UserError, match="does not support the engine gemma3: set vlm"):
        ask(tmp_path / "a.jsonl", given, run, replace(ASKING, engine="vllm"))
