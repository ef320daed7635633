"""The annotator radgraph with the package itself, on random weights as published (`make test-radgraph`)."""

import importlib.util
import os
import pickle
import socket
from copy import deepcopy

import pytest
import torch

import tiny_radgraph
from cxr.base.errors import UserError
from cxr.base.tables import read_lines, write_lines
from cxr.metrics.reports import set_f1
from cxr.radvlm.evaluation import annotate, annotate_radgraph

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("radgraph") is None,
    reason="radgraph is not installed here: `make test-radgraph` installs and runs it",
)
PAIRS = [
    ("The heart is enlarged. No effusion.", "The heart is enlarged, no effusion"),
    ("Lungs are clear.\nSmall opacity, left.", "Small left opacity. Pneumonia cannot be excluded."),
    ("Lungs are clear.", "Lungs are clear."),
    ("", "Lungs are clear."),
    ("a chest tube " * 30, "heart"),
    ("heart", "."),
]
BLANK = " \n "
RAISED = ("radgraph-xl__relation_labels._scorer.1._module.bias", "_relation_scorers.radgraph-xl__relation_labels.bias")
"""Tensors without which random weights find no relation."""


def save(folder):
    """Write a model of random weights, drawn so that labels differ and some entities have relations."""
    from radgraph.allennlp.data import Vocabulary
    from radgraph.allennlp.modules import text_field_embedders, token_embedders
    from radgraph.dygie.models.dygie import DyGIE

    tiny_radgraph.layout(folder)
    bert = str(folder.parent / "bert")
    embedder = token_embedders.PretrainedTransformerMismatchedEmbedder(model_name=bert, max_length=20)
    words = Vocabulary.from_files(str(folder / "vocabulary"), None, None)
    (folder / "vocabulary" / ".lock").unlink()
    net = DyGIE(words, text_field_embedders.BasicTextFieldEmbedder({"bert": embedder}), **deepcopy(tiny_radgraph.SIZES))
    draw = torch.Generator().manual_seed(0)
    state = {name: 0.7 * torch.randn(value.shape, generator=draw) for name, value in net.state_dict().items()}
    for name, value in state.items():
        value += 1.0 if "LayerNorm.weight" in name else 3.0 if name.endswith(RAISED) else 0.0
    torch.save(state, folder / "weights.th")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("placed") / "radgraph-xl")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def settings_of(model) -> dict:
    return {"model": str(model), "encoder": ""}


def annotated(model, folder) -> dict[tuple[str, str], dict]:
    lines = [
        {"sample_id": f"r{at}", "task": "report_generation", "source": "own", "study_id": f"s{at}",
         "turns": [{"question": "Report?", "answer": right}]} for at, (_, right) in enumerate(PAIRS)
    ]  # fmt: skip
    write_lines(folder / "test.jsonl", lines)
    write_lines(
        folder / "answers.jsonl",
        [{"sample_id": f"r{at}", "turn": 0, "text": text} for at, (text, _) in enumerate(PAIRS)],
    )
    annotate.run(
        lines=str(folder / "test.jsonl"), answers=str(folder / "answers.jsonl"), execution={},
        notes_out=str(folder / "notes.jsonl"),
        annotator="radgraph", engine_settings=settings_of(model), engine="radgraph tiny", reference="filtered",
    )  # fmt: skip
    return {(line["sample_id"], line["of"]): line for line in read_lines(folder / "notes.jsonl")}


def triples(line: dict) -> set[tuple]:
    return {tuple(one) for one in line["entities"]}


def test_scores_are_those_of_the_package(model, tmp_path):
    from radgraph import F1RadGraph

    before = sorted(model.rglob("*"))
    found = annotated(model, tmp_path)
    assert sorted(model.rglob("*")) == before  # the package locks its folder: not the user's
    ours = [
        set_f1(triples(found[f"r{at}", "answer"]), triples(found[f"r{at}", "filtered"])) for at in range(len(PAIRS))
    ]
    whole = F1RadGraph(reward_level="all", model_type="radgraph-xl", model_cache_dir=str(model.parent), cuda=-1)
    _, (simple, partial, complete), *_ = whole(hyps=[one for one, _ in PAIRS], refs=[one for _, one in PAIRS])
    (model / "vocabulary" / ".lock").unlink()
    assert ours == pytest.approx(partial, abs=1e-12)
    assert ours[2:4] == [1.0, 0.0]
    assert any(0 < one < 1 for one in partial)
    assert simple != partial  # a relation counts
    assert complete != partial  # what it leads to does not


def test_entities_are_those_of_the_package(model, tmp_path):
    from radgraph import RadGraph

    found = annotated(model, tmp_path)
    whole = RadGraph(model_type="radgraph-xl", model_cache_dir=str(model.parent), cuda=-1)
    for at, (answer, _) in enumerate(PAIRS):
        if answer:
            told = whole([answer])["0"]["entities"].values()
            assert found[f"r{at}", "answer"]["entities"] == [
                [one["tokens"], one["label"], bool(one["relations"])] for one in told
            ]
    assert any(one[2] for line in found.values() for one in line["entities"])
    (model / "vocabulary" / ".lock").unlink()


@pytest.mark.parametrize("text", ["", BLANK, "\\n"])
def test_a_text_without_a_word_has_no_entities(model, text):
    assert annotate_radgraph.load(settings_of(model), {}, {})([(text,), ("heart",)])[0] == {"entities": []}


class Command:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize(
    ("content", "why"),
    [(lambda: {"a": Command()}, "UnpicklingError"), (lambda: {"a": torch.zeros(2)}, "RuntimeError")],
    ids=["a command", "other tensors"],
)
def test_other_weights_are_refused_and_run_nothing(model, tmp_path, monkeypatch, content, why):
    monkeypatch.chdir(tmp_path)
    placed = tmp_path / "radgraph-xl"
    tiny_radgraph.layout(placed)
    torch.save(content(), placed / "weights.th")
    with pytest.raises(UserError, match=rf"radgraph\.model: .* does not hold radgraph-xl \({why}"):
        annotate_radgraph.load(settings_of(placed), {}, {})
    assert not (tmp_path / "ran").exists()


def test_a_bert_without_its_files_is_one_sentence(model, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"radgraph\.model: .* does not hold radgraph-xl"):
        annotate_radgraph.load(settings_of(model) | {"encoder": str(tmp_path)}, {}, {})


def test_a_plain_pickle_is_refused(tmp_path):
    placed = tiny_radgraph.layout(tmp_path / "radgraph-xl")
    (placed / "weights.th").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(UserError, match=r"radgraph\.model: .* does not hold radgraph-xl"):
        annotate_radgraph.load(settings_of(placed), {}, {})
