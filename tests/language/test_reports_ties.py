"""Sentences without ties to others are read alone, with the result of reading the whole text at once."""

import json
import os
from pathlib import Path
from random import Random

import pytest

from cxr.language.reports import sentences
from cxr.language.reports.rules import lexicon, structure

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


LEXICON = lexicon.load_lexicon()


def read(texts: list[str]) -> list[dict]:
    return structure.structure_sentences(texts, unsided_effusion=True)


def read_at_once(texts: list[str]) -> list[dict]:
    findings = structure._find_tuples(structure._read_sentences(texts, LEXICON), True, LEXICON)
    return [dict(vars(finding)) for finding in findings]


@pytest.fixture
def groups(monkeypatch) -> list[list[str]]:
    """The groups of sentences that are read, in order."""
    groups, read_sentences = [], structure._read_sentences
    monkeypatch.setattr(
        structure, "_read_sentences", lambda texts, words: groups.append(texts) or read_sentences(texts, words)
    )
    structure._read_alone.cache_clear()
    return groups


def test_a_text_reads_as_its_sentences_at_once():
    draw = Random(5)
    for _ in range(400):
        text = draw.sample(FREE, draw.randint(1, 4)) + draw.sample(TIED, draw.randint(0, 2))
        draw.shuffle(text)
        assert read(text) == read_at_once(text), text


def test_sentences_without_ties_are_read_once(groups):
    free = list(FREE)
    first = read(free)
    assert groups == [[text] for text in free]
    assert read(free[::-1])
    assert read(free) == first
    assert len(groups) == len(free)


def test_a_change_of_a_tuple_does_not_reach_the_next_report():
    text = ["Left basilar atelectasis or pneumonia."]
    for row in read(text):
        row |= {"span": [0, 0], "related": None}
    assert read(text) == read_at_once(text)


def test_what_a_sentence_before_states_is_not_lost():
    first, second = "There is an opacity in the right upper lobe.", "Pneumonia is possible."
    assert not any(row["location"] for row in read([second]))
    assert read([first, second])[-1]["location"] == ["right upper lobe"]


def test_a_place_is_taken_from_the_sentence_before_and_no_other_is_read_again(groups):
    text = ["No effusion.", "There is an opacity in the left base.", "Possible pneumonia.", "Mild cardiomegaly."]
    locations = [row["location"] for row in read(text) if row["entity"] in ("opacity", "pneumonia")]
    assert locations == [["left base"], ["left base"]]
    assert [group for group in groups if len(group) > 1] == [text[1:3]]
    assert read(["Small effusion.", "Possible pneumonia."])[-1]["location"] is None
    assert [group for group in groups if len(group) > 1] == [text[1:3]]  # nothing before it has a place


def test_only_scope_sets_with_a_cue_need_to_run(monkeypatch):
    texts = ["There is no effusion.", "Possible edema.", "Mild cardiomegaly.", "History of pneumonia.", *TIED, *FREE]
    wanted = [read_at_once([text]) for text in texts]
    monkeypatch.setattr(lexicon.Lexicon, "cued", lambda *_: list(lexicon.CUE_SETS))
    assert [read_at_once([text]) for text in texts] == wanted


@pytest.mark.skipif(not OPENI.is_file(), reason="no Open-i reports (CXR_ILS_SHARED)")
@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.slow)])
def test_real_texts_read_as_their_sentences_at_once(every):
    lines = OPENI.read_text(encoding="utf-8").splitlines()[::every]
    for row in map(json.loads, lines):
        report = row["findings"].strip() or row["impression"].strip()
        text = [report[start:end] for start, end in sentences.split_sentences(report)]
        assert read(text) == read_at_once(text)
