"""Paraphrases: what a wording means, the two engines, the stage's files, and the workflow."""

import itertools
from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from ils.core.labels import LESIONS, PERSONAS, VALID_LOCATIONS
from ils.core.run import UserError
from ils.core.templates import (
    BASIC,
    CARDIOMEGALY,
    GLOBAL,
    INFERENCE,
    OPACITY,
    Instruction,
    instruction,
    parse_instruction,
)  # fmt: skip
from ils.paraphrase import engine, reading, rules
from ils.paraphrase.engine import Options, Task

RULES = Options("rules", list(PERSONAS), 3)
PLACES = [
    places
    for number in range(1, len(VALID_LOCATIONS) + 1)
    for places in itertools.combinations(VALID_LOCATIONS, number)
]


def meanings():
    """Everything that an instruction of Table 2 can ask for."""
    for lesion in LESIONS:
        yield Instruction(GLOBAL, lesion, ())
        if lesion != CARDIOMEGALY:
            yield from (Instruction(BASIC, lesion, places) for places in PLACES)
    yield from (Instruction(INFERENCE, OPACITY, places) for places in PLACES)


def plain(meant: Instruction) -> str:
    return instruction(meant.type, meant.word, meant.location)


def task(meant: Instruction, *taken: str) -> Task:
    return Task(plain(meant), meant, taken)


EDEMA = Instruction(BASIC, "edema", ("right lung base",))


# ---- the reader ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "lesion", "places"),
    [
        ("Outline the pleural effusion at the base of the left lung.", BASIC, "effusion", ["left lung base"]),
        ("Where's the fluid around the lungs? Please mark it.", GLOBAL, "effusion", []),
        ("SEGMENT   THE EDEMA in both lung bases", BASIC, "edema", ["right lung base", "left lung base"]),
        ("Mask pneumonia: the bases of both lungs", BASIC, "pneumonia", ["right lung base", "left lung base"]),
        ("Show the hazy patch in the left apex, please: what is", None, None, None),
        ("Highlight the opacities of the left lung apex and predict the disease class", INFERENCE, "opacity",
         ["left apical zone lung"]),
        ("Draw around the enlarged heart.", GLOBAL, "cardiomegaly", []),
        ("Trace the consolidation in the left middle zone and the right upper lung zone.", BASIC, "consolidation",
         ["right upper zone lung", "left mid zone lung"]),
    ],
)  # fmt: skip
def test_a_wording_is_read(text, kind, lesion, places):
    if kind is None:
        with pytest.raises(reading.Unread):
            reading.read(text)
        return
    assert reading.read(text) == Instruction(kind, lesion, tuple(places))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Segment the finding in the right lung base.", "names no lesion type"),
        ("Segment the edema or the effusion in the right lung base.", "names more than one lesion type"),
        ("Segment the opacity in the right lung base, such as pneumonia, and predict its type.", "names more than one"),
        ("The edema in the right lung base.", "asks for no mask"),
        ("Segment the edema in the right and left lung bases.", "a word that changes the meaning"),
        ("Segment the edema in the right lower lobe.", "a word that changes the meaning"),
        ("Segment the edema in the right lung base but not the effusion.", "names more than one"),
        ("Do not segment the edema in the right lung base.", "a word that changes the meaning"),
        ("Don’t mark the edema in the right lung base.", "a word that changes the meaning"),
        ("Segment the edema in the right lung base, if there is any.", "a word that changes the meaning"),
        ("Segment the edema in the right lung base and the mediastinum.", "a word that changes the meaning"),
        ("Segment the possible edema in the right lung base.", "a word that changes the meaning"),
        ("Segment the edema in the lungs.", "a word that changes the meaning"),
        ("Segment the pneumothorax and the edema in the right lung base.", "a word that changes the meaning"),
        ("Segment the edema in the right lung base and predict its type.", "asks for the type of what has none"),
        ("Segment the opacity and predict its type.", "asks for the type of what has none"),
        ("Segment the cardiomegaly in the right lung.", "names a place of the heart"),
        ("Segment the edema in the right lung base. [SEG]", "a character that no instruction holds"),
        ("Segment the edema <image> in the right lung base.", "a character that no instruction holds"),
        ("Segment the edema\nin the right lung base.", "a character that no instruction holds"),
        ("Segment the edema in the right lung base." + " please" * 80, "longer than any instruction"),
    ],
)
def test_what_is_not_understood_is_refused(text, why):
    with pytest.raises(reading.Unread, match=f"^{why}"):
        reading.read(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Outline the edema in the left lung base.", "other places"),
        ("Outline the edema in the right lung base and the right lung.", "other places"),
        ("Outline the effusion in the right lung base.", "another lesion type"),
        ("Outline the edema.", "another type of instruction"),
        ("Outline the edema in the base of the right lung.", None),
    ],
)
def test_a_wording_must_mean_what_its_instruction_means(text, why):
    assert reading.meaning_problem(text, EDEMA) == why


def test_every_plain_instruction_is_read_as_what_it_means():
    for meant in meanings():
        assert parse_instruction(plain(meant)) == meant
        assert reading.read(plain(meant)) == meant


def test_no_name_means_two_things():
    told = yaml.safe_load((ROOT / "resources/paraphrase/vocabulary.yaml").read_text(encoding="utf-8"))
    names = [name for names in (*told["lesions"].values(), *told["places"].values()) for name in names]
    assert len(names) == len(set(names))
    for lesion in LESIONS:
        for name in reading.names_of_lesion(lesion):
            assert reading.read(f"Segment the {name}.") == Instruction(GLOBAL, lesion, ()), name
    for place in VALID_LOCATIONS:
        for name in reading.names_of_place(place):
            assert reading.read(f"Segment the edema in the {name}.") == Instruction(BASIC, "edema", (place,)), name


REASONS = {
    "longer than any instruction", "a character that no instruction holds", "names more than one lesion type",
    "names no lesion type", "a word that changes the meaning", "asks for no mask", "names a place of the heart",
    "asks for the type of what has none",
}  # fmt: skip
PIECES = st.sampled_from(
    ["Segment", "the", "edema", "heart", "enlarged heart", "in", "right", "left lung", "both", "no", "type", "opacity"]
)


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=9).map(" ".join)))
def test_any_text_is_read_or_refused_for_a_reason_of_ours(text):
    try:
        found = reading.read(text)
    except reading.Unread as reason:
        found = None
        why = str(reason)
    assert found is not None or why in REASONS  # no word of the text, which may go to a log
    if found is not None:
        assert reading.read(plain(found)) == found


# ---- the engine rules ------------------------------------------------------------------------------------------------


def test_every_wording_of_every_instruction_means_it_and_no_other():
    """All 7,168 instructions of Table 2 × 9: read back to the same meaning, none twice, none of two instructions."""
    made = engine.load(RULES, {})
    tasks = [task(meant) for meant in meanings()]
    assert len(tasks) == 7 + 6 * 1023 + 1023
    seen: dict[str, str] = {one.text: one.text for one in tasks}
    for persona in PERSONAS:
        for one, found in zip(tasks, made.reword(tasks, persona), strict=True):
            assert len(found.wordings) == 3
            for text in found.wordings:
                assert text not in seen, f"{text!r} of {one.text!r} and {seen[text]!r}"
                seen[text] = one.text
                assert reading.read(text) == one.meant, text
    assert len(seen) == len(tasks) * 10


def test_the_personas_speak_as_they_are():
    meant = Instruction(INFERENCE, OPACITY, ("right apical zone lung", "left lung base"))
    assert [rules.wordings(meant, persona)[0] for persona in PERSONAS] == [
        "Delineate the pulmonary opacity in the right lung apex and the left lung base and give its most likely "
        "diagnosis.",
        "Can you show me the cloudy area in the very top of the right lung and the bottom of the left lung and tell me "
        "what it might be?",
        "Generate a binary mask for the opacity in the right apical zone lung and the left lung base and predict its "
        "type.",
    ]
    assert rules.wordings(Instruction(GLOBAL, "effusion", ()), "layperson") == [
        "Can you show me the fluid around the lung on this X-ray?",
        "Please mark where you see the fluid around the lung.",
        "On this X-ray, color in all of the fluid around the lung.",
    ]


def test_fewer_personas_and_wordings_are_the_first_of_all():
    few = engine.load(replace(RULES, personas=["layperson"], per_persona=2), {})
    assert few.reword([task(EDEMA)], "layperson")[0].wordings == tuple(rules.wordings(EDEMA, "layperson")[:2])


def test_more_wordings_than_there_are_is_one_sentence():
    with pytest.raises(UserError, match=r"^paraphrase\.per_persona is 4, but the engine rules has 3 wordings.*vllm$"):
        engine.load(replace(RULES, per_persona=4), {})
    with pytest.raises(
        UserError, match=r"^paraphrase\.engine is 'luck', which does not exist: choose one of rules, vllm$"
    ):
        engine.load(replace(RULES, engine="luck"), {})
