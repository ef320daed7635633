"""Rounds of a conversation: what is read and said is kept, and every answer is that of a prompt read anew."""

from dataclasses import replace

import pytest
import torch

from cxr.base.tables import read_lines, write_lines
from cxr.vlm.answers import transformers
from cxr.vlm.answers.transformers import ConversationCache
from cxr.vlm.families import onevision
from vlm_runs import ASKING, OPTIONS, ask, data, differing, recipe, tune

TURNS = (1, 4, 2, 4, 3, 1, 4)
"""Turns of the conversations."""
HOW = replace(ASKING, max_new_tokens=24)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Conversations about pictures of three sizes, whose right answers have from 1 to 7 words."""
    folder = tmp_path_factory.mktemp("talks")
    made = data(folder, pictures=len(TURNS), sizes=((56, 56), (40, 84), (84, 56)))
    lines = []
    for at, count in enumerate(TURNS):
        told = [f"{['it is', 'yes'][turn % 2]} {'very ' * (2 * (turn + at) % 6)}bright." for turn in range(count)]
        turns = [{"question": f"what is part {turn}?", "answer": said} for turn, said in enumerate(told)]
        named = {"sample_id": f"s{at}", "image_id": f"p{at}", "source": "drawn", "split": "train"}
        lines.append(named | {"task": "conversation", "turns": turns, "boxes": {}})
    write_lines(folder / "talks.jsonl", lines)
    return made | {"lines": str(folder / "talks.jsonl")}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, given):
    told = replace(OPTIONS, family="onevision", convention="unit", side=84)
    return tune(tmp_path_factory.mktemp("tuned"), given, recipe(told, updates=30))


def anew(monkeypatch) -> None:
    monkeypatch.setattr(onevision, "REUSES_KV_CACHE", False)


@pytest.mark.parametrize(("history", "sizes"), [("own", (1, 3, 16)), ("expected", (3,))])
def test_kept_rounds_give_the_answers_of_rounds_read_anew_in_any_batch(
    given, tuned, tmp_path, monkeypatch, history, sizes
):
    how = replace(HOW, history=history)
    resumed = [ask(tmp_path / f"{size}.jsonl", given, tuned, how, batch=size) for size in sizes]
    anew(monkeypatch)
    recomputed = ask(tmp_path / "anew.jsonl", given, tuned, how, batch=1)
    for answers in resumed:
        assert len(differing(answers, recomputed)) <= 1
    lines = list(read_lines(recomputed))
    assert len(lines) == sum(TURNS)
    assert {line["failure"] for line in lines} == {""}
    assert len({line["tokens"] for line in lines}) > 2  # rows of a batch end in different steps
    assert len({line["text"] for line in lines}) > 4


def test_a_picture_is_read_once_a_conversation(given, tuned, tmp_path, monkeypatch):
    begun, read = [], []
    first, later = transformers.Transformers._whole_prompts, transformers.Transformers._unread_prompts

    def counted(self, asked):
        begun.extend(one.encoded.sample_id for one in asked)
        return first(self, asked)

    def measured(self, asked):
        kept = self.cache.cache.get_seq_length()
        made = later(self, asked)
        read.append(made["input_ids"].shape[1] - kept)
        return made

    monkeypatch.setattr(transformers.Transformers, "_whole_prompts", counted)
    monkeypatch.setattr(transformers.Transformers, "_unread_prompts", measured)
    ask(tmp_path / "kept.jsonl", given, tuned, HOW, batch=3)
    assert sorted(begun) == [f"s{at}" for at in range(len(TURNS))]
    assert 0 < max(read) < 30  # the question with its frame; a picture alone has more
    begun.clear()
    anew(monkeypatch)
    ask(tmp_path / "anew.jsonl", given, tuned, HOW, batch=3)
    assert len(begun) == sum(TURNS)


def test_a_turn_that_fails_leaves_the_others_as_they_are(given, tuned, tmp_path, monkeypatch):
    rows = list(read_lines(given["lines"]))
    rows[1]["turns"][2]["question"] = "say <|im_end|>"
    write_lines(tmp_path / "lines.jsonl", rows)
    odd = given | {"lines": str(tmp_path / "lines.jsonl")}
    plain = ask(tmp_path / "a.jsonl", given, tuned, HOW)
    resumed = ask(tmp_path / "kept.jsonl", odd, tuned, HOW, batch=16)
    assert {(line["sample_id"], line["turn"], line["failure"]) for line in read_lines(resumed) if line["failure"]} == {
        ("s1", 2, "reserved"), ("s1", 3, "turn_before"),
    }  # fmt: skip
    assert len(differing(resumed, plain) - {"s1"}) <= 1
    anew(monkeypatch)
    assert len(differing(resumed, ask(tmp_path / "anew.jsonl", odd, tuned, HOW, batch=1))) <= 1


def test_a_model_of_few_bits_keeps_its_rounds_too(given, tuned, tmp_path):
    lines = list(read_lines(ask(tmp_path / "a.jsonl", given, tuned, replace(HOW, dtype="bfloat16"), batch=3)))
    assert [line["failure"] for line in lines] == [""] * sum(TURNS)


class Cache:
    """A cache of so many places."""

    def __init__(self, length: int):
        self.length, self.chosen = length, None

    def get_seq_length(self) -> int:
        return self.length

    def batch_select_indices(self, rows: torch.Tensor) -> None:
        self.chosen = rows.tolist()


def test_what_is_left_to_read_is_what_differs():
    """Token 0 pads, 9 ends. Row b is padded before and ended a step early, row c was told otherwise than it said."""
    rounds = ConversationCache(["a", "b", "c"], Cache(6), [[1, 2, 3], [None, 1, 2], [1, 2, 4]])
    rounds.append_answers([[5, 6, 7, 9], [8, 9, 0, 0], [5, 5, 5, 5]], 9)
    assert rounds.places == [[1, 2, 3, 5, 6, 7], [None, 1, 2, 8, 9, None], [1, 2, 4, 5, 5, 5]]
    assert rounds.contains(["c", "b"])
    assert not rounds.contains(["b", "d"])
    prompts = {"b": [1, 2, 8, 9, 3], "c": [1, 2, 4, 6, 9, 3], "a": [1, 2, 3, 5, 6, 7]}
    going = rounds.resume(["c", "b"], [prompts["c"], prompts["b"]], 0)
    assert rounds.cache.chosen == [2, 1]
    assert going["input_ids"].tolist() == [[1, 2, 4, 0, 0, 0, 6, 9, 3], [0, 1, 2, 8, 9, 0, 0, 0, 3]]
    assert going["attention_mask"].tolist() == [[1, 1, 1, 0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 0, 0, 0, 1]]
    alone = ConversationCache(["a"], Cache(6), [[1, 2, 3, 5, 6, 7]]).resume(["a"], [prompts["a"]], 0)
    assert alone["input_ids"].tolist() == [[1, 2, 3, 5, 6, 0, 7]]  # its last token is read in any case
    assert alone["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 1]]
