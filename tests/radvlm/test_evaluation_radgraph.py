"""RadGraph as an annotator: graphs in its form, what the settings ask for, the score, and texts without a graph."""

import json

import pytest

import tiny_radgraph
from cxr.base.errors import UserError
from cxr.base.tables import write_lines
from cxr.radvlm.evaluation import annotate_radgraph, reports
from cxr.workflow.settings import read

GRAPH = {
    "text": "No evidence of pneumothorax following chest tube removal .",
    "entities": {
        "1": {"tokens": "pneumothorax", "label": "Observation::definitely absent", "start_ix": 3, "end_ix": 3,
              "relations": []},
        "2": {"tokens": "chest", "label": "Anatomy::definitely present", "start_ix": 5, "end_ix": 5, "relations": []},
        "3": {"tokens": "tube", "label": "Observation::definitely present", "start_ix": 6, "end_ix": 6,
              "relations": [["located_at", "2"]]},
    },
}  # fmt: skip
ABSENT = ["pneumothorax", "Observation::definitely absent", False]
CHEST = ["chest", "Anatomy::definitely present", False]
TUBE = ["tube", "Observation::definitely present", True]


def test_a_graph_becomes_its_entities():
    assert annotate_radgraph.to_annotation(GRAPH) == {"entities": [ABSENT, CHEST, TUBE]}
    assert annotate_radgraph.to_annotation({"text": ".", "entities": {}}) == {"entities": []}
    assert annotate_radgraph.to_annotation(None) == {"failure": "the model gave no graph"}


FREE = [*TUBE[:2], False]
PAIRS = {
    "same": ([ABSENT, CHEST, TUBE], [TUBE, CHEST, ABSENT], 1.0),
    "a relation is missing": ([ABSENT, CHEST, FREE], [ABSENT, CHEST, TUBE], 2 / 3),
    "the same twice": ([TUBE, TUBE, CHEST], [TUBE], 2 / 3),
    "with and without": ([TUBE, FREE], [TUBE], 2 / 3),
    "another label": ([["chest", "Observation::uncertain", False]], [CHEST], 0.0),
    "another case": ([["Chest", *CHEST[1:]]], [CHEST], 0.0),
    "nothing said": ([], [CHEST], 0.0),
    "nothing true": ([CHEST], [], 0.0),
    "nothing at all": ([], [], 0.0),
}


def notes(folder, held: dict[str, tuple]) -> dict:
    lines = [
        {"metric": "radgraph_f1", "engine": "radgraph", "sample_id": name, "of": of}
        | (told if isinstance(told, dict) else {"entities": told})
        for name, pair in held.items()
        for of, told in zip(("answer", "filtered"), pair[:2], strict=True)
        if told is not None
    ]
    write_lines(folder / "notes.jsonl", lines)
    return reports.read_notes("notes.jsonl", lines)


def score(held: dict, names: list[str], failed: list, leave_out: bool = False) -> list[float]:
    found = reports.annotation_measures(names, failed, "filtered", held, ["radgraph_f1"], [], leave_out)
    return [float(one.value(one.sums.sum(axis=0))) for one in found]


@pytest.mark.parametrize("name", PAIRS)
def test_scores_by_hand(tmp_path, name):
    assert score(notes(tmp_path, PAIRS), [name], [False]) == pytest.approx([PAIRS[name][2]])


def test_a_text_without_a_graph_counts_as_failed_says(tmp_path):
    none = {"failure": "the model gave no graph"}
    held = notes(tmp_path, {"same": ([CHEST], [CHEST]), "answer": (none, [CHEST]), "right": ([CHEST], none)})
    assert score(held, ["same", "answer", "right"], [False] * 3) == pytest.approx([1 / 3])
    assert score(held, ["same", "answer", "right"], [False] * 3, leave_out=True) == [1.0]
    assert score(held, ["same", "right"], [False, True]) == [0.5]
    assert score(held, ["same", "other"], [False, False]) == []  # without an annotation there is no score


def test_the_package_sees_a_copy_that_names_a_bert_on_this_machine(tmp_path):
    model = tiny_radgraph.layout(tmp_path / "radgraph-xl", bert="someone/bert")
    (model / "weights.th").write_bytes(b"tensors")
    before = sorted(path.relative_to(model) for path in model.rglob("*"))
    bert = str(tmp_path / "bert")
    annotate_radgraph.make_model_folder(model, bert, tmp_path / "seen" / "radgraph-xl")
    assert sorted(path.relative_to(model) for path in model.rglob("*")) == before
    seen = tmp_path / "seen" / "radgraph-xl"
    assert json.loads((seen / "config.json").read_text()) == tiny_radgraph.config(bert)
    assert (seen / "weights.th").read_bytes() == b"tensors"
    for path in (model / "vocabulary").iterdir():
        assert (seen / "vocabulary" / path.name).read_bytes() == path.read_bytes()


def test_another_folder_or_bert_is_one_sentence(tmp_path):
    model = tiny_radgraph.layout(tmp_path / "radgraph-xl", bert="nobody/no-such-bert")
    with pytest.raises(UserError, match=r"radgraph\.encoder: nobody/no-such-bert is not on this machine.*hf download"):
        annotate_radgraph.make_model_folder(model, "", tmp_path / "a")
    for text, why in (("{", "JSONDecodeError"), ('{"model": {}}', "KeyError"), ("[]", "TypeError")):
        (model / "config.json").write_text(text)
        with pytest.raises(UserError, match=rf"radgraph\.model: .*radgraph-xl does not hold radgraph-xl \({why}"):
            annotate_radgraph.make_model_folder(model, "", tmp_path / "b")


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (["rouge_l"], "annotators names 'radgraph', but report_metrics lacks 'radgraph_f1'"),
        (
            ["radgraph_f1"],
            "annotators names 'radgraph', but radgraph.model is '': give the folder into which",
        ),
    ],
)
def test_settings_that_lack_something_are_one_sentence(metrics, why):
    with pytest.raises(Exception, match=why):
        read({"radvlm": {"evaluation": {"annotators": ["radgraph"], "report_metrics": metrics}}})
