"""Some samples of a set: the same in any order, fewer among more, and the same ones about exchanged pictures."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxr.base.errors import UserError
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.vlm.answers import selection
from cxr.vlm.answers.selection import select_samples
from cxr.vlm.settings import Vlm
from cxr.workflow.plan_radvlm import EvaluationPlan
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import parse_section, read

TURNS = [{"question": "What is there?", "answer": "Nothing."}]


def line(name: str, task: str = "talk", image: str = "i", source: str = "own") -> dict:
    return {"sample_id": name, "task": task, "source": source, "image_id": image, "turns": TURNS}


def query(name: str) -> dict:
    return {"query_id": name, "source": "s", "image_id": "i", "query": "the bright thing", "boxes": [[0, 0, 9, 9]]}


def first_by_hash(names: list[str], most: int) -> set[str]:
    """The draw in other words."""
    return set(
        sorted(names, key=lambda name: hashlib.blake2b(f"asked\x1f{name}".encode(), digest_size=8).hexdigest())[:most]
    )


SETS = st.lists(
    st.tuples(st.text("abcé_0", min_size=1, max_size=8), st.sampled_from(["talk", "report", "boxes"])),
    max_size=40, unique_by=lambda one: one[0],
)  # fmt: skip


@given(SETS, st.integers(1, 12), st.integers(1, 12), st.randoms(use_true_random=False))
def test_a_draw_is_of_each_task_in_any_order_and_fewer_are_among_more(named, few, many, mixed):
    lines, (few, many) = [line(*one) for one in named], sorted((few, many))
    of = {task: [name for name, own in named if own == task] for _, task in named}
    wanted = set().union(*(first_by_hash(names, many) for names in of.values()))
    assert select_samples(lines, many) == wanted
    mixed.shuffle(lines)
    assert select_samples(lines, many) == wanted
    assert select_samples(lines, few) <= wanted
    assert len(select_samples(lines, few)) == sum(min(few, len(names)) for names in of.values())


def test_queries_are_one_task():
    names = [f"q{number}" for number in range(9)]
    assert select_samples(map(query, names), 4) == first_by_hash(names, 4)


def drawn_file(folder: Path, lines: list[dict], most: int, among: list[dict] | None = None) -> tuple[list, list]:
    """Return the lines that are asked, and the rows of the counts."""
    folder.mkdir()
    write_lines(folder / "lines.jsonl", lines)
    write_lines(folder / "among.jsonl", among or [])
    selection.run(
        lines=str(folder / "lines.jsonl"), among=[str(folder / "among.jsonl")] if among else [],
        selection=str(folder / "asked.jsonl"), counts=str(folder / "asked.tsv"), most=most,
    )  # fmt: skip
    return list(read_lines(folder / "asked.jsonl")), read_table(folder / "asked.tsv").rows()


def test_the_lines_are_as_they_were_in_their_order_and_counted(tmp_path):
    """Sources of a task are drawn together."""
    lines = [line(f"n{number}", ("talk", "report")[number % 3 == 0], source=f"s{number % 2}") for number in range(20)]
    asked, counts = drawn_file(tmp_path / "some", lines, 5)
    assert asked == [one for one in lines if one["sample_id"] in select_samples(lines, 5)]
    found = {(task, source): (samples, some) for task, source, samples, some in counts}
    assert found.keys() == {("report", "s0"), ("report", "s1"), ("talk", "s0"), ("talk", "s1")}
    for (task, source), (samples, some) in found.items():
        own = [one for one in lines if (one["task"], one["source"]) == (task, source)]
        assert (samples, some) == (len(own), sum(one in asked for one in own))
    assert [sum(some for (name, _), (_, some) in found.items() if name == task) for task in ("report", "talk")] == [
        5,
        5,
    ]
    assert drawn_file(tmp_path / "all", lines, 14)[0] == lines
    assert drawn_file(tmp_path / "none", [], 5) == ([], [])


def test_exchanged_pictures_are_asked_of_the_samples_that_are_asked(tmp_path):
    """Samples without another picture take no place of others, and none is asked that has no answer to its own."""
    lines = [line(f"n{number}", image=f"i{number}") for number in range(30)]
    others = [one | {"image_id": "other"} for number, one in enumerate(lines) if number % 3]
    own = select_samples(lines, 10)
    asked, counts = drawn_file(tmp_path / "others", others, 10, among=lines)
    assert {one["sample_id"] for one in asked} == own & {one["sample_id"] for one in others} != own
    assert {one["image_id"] for one in asked} == {"other"}
    assert counts == [("talk", "own", 20, len(asked))]


def test_a_line_that_is_no_sample_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="a sample line has a missing or wrong field '"):
        drawn_file(tmp_path / "bad", [{"sample_id": "a", "turns": TURNS}], 3)


def test_everything_that_reads_a_set_reads_the_lines_that_are_asked():
    """By default these are the set's own file, and nothing is drawn."""
    folder = "results/radvlm/instructions/all"
    plain = VlmPlan(Vlm(), "cpu", 0, ["all"])
    assert (plain.drawn_sets, plain.draw_files("radvlm_test", "tsv")) == ([], [])
    assert plain.sets == plain.all_lines
    assert plain.sets["radvlm_test"] == f"{folder}/test.jsonl"
    assert plain.sets["medground_test"] == "results/medground/dataset/test.jsonl"
    some = VlmPlan(parse_section(Vlm, {"answers": {"most": 7}}), "cpu", 0, ["all"])
    assert some.all_lines == plain.sets
    assert some.sets == {name: f"results/vlm/sets/{name}.jsonl" for name in plain.sets}
    assert some.shared_draw_lines("radvlm_exchanged") == [f"{folder}/test.jsonl"]
    assert some.shared_draw_lines("radvlm_test") == some.shared_draw_lines("medground_test") == []
    assert some.draw_files("medground_test", "jsonl") == ["results/vlm/sets/medground_test.jsonl"]
    plan = EvaluationPlan(read({"vlm": {"answers": {"most": 7}}}), some)
    assert plan.lines == "results/vlm/sets/radvlm_test.jsonl"
    assert (plan.all_lines, plan.train_lines) == (f"{folder}/test.jsonl", f"{folder}/train.jsonl")
    assert plan.draw == ["results/vlm/sets/radvlm_test.tsv"]
    assert plan.exchanged_files("radvlm") == {
        "exchanged_lines": ["results/vlm/sets/radvlm_exchanged.jsonl"],
        "exchanged_answers": ["results/vlm/radvlm/answers/radvlm_exchanged.jsonl"],
        "exchanged_draw": ["results/vlm/sets/radvlm_exchanged.tsv"],
    }


def test_a_set_alone_is_drawn_by_itself():
    sets = {"radvlm_exchanged": "radvlm:all/exchanged"}
    plan = VlmPlan(parse_section(Vlm, {"answers": {"most": 7, "sets": sets}}), "cpu", 0, ["all"])
    assert plan.shared_draw_lines("radvlm_exchanged") == []
