"""The filter of reports, engine rules: own sentences, its laws, and real reports."""

import hashlib
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import yaml

import openi_labels
from cxr.base.errors import UserError
from cxr.language.reports import engine as reports
from cxr.language.reports import sentences
from cxr.radvlm.filtered.engine import FilterOptions, load_engine
from cxr.radvlm.filtered.rules import load_sentence_filter
from cxr.radvlm.labels import label_report, load_label_names, resolve_uncertain

OPTIONS = FilterOptions("rules", "drop")
TABLES = Path(__file__).parent / "filter"
APART_REASONS = 57
"""Of the 57 sentences kept apart so many have the expected reasons too; on their first run 55. All had the expected
text.
"""


def table(name: str) -> list[dict]:
    return yaml.safe_load((TABLES / name).read_text(encoding="utf-8"))


FILTER = load_sentence_filter(OPTIONS)
WORKED_ON, APART = table("sentences.yaml"), table("sentences_apart.yaml")


def test_a_third_of_the_sentences_was_kept_apart():
    every = WORKED_ON + APART
    assert len(every) >= 150
    assert 3 * len(APART) >= len(every) - 2
    assert len({row["from"] for row in every}) == len(every)


@pytest.mark.parametrize("row", WORKED_ON, ids=lambda row: row["from"])
def test_a_sentence(row):
    found = FILTER(row["from"])
    action = "kept" if row["to"] == row["from"] else "rewritten" if row["to"] else "dropped"
    assert (found.text, found.action, set(found.reasons)) == (row["to"], action, set(row["why"]))


@pytest.mark.parametrize(
    ("text", "filtered"),
    [
        ("The mass measures 6 cm, when it measured 4 cm in May.", "The mass measures 6 cm."),
        ("The effusion is not seen any more.", "The effusion is not seen."),
        ("Right chest tube was pulled, small apical pneumothorax.", "Small apical pneumothorax."),
        ("Free air has been absorbed since surgery.", None),
        ("The mediastinal shift has been corrected; there is a left effusion.", "There is a left effusion."),
        ("The congestion has given way to frank edema.", "Frank edema."),
        ("No pneumothorax, and the edema has given way to fibrosis.", "No pneumothorax."),
        ("Neither edema nor effusion is present, and the atelectasis is improving.", None),
        ("Neither the effusion nor the atelectasis has changed.", "Effusion and atelectasis."),
        (
            "The tube has come out of the stomach and ends in the esophagus.",
            "The tube has come out of the stomach and ends in the esophagus.",
        ),
    ],
)
def test_an_earlier_state_in_other_words(text, filtered):
    assert FILTER(text).text == filtered


@pytest.mark.parametrize("row", APART, ids=lambda row: row["from"])
def test_a_sentence_that_was_kept_apart(row):
    assert FILTER(row["from"]).text == row["to"]


def test_reasons_of_the_sentences_that_were_kept_apart():
    right = sum(set(FILTER(row["from"]).reasons) == set(row["why"]) for row in APART)
    assert right == APART_REASONS


@pytest.mark.parametrize("row", WORKED_ON + APART, ids=lambda row: row["from"])
def test_a_filtered_sentence_stays(row):
    if row["to"]:
        again = FILTER(row["to"])
        assert (again.text, again.action) == (row["to"], "kept")


def test_no_new_is_never_no():
    for finding in ("consolidation", "pleural effusion", "pneumothorax", "nodules"):
        for told in ("No new {}.", "There is no new {}.", "Without new {}.", "No evidence of new {}."):
            assert FILTER(told.format(finding)).text is None


def test_only_a_film_that_is_not_there_is_a_comparison():
    for told in ("No relevant effusion.", "No old rib fractures.", "There is no relevant mediastinal widening."):
        assert (FILTER(told).text, FILTER(told).action) == (told, "kept")
    for told in ("No prior studies.", "No relevant comparison.", "There are no old films.", "No priors."):
        assert FILTER(told).text is None


def test_a_finding_that_has_gone_is_stated_as_absent_where_asked():
    one = load_sentence_filter(FilterOptions("rules", "state_absence"))
    assert one("The right pleural effusion has resolved.").text == "No right pleural effusion."
    assert one("Interval resolution of the left pneumothorax.").text == "No left pneumothorax."
    assert one("The left chest tube has been removed.").text is None
    assert one("No new effusion.").text is None


def test_an_unknown_engine_is_named():
    with pytest.raises(UserError, match="choose one of"):
        load_engine(FilterOptions("gpt", "drop"), {})


# ---- real reports ---------------------------------------------------------------------------------------------------
COMPARISON = re.compile(
    r"\b(?:unchanged|stabl[ey]|interval|prior|previous(?:ly)?|compar(?:ed|isons?|ing)|again|new(?:ly)?|persist\w*|"
    r"increas\w+|decreas\w+|wors\w+|improv\w+|resol\w+|remains?|since|earlier|chang\w+|progress\w+|redemonstrated|"
    r"no longer|larger|smaller|now|still|similar|recent(?:ly)?)\b",
    re.IGNORECASE,
)
_MEASURE = (
    r"(?:lung volumes?|volumes|markings?|densit(?:y|ies)|(?:air)?space|diameter|kyphosis|curvature|heart size|"
    r"cardiac silhouette|vascula\w+|lucency|angle|attenuation|size)"
)
LISTED = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?<!no )(?<!interval )(?<!significant )(?<!without )(?<!little )\bchanges?\b",  # degenerative changes
        r"\b(?:prior|previous|remote) (?:[\w/-]+ ){0,2}?(?:granulomatous|histoplasmosis|infections?|asbestos|"
        r"fractures?|trauma|injury|exposure|pneumonia|disease|gunshot)\b",
        r"\b(?:prior|previous|recent) (?:[\w/-]+ ){0,4}?(?:surgery|resection|\w+ectomy|\w+otomy|cabg|fusion|"
        r"replacement|graft|radiation)\b",  # history, and not another image
        rf"\b(?:increas\w*|decreas\w*|improved) (?:in )?(?:[\w-]+ ){{0,5}}?{_MEASURE}",
        rf"\b{_MEASURE} (?:[\w-]+ ){{0,4}}?(?:is|are|has been|appears?) (?:[\w-]+ )?(?:increased|decreased)",
        r"\b(?:left|right)(?: side)? (?:slightly |much )?(?:worse|larger|greater) than\b",
        r"\bwor(?:se|st) (?:at|on|in)\b",
    )
]
FUNCTION = frozenset(["a", "an", "the", "is", "are", "there", "and"])
HALVES = ("worked on", "held out")
LEFT = {"worked on": 0, "held out": 3}
"""Sentences with an unlisted word of comparison. When the half held out was first read there were 15, and 1."""


def unlisted(text: str) -> list[str]:
    for pattern in LISTED:
        text = pattern.sub("", text)
    return COMPARISON.findall(text)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _even(uid: int) -> bool:
    return hashlib.blake2b(str(uid).encode(), digest_size=4).digest()[-1] % 2 == 0


@cache
def filtered(path: Path, half: str) -> list[tuple[str, str | None, str]]:
    """Return (sentence, text, action) of a half of the reports."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    own = [row for row in rows if _even(row["uid"]) == (half == HALVES[0])]
    texts = [row["findings"].strip() or row["impression"].strip() for row in own]
    every = [text[start:end] for text in texts for start, end in sentences.split_sentences(text)]
    found = [FILTER(sentence) for sentence in every]
    return [(sentence, one.text, one.action) for sentence, one in zip(every, found, strict=True)]


@pytest.fixture(params=HALVES)
def half(request, shared):
    return request.param, filtered(shared / "fixtures/openi_reports.jsonl", request.param)


def test_no_comparison_is_left_in_real_reports(half):
    name, found = half
    assert sum(bool(COMPARISON.search(sentence)) for sentence, _, _ in found) > 300
    left = [text for _, text, _ in found if text and unlisted(text)]
    assert len(left) <= LEFT[name]


def test_a_rewritten_real_sentence_holds_words_of_its_source_alone(half):
    _, found = half
    rewritten = [(sentence, text) for sentence, text, action in found if action == "rewritten"]
    assert len(rewritten) > 200
    for sentence, text in rewritten:
        source, own = Counter(words(sentence)), Counter(words(text))
        assert not own.keys() - source.keys() - FUNCTION, text
        assert (own & source).total() >= 0.6 * own.total(), text


@cache
def labels_of_reports(path: Path, half: str) -> list[tuple[set[str], set[str], set[str]]]:
    """Return (labels of people, of the report as it is, of the filtered report), both sections together."""
    found = []
    for row in (row for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())):
        if _even(row["uid"]) != (half == HALVES[0]):
            continue
        sections = [
            [text[a:b] for a, b in sentences.split_sentences(text)] for text in (row["findings"], row["impression"])
        ]
        left = [[one.text for one in map(FILTER, own) if one.text] for own in sections]
        found.append((openi_labels.mesh_labels(row["mesh"]), labels(sections), labels(left)))
    return found


STRUCTURE = reports.load_engine("rules", reports.EngineOptions("both_bases"))


def labels(sections: list[list[str]]) -> set[str]:
    tuples = [one for own in sections for one in STRUCTURE(own)]
    stated = resolve_uncertain(label_report(tuples, [text for own in sections for text in own]), "absent")
    return {name for name, value in stated.items() if value == "present" and name != load_label_names().no_finding}


def micro(pairs: list[tuple[set[str], set[str]]]) -> float:
    return 2 * sum(len(a & b) for a, b in pairs) / sum(len(a) + len(b) for a, b in pairs)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.slow
def test_the_labels_of_real_reports_are_kept(shared, half):
    found = labels_of_reports(shared / "fixtures/openi_reports.jsonl", half)
    twelve = set(load_label_names().findings)
    assert sum(len(before & twelve) for _, before, _ in found) > 400
    kept = sum(len(before & after & twelve) for _, before, after in found)
    assert kept >= 0.99 * sum(len(before & twelve) for _, before, _ in found)
    assert sum(len(after - before) for _, before, after in found) <= 1
    assert abs(micro([(a, b) for a, b, _ in found]) - micro([(a, c) for a, _, c in found])) <= 0.005


def test_a_filtered_real_sentence_stays(half):
    _, found = half
    texts = {text for _, text, action in found if action == "rewritten"}
    assert {text for text in texts if FILTER(text).text != text} == set()
