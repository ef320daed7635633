"""Reports: kinds of language in hospital reports, as sentences and as properties of many sentences."""

import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cxr.base.resources import load_resource
from cxr.base.vocabulary import LESIONS
from cxr.language.reports import engine
from cxr.language.reports.rules import lexicon as rules_lexicon
from cxr.language.reports.rules import statements

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import reports_accuracy as accuracy  # noqa: E402
import reports_clinical as clinical  # noqa: E402

LEXICON = rules_lexicon.load_lexicon()
STRUCTURE = engine.load_engine("rules", accuracy.EngineOptions())
KINDS = yaml.safe_load((ROOT / "tests/support/report_kinds.yaml").read_text(encoding="utf-8"))
ZONES = {"B": "lung base", "M": "mid zone lung", "U": "upper zone lung", "A": "apical zone lung", "": "lung"}
SIDES = {"R": "right", "L": "left"}
CERTAIN = {"+": {"definitive"}, "~": {"tentative"}, "*": {"definitive", "tentative"}}


def tuples_of(text: str) -> list[dict]:
    return accuracy.tuples_of(STRUCTURE, text)


def said(tuples: list[dict]) -> tuple[set[str], set[str]]:
    """Return the lesion types affirmed (or candidates of what is) and those denied."""
    affirmed = set().union(*(clinical.lesions_of(item) for item in tuples if item["presence"] == "positive"))
    denied = {item["lesion_type"] for item in tuples if item["presence"] == "negative"}
    return affirmed, denied & set(LESIONS)


@pytest.mark.parametrize("line", [pytest.param(line, id=line) for lines in KINDS.values() for line in lines])
def test_kinds(line):
    text, _, expected = line.partition(" =>")
    tuples = tuples_of(text)
    words = [(word[0], *word[1:].partition("@")[::2]) for word in expected.split()]
    affirmed, denied = said(tuples)
    assert affirmed == {lesion for sign, lesion, _ in words if sign != "-"}
    assert denied == {lesion for sign, lesion, _ in words if sign == "-"}
    for sign, lesion, places in words:
        own = [i for i in tuples if i["presence"] == "positive" and lesion in clinical.lesions_of(i)]
        if sign == "-":
            continue
        assert {clinical.certainty_of(item, lesion) for item in own} & CERTAIN[sign]
        if places:
            wanted = {f"{SIDES[code[0]]} {ZONES[code[1:]]}" for code in places.split(",")}
            assert set().union(*map(clinical.zones_of, own)) == wanted


# ---- properties ------------------------------------------------------------------------------------------------------

NOUNS = ["effusion", "pleural effusion", "atelectasis", "consolidation", "opacity"]
SIZES = ["small", "moderate", "trace", "large", "tiny"]
nouns, sizes = st.sampled_from(NOUNS), st.sampled_from(SIZES)
quickly = settings(max_examples=60, deadline=None, derandomize=True)


def told(text: str) -> set[tuple]:
    return {(i["lesion_type"], i["presence"], tuple(i["labels"])) for i in tuples_of(text) if i["lesion_type"]}


@quickly
@given(nouns, sizes, st.booleans())
def test_sides_in_any_order_are_the_same_tuples(noun, size, swapped):
    there, not_there = ("right", "left") if swapped else ("left", "right")
    orders = [
        f"{size} {there} and no {not_there} {noun}.",
        f"No {not_there} and {size} {there} {noun}.",
        f"{size} {there} {noun} and no {not_there} {noun}.",
        f"No {not_there} {noun}, {size} {there} {noun}.",
        f"{size} {noun} on the {there} but none on the {not_there}.",
        f"No {not_there} {noun}. There is a {size} one on the {there}.",
    ]
    first, *others = [told(text.capitalize()) for text in orders]
    assert len(first) == 2
    for text, other in zip(orders[1:], others, strict=True):
        assert other == first, text


@quickly
@given(
    nouns,
    st.sampled_from(["no longer seen", "now resolved", "which has resolved", "since cleared", "no longer present"]),
)
def test_what_is_over_is_denied(noun, over):
    affirmed, _ = said(tuples_of(f"Left {noun}."))
    assert said(tuples_of(f"Left {noun}, {over}.")) == (set(), affirmed)


HEDGES = [
    "possible {}",
    "{} cannot be excluded",
    "{} is not excluded",
    "{} may be present",
    "question of {}",
    "cannot rule out {}",
]


@quickly
@given(
    st.sampled_from(HEDGES),
    nouns,
    st.sampled_from(["", " given the heart size", ", follow-up advised", " on this film"]),
)
def test_a_doubt_never_denies(hedge, noun, rest):
    affirmed, denied = said(tuples_of(hedge.format(noun).capitalize() + rest + "."))
    assert affirmed == said(tuples_of(f"{noun}."))[0]
    assert not denied


NOT_THIS = [
    "is unlikely to represent",
    "is unlikely to be",
    "does not represent",
    "is not typical of",
    "is not",
    "is unlikely due to",
]


@quickly
@given(st.sampled_from(NOT_THIS), st.sampled_from(["pneumonia", "edema", "acute pneumonia", "pneumonia or edema"]))
def test_what_a_finding_does_not_stand_for_leaves_it_there(cue, disease):
    affirmed, denied = said(tuples_of(f"Right base opacity {cue} {disease}."))
    assert affirmed == {"opacity"}
    assert denied == {word for word in disease.split() if word in LESIONS}


DENIALS = [
    "No pneumothorax",
    "No pneumothorax or rib fracture",
    "Lungs free of consolidation",
    "Negative for pneumonia",
]
JOINTS = [
    " and ",
    ", ",
    "; ",
    " but ",
    " with ",
    ". ",
    ", and ",
    ", plus ",
    ": ",
    " besides ",
    ", just ",
    " / ",
    ", save for ",
]
STANDING = ["stable left {}", "a small left {}", "known left {}", "minor left {}", "layering left {}", "new left {}"]


@quickly
@given(st.sampled_from(DENIALS), st.sampled_from(JOINTS), st.sampled_from(STANDING), nouns)
def test_what_follows_a_denial_stands(denial, joint, standing, noun):
    text = f"{denial}{joint}{standing.format(noun)}."
    affirmed, denied = said(tuples_of(text))
    lesion = said(tuples_of(f"{noun}."))[0]
    assert lesion <= affirmed, text
    assert not lesion & denied or noun == "consolidation", text


# ---- shorthand -------------------------------------------------------------------------------------------------------


def test_every_form_of_shorthand_is_read_as_its_words():
    data = load_resource("lexicon/shorthand.yaml")
    written = [form for forms in data["forms"].values() for form in forms]
    assert len(written) == len(set(map(str, written)))
    assert set(map(str, data["unless"])) <= set(map(str, written))
    for expansion, forms in data["forms"].items():
        wanted = [word for word, _, _ in LEXICON.shorthand.tokens(expansion)]
        for form in forms:
            assert [word for word, _, _ in LEXICON.shorthand.tokens(str(form))] == wanted, form


def test_spans_of_shorthand_are_those_of_the_text():
    text = "Sm L pl eff, no PTX."
    (effusion, _) = tuples_of(text)
    assert text[slice(*effusion["span"])] == "pl eff"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ASD closure", ["asd", "closure"]),
        ("after 10 min", ["after", "10", "min"]),
        ("2/2 views", ["2", "/", "2", "views"]),
        ("infusion, perfusion, diffusion", ["infusion", ",", "perfusion", ",", "diffusion"]),
        ("hypoinflated", ["hypoinflated"]),
        ("consolidación", ["consolidación"]),
        ("ateleectassis", ["atelectasis"]),
    ],
)
def test_what_is_another_word_is_left_alone(text, words):
    assert [word for word, _, _ in LEXICON.shorthand.tokens(text)] == words


# ---- what is only asked ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("R/o LLL PNA clinically.", ["pneumonia"]),
        ("If edema is suspected, repeat after diuresis.", ["edema"]),
        ("Evaluate for effusion. No effusion.", []),
        ("History of pneumonia.", []),
        ("Lungs are clear.", []),
        ("Rule out effusion and pneumonia. No pneumothorax.", ["pneumonia", "effusion"]),
    ],
)
def test_what_a_section_only_asks_about(text, asked):
    assert statements.find_asked_lesions(accuracy.sentences_of(text), tuples_of(text)) == asked
