"""Statements of a text: sentences without ties to others read as they do alone, the rest as the whole text reads."""

import json
import os
from pathlib import Path
from random import Random

import pytest

from cxr.language.reports.rules import lexicon, structure
from cxr.radvlm import statements

SHARED = Path(os.environ.get("CXR_ILS_SHARED", Path(__file__).parents[2] / "../shared")).resolve()
OPENI = SHARED / "fixtures/openi_reports.jsonl"
TIED = (
    "This may represent pneumonia.", "It is in the right base.", "None on the right.", "Small left.",
    "A small one on the left.", "The right has resolved.", "It has resolved.", "These have cleared.",
    "Residual opacity in this region.", "Adjacent atelectasis.", "Pneumonia is possible.", "The opacity is dense.",
    "Early disease cannot be excluded.", "Pneumonia?", "Is there an effusion?", "Yes, small.", "No.", "None seen",
    "Small effusion", "Trace on the left.", "Unlike the left, the right is clear.", "No longer seen.",
    "Superimposed infection is not excluded.", "That on the left is larger.", "Lung bases:",
    "Another one at the left base.",
)  # fmt: skip
FREE = (
    "There is an opacity in the right upper lobe.", "No pleural effusion is seen.", "Mild cardiomegaly.",
    "There is a small left pleural effusion.", "The lungs are clear.", "Left basilar atelectasis or pneumonia.",
    "No new consolidation.", "Heart size is normal.", "There is edema in both lungs.", "Old rib fractures on the left.",
)  # fmt: skip


def together(sentences: list[str]) -> list:
    tuples = structure.structure_sentences(sentences, statements.load_lexicon(), unsided_effusion=True)
    return statements._build_statements(tuples, sentences)


def test_a_text_reads_as_its_sentences_together():
    draw = Random(5)
    for _ in range(400):
        text = draw.sample(FREE, draw.randint(1, 4)) + draw.sample(TIED, draw.randint(0, 2))
        draw.shuffle(text)
        assert statements.read_statements(text) == together(text), text


def test_sentences_without_ties_are_not_read_again_in_a_text(monkeypatch):
    free = list(FREE)
    assert not any(one.back or one.on or one.takes for one in (statements._parse_sentence(text)[1] for text in free))
    wanted = together(free)
    statements._read_statements.cache_clear()
    monkeypatch.setattr(structure, "structure_sentences", lambda *_, **__: pytest.fail("read together"))
    assert statements.read_statements(free) == wanted


def test_what_a_sentence_before_tells_is_not_lost():
    first, second = "There is an opacity in the right upper lobe.", "Pneumonia is possible."
    assert not statements.read_sentence(second)[0].has_place
    assert statements.read_statements([first, second])[-1].place == ("right upper lobe",)


def test_a_place_is_taken_from_the_sentence_before_and_no_other_is_read_again(monkeypatch):
    text = ["No effusion.", "There is an opacity in the left base.", "Possible pneumonia.", "Mild cardiomegaly."]
    wanted = together(text)
    assert [one.place for one in wanted] == [(), ("left base",), ("left base",), ()]
    read = []
    whole = structure.structure_sentences
    monkeypatch.setattr(
        structure, "structure_sentences", lambda given, *a, **how: read.append(given) or whole(given, *a, **how)
    )
    statements._read_statements.cache_clear(), statements._parse_together.cache_clear()
    assert statements.read_statements(text) == wanted
    assert read == [text[1:3]]
    assert statements.read_statements(["Small effusion.", "Possible pneumonia."])[-1].place == ()
    assert read == [text[1:3]]  # nothing before it has a place


def test_only_scope_sets_with_a_cue_need_to_run(monkeypatch):
    texts = ["There is no effusion.", "Possible edema.", "Mild cardiomegaly.", "History of pneumonia.", *TIED, *FREE]
    wanted = [together([text]) for text in texts]
    monkeypatch.setattr(lexicon.Lexicon, "cued", lambda *_: list(lexicon.CUE_SETS))
    assert [together([text]) for text in texts] == wanted


@pytest.mark.skipif(not OPENI.is_file(), reason="no Open-i reports (CXR_ILS_SHARED)")
@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.slow)])
def test_real_texts_read_as_their_sentences_together(every):
    lines = OPENI.read_text(encoding="utf-8").splitlines()[::every]
    for row in map(json.loads, lines):
        text = statements.split_sentences(row["findings"].strip() or row["impression"].strip())
        assert statements.read_statements(text) == together(text)
