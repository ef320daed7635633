"""Annotators on random weights in the published layouts: their lines, and the scores that the formulas make of them."""

import numpy as np
import pytest
import torch
from transformers import AutoModel

import tiny_chexbert
import tiny_distilbert
from conversions import converter
from cxr.base.errors import UserError
from cxr.base.tables import read_lines, write_lines
from cxr.radvlm import chexbert
from cxr.radvlm.evaluation import annotate, annotate_bertscore, reports
from cxr.workflow.settings import read

PAIRS = [
    ("The heart is enlarged.", "No effusion. The heart is enlarged."),
    ("Lungs are clear.", "Small left opacity, pneumonia cannot be excluded."),
    ("the left chest tube", "the left chest tube"), ("", "No effusion."),
    ("right " * 40, "Right chest tubes."),
]  # fmt: skip
BASELINE = 0.25


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_distilbert.save(tmp_path_factory.mktemp("distilbert"))


def tokens(text: str) -> list[int]:
    places = {word: place for place, word in enumerate(tiny_chexbert.WORDS)}
    found = []
    for word in text.lower().replace(".", " . ").replace(",", " , ").split():
        if word not in places and word[:-1] in places:
            found += [places[word[:-1]], places["##s"]]
        else:
            found.append(places.get(word, places["[UNK]"]))
    return [2, *found[:22], 3]


def by_loops(net, answer: str, right: str, layer: int) -> float:
    """BERTScore's F1, a pair of tokens after the other."""
    sides = []
    for text in (answer, right):
        ids = tokens(text)
        states = net(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0].detach().numpy()
        sides.append([(one, vector.astype(np.float64)) for one, vector in zip(ids, states, strict=True)])

    def best(own, other) -> list[float]:
        return [
            max(vector @ each / (np.linalg.norm(vector) * np.linalg.norm(each)) for _, each in other)
            for one, vector in own
            if one not in (2, 3)
        ]

    precision, recall = best(*sides), best(*sides[::-1])
    if not precision or not recall:
        return -BASELINE / (1 - BASELINE)
    p, r = np.mean(precision), np.mean(recall)
    return (2 * p * r / (p + r) - BASELINE) / (1 - BASELINE)


@pytest.mark.parametrize("layer", [1, 5])
def test_bertscore_is_that_of_loops_over_tokens(bert, layer, monkeypatch):
    monkeypatch.setattr(annotate_bertscore, "LAYER", layer)
    monkeypatch.setattr(annotate_bertscore, "BASELINE", BASELINE)
    settings = {"model": str(bert), "revision": ""}
    scores = [note["f1"] for note in annotate_bertscore.load(settings, {}, {})(PAIRS)]
    net = AutoModel.from_pretrained(bert).eval()
    np.testing.assert_allclose(scores, [by_loops(net, *pair, layer) for pair in PAIRS], atol=1e-5)
    assert scores[2] == pytest.approx(1.0, abs=1e-6)
    assert len({round(score, 3) for score in scores}) == len(PAIRS)


def test_another_model_or_layer_is_one_sentence(bert, tmp_path, monkeypatch):
    settings = {"model": str(tmp_path), "revision": ""}
    with pytest.raises(UserError, match=r"radvlm.evaluation.bertscore.model: .* holds no model"):
        annotate_bertscore.load(settings, {}, {})
    monkeypatch.setattr(annotate_bertscore, "LAYER", 7)
    with pytest.raises(UserError, match=r"radvlm.evaluation.bertscore.model: .* has 6 layers, but layer 7 is compared"):
        annotate_bertscore.load(settings | {"model": str(bert)}, {}, {})


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Lines of reports and of another task, answers of which one failed, and the reports' own sections."""
    folder = tmp_path_factory.mktemp("asked")
    lines = [
        {"sample_id": f"r{at}", "task": "report_generation", "source": "own", "study_id": f"s{at}",
         "turns": [{"question": "Report?", "answer": right}]} for at, (_, right) in enumerate(PAIRS)
    ]  # fmt: skip
    other = lines[0] | {"sample_id": "x", "task": "classification"}
    write_lines(folder / "test.jsonl", [*lines, other])
    answers = [{"sample_id": f"r{at}", "turn": 0, "text": text} for at, (text, _) in enumerate(PAIRS)]
    answers[1] = {"sample_id": "r1", "turn": 0, "failure": "too_long"}
    write_lines(folder / "answers.jsonl", [*answers, {"sample_id": "x", "turn": 0, "text": "Edema."}])
    texts = [{"source": "own", "study_id": f"s{at}", "text": f"Again. {right}"} for at, (_, right) in enumerate(PAIRS)]
    write_lines(folder / "texts.jsonl", texts)
    return folder


def annotated(asked, out, name: str, settings: dict, reference: str, weights: str = "") -> list[dict]:
    annotate.run(
        lines=str(asked / "test.jsonl"), answers=str(asked / "answers.jsonl"), notes_out=str(out), weights=weights,
        texts=[str(asked / "texts.jsonl")], annotator=name, engine_settings=settings, engine=f"{name} tiny",
        reference=reference, execution={},
    )  # fmt: skip
    return list(read_lines(out))


def scored(path, metric: str, reference: str) -> dict[str, float]:
    names = [f"r{at}" for at in range(len(PAIRS))]
    notes = reports.read_notes(str(path), read_lines(path))
    failed = [name == "r1" for name in names]
    found = reports.annotation_measures(names, failed, reference, notes, [metric], chexbert.HEADS)
    return {one.name: float(one.value(one.sums.sum(axis=0))) for one in found}


def test_bertscore_lines_become_the_score(asked, bert, tmp_path, monkeypatch):
    monkeypatch.setattr(annotate_bertscore, "BASELINE", BASELINE)
    settings = {"model": str(bert), "revision": ""}
    lines = annotated(asked, tmp_path / "notes.jsonl", "bertscore", settings, "both")
    of = {(line["sample_id"], line["of"]) for line in lines}
    assert of == {(f"r{at}", of) for at in (0, 2, 3, 4) for of in ("filtered", "original")}
    net = AutoModel.from_pretrained(bert).eval()
    values = [0.0 if at == 1 else by_loops(net, *pair, 5) for at, pair in enumerate(PAIRS)]
    assert scored(tmp_path / "notes.jsonl", "bertscore", "filtered")["bertscore"] == pytest.approx(np.mean(values))


def test_chexbert_lines_become_the_score(asked, tmp_path):
    weights = tmp_path / "chexbert.safetensors"
    converter("chexbert")(tiny_chexbert.save(tmp_path / "chexbert.pth", tiny_chexbert.state()), weights)
    folder = str(tiny_chexbert.words(tmp_path / "bert"))
    settings = {"model": folder, "revision": ""}
    lines = annotated(asked, tmp_path / "notes.jsonl", "chexbert", settings, "filtered", str(weights))
    assert len(lines) == 2 * len(PAIRS) - 1
    read_labels = chexbert.load_labeller(weights, folder, "")
    counted = ("present", "uncertain")
    hits = misses = 0
    for at, pair in enumerate(PAIRS):
        mine, right = ({name for name, value in one.items() if value in counted} for one in read_labels(pair))
        mine = set() if at == 1 else mine
        hits += 2 * len(mine & right)
        misses += len(mine ^ right)
    found = scored(tmp_path / "notes.jsonl", "chexbert_f1", "filtered")
    assert found["chexbert_f1_micro"] == pytest.approx(hits / (hits + misses))
    assert found.keys() == {f"chexbert_f1_{mean}{five}" for mean in ("macro", "micro") for five in ("", "_5")}


def test_an_annotator_whose_metric_is_not_scored_is_one_sentence():
    with pytest.raises(Exception, match=r"annotators names 'chexbert', but report_metrics lacks 'chexbert_f1'"):
        read({"radvlm": {"evaluation": {"annotators": ["chexbert"]}}})
