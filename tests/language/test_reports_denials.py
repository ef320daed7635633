"""Sentences in hospital style through reading, masks and dataset: what they affirm or leave open is never denied.

The file holds two kinds of lists: those the rules were made with, and those of which every other line (by a hash) was
not looked at while they were made; of these only the sum is tested, so that it says how the rules do on other texts.
"""

import hashlib
from pathlib import Path

import pytest
import yaml
from test_reports_clinical import READER, falsely_denied
from test_reports_kinds import CERTAIN, SIDES, ZONES, said

import reports_clinical as clinical
import reports_labelled as labelled
from cxr.base.vocabulary import kinds_under
from cxr.language.reports import read_reports
from cxr.language.reports.rules.structure import structure_sentences, undecided_lesions

FILE = Path(__file__).resolve().parents[1] / "support" / "report_denials.yaml"
LISTS = yaml.safe_load(FILE.read_text(encoding="utf-8"))


def unread(line: str) -> bool:
    return hashlib.sha256(b"7" + line.partition(" =>")[0].encode()).digest()[0] % 2 == 1


HALVED = [line for group in LISTS["halved"].values() for line in group]
READ = [*LISTS["made with"], *(line for line in HALVED if not unread(line))]
NOT_YET = set(LISTS["not yet"])


def words_of(line: str) -> list[tuple[str, str, list[str] | None]]:
    """Return (sign, lesion, places or None) of what a line says."""
    found = []
    for word in line.partition(" =>")[2].split():
        lesion, _, codes = word[1:].partition("@")
        places = [f"{SIDES[code[0]]} {ZONES[code[1:]]}" for code in codes.split(",")] if codes else None
        found.append((word[0], lesion, places))
    return found


def case_of(line: str) -> labelled.Clinical:
    """Return a line as a text of the clinical suite; an opacity stands wherever a kind of it does."""
    told = [(lesion, places) for sign, lesion, places in words_of(line) if sign != "-"]
    kept = {lesion for lesion, _ in told}
    kept |= {"opacity"} if kept & set(kinds_under("opacity")) else set()
    more = {"presence": "positive", "certainty": "definitive"}
    findings = [{"lesion": lesion, "locations": places, **more} for lesion, places in told]
    text = line.partition(" =>")[0].replace(" / ", "\n") if line.startswith("no ptx /") else line.partition(" =>")[0]
    fields = {"id": text, "category": "own", "language": "en", "text": text, "denied": [], "findings": findings}
    return labelled.Clinical.model_validate(fields | {"affirmed_or_possible": sorted(kept)})


def tuples_of(case: labelled.Clinical) -> list[dict]:
    row = {"study_id": "s1", "subject_id": "p1", "findings": case.text, "impression": None}
    read = read_reports.study_line(row, READER)
    return read["tuples"] if isinstance(read, dict) else []


def misread(line: str) -> list[str]:
    """Return what is wrong in a line's tuples; "no new X" may or may not be there as a negative."""
    tuples, told = tuples_of(case_of(line)), words_of(line)
    affirmed, denied = said(tuples)
    denies = {item["lesion_type"] for item in tuples if item["presence"] == "negative" and item["denies"]} & denied
    wanted, soft = ({lesion for sign, lesion, _ in told if sign in signs} for signs in ("+~*", "!"))
    negative = {lesion for sign, lesion, _ in told if sign == "-"}
    wrong = [f"missed {lesion}" for lesion in wanted - affirmed] + [f"extra {x}" for x in affirmed - wanted - soft]
    wrong += [f"missed -{lesion}" for lesion in negative - denied] + [f"extra -{x}" for x in denies - negative - soft]
    for sign, lesion, places in told:
        own = [item for item in tuples if item["presence"] == "positive" and lesion in clinical.lesions_of(item)]
        if sign not in CERTAIN or not own:
            continue
        if not {clinical.certainty_of(item, lesion) for item in own} & CERTAIN[sign]:
            wrong.append(f"certainty of {lesion}")
        if places and set().union(*map(clinical.zones_of, own)) != set(places):
            wrong.append(f"places of {lesion}")
    return wrong


@pytest.mark.parametrize("line", [line for line in READ if line not in NOT_YET])
def test_a_line_is_read_and_nothing_of_it_denied(line):
    assert misread(line) == []
    assert falsely_denied(case_of(line), 12) == []


@pytest.mark.parametrize("line", sorted(NOT_YET))
def test_what_is_not_yet_read_is_still_wrong(line):
    """A line that is read now belongs to the others."""
    assert misread(line) or falsely_denied(case_of(line), 12)


def test_lines_that_nobody_looked_at():
    """Of (text, lesion) that may not be denied, so many are; the lines themselves are not shown."""
    cases = [case_of(line) for line in HALVED if unread(line)]
    denied = [{lesion for lesion, _ in falsely_denied(case, 12)} for case in cases]
    assert len(cases) >= 200
    assert sum(map(len, denied)) <= 0.03 * sum(len(case.affirmed_or_possible) for case in cases)


@pytest.mark.parametrize(
    ("text", "denied", "undecided"),
    [
        ("no pneumothorax left pleural effusion heart is enlarged", set(), {"effusion", "cardiomegaly"}),
        ("no focal consolidation small left effusion is seen", {"consolidation"}, {"effusion"}),
        ("no effusion or pneumothorax right lower lobe consolidation", {"effusion"}, {"consolidation"}),
        ("no effusion the lungs show right upper lobe pneumonia", {"effusion"}, {"pneumonia"}),
        ("no pneumothorax left effusion and basal atelectasis", set(), {"effusion", "atelectasis"}),
        ("no consolidation large effusion or pneumothorax", {"consolidation", "effusion"}, set()),
        ("no left effusion and no right pneumothorax", {"effusion"}, set()),
        ("no pneumothorax left effusion no edema", {"edema"}, {"effusion"}),
        ("no opacity to suggest left atelectasis", {"opacity", "atelectasis"}, set()),
    ],
)
def test_a_finding_right_after_a_denied_one_is_undecided_without_punctuation(text, denied, undecided):
    tuples = structure_sentences([text], unsided_effusion=True)
    assert {item["lesion_type"] for item in tuples if item["lesion_type"]} == denied
    assert all(item["presence"] == "negative" and item["denies"] for item in tuples)
    assert undecided_lesions([text]) == undecided
