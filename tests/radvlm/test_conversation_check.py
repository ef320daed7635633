"""The strict check: what people broke is refused with its reason, and what they wrote holds."""

from collections import Counter

import pytest
import yaml

from cxr.radvlm.conversations.check import REASONS, ROLES, find_fault, gather_evidence
from cxr.radvlm.conversations.facts import ImageFacts
from radvlm_pictures import FOLDER, PICTURES, facts_of, messages_of

BROKEN = yaml.safe_load((FOLDER / "broken.yaml").read_text(encoding="utf-8"))


def found(row: dict):
    name = row["of"]
    return find_fault(messages_of(row), gather_evidence(facts_of(name)), PICTURES[name]["grounded"])


@pytest.mark.parametrize("name", PICTURES)
def test_what_a_person_wrote_holds(name):
    assert found({"of": name}) is None


@pytest.mark.parametrize("row", BROKEN, ids=lambda row: f"{row['of']} {row['why']} {row.get('answer', '')}")
def test_a_broken_conversation_is_refused_with_its_reason(row):
    assert found(row).reason == row["why"]


def test_there_are_sixty_and_every_reason_has_some():
    assert len(BROKEN) >= 60
    assert Counter(row["why"] for row in BROKEN).keys() == set(REASONS)
    assert len({str(row) for row in BROKEN}) == len(BROKEN)


@pytest.mark.parametrize("finding", ["clavicle fracture", "rib fracture", "pneumothorax", "pleural thickening"])
def test_a_side_that_no_fact_has_is_refused_where_there_is_no_zone(finding):
    sentences = {1: f"Left {finding}.", 2: "The heart is normal in size."}
    evidence = gather_evidence(ImageFacts("own", "a", "s", "p", "train", sentences=sentences))

    def fault_of(side: str):
        answers = [f"There is a {side} {finding}.", "The heart is normal in size.", *(["Nothing to add."] * 3)]
        turns = [(f"Question {number}?", answer) for number, answer in enumerate(answers)]
        messages = [{"role": role, "text": text} for turn in turns for role, text in zip(ROLES, turn, strict=True)]
        return find_fault(messages, evidence, False)

    assert fault_of("left") is None
    assert fault_of("right").reason == "unsupported_statement"
