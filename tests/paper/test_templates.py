"""Texts of Table 2, and parsing them."""

import json
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxr.base.vocabulary import INFERRED_LESIONS, LESIONS, VALID_LOCATIONS, in_table_order
from cxr.ils import templates
from cxr.ils.dataset import pairs

LUNG_LESIONS = [lesion for lesion in LESIONS if lesion != "cardiomegaly"]
PLACES = st.sets(st.sampled_from(VALID_LOCATIONS), min_size=1).map(sorted)


@pytest.fixture
def paper_examples(shared) -> dict:
    return json.loads((shared / "fixtures" / "paper_examples.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("locations", "text"),
    [
        (["left lung"], "left lung"),
        (["left lung", "right lung"], "right lung and left lung"),
        (
            ["left lung base", "right mid zone lung", "right lung base"],
            "right mid zone lung, right lung base, and left lung base",
        ),
        (
            ["left apical zone lung", "left lung base", "right lung", "left upper zone lung"],
            "right lung, left apical zone lung, left upper zone lung, and left lung base",
        ),
    ],
)
def test_join_and_split(locations, text):
    assert templates.join_locations(locations) == text
    assert templates.split_locations(text) == tuple(in_table_order(locations))


@pytest.mark.parametrize("locations", [[], ["heart"], ["lung upper lobe left"]])
def test_join_refuses_what_no_instruction_may_name(locations):
    with pytest.raises(ValueError, match=r"none is given|not in tuple"):
        templates.join_locations(locations)


@pytest.mark.parametrize(
    "text",
    ["", "right", "left lung and right lung", "right lung, left lung", "right lung and right lung", "right lung and "],
)
def test_split_refuses_what_join_never_makes(text):
    with pytest.raises(ValueError, match="location"):
        templates.split_locations(text)


def test_table_2_word_by_word():
    base = ["right lung base"]
    assert templates.write_instruction("basic", "effusion", base) == "Segment the effusion in the right lung base."
    assert templates.write_positive_answer("basic", "effusion", base) == "[SEG]"
    assert (
        templates.write_negative_answer("basic", "effusion", base)
        == "[SEG] There is no effusion in the right lung base."
    )
    assert templates.write_instruction("global", "effusion", base) == "Segment the effusion."
    assert templates.write_positive_answer("global", "effusion", base) == "[SEG] It is located in the right lung base."
    assert templates.write_negative_answer("global", "effusion") == "[SEG] There is no effusion."
    asked = "Segment the opacity in the right lung base and predict its type."
    assert templates.write_instruction("lesion_inference", "edema", base) == asked
    assert (
        templates.write_positive_answer("lesion_inference", "edema", base, "definitive")
        == "[SEG] It is highly suggestive of edema."
    )
    assert (
        templates.write_positive_answer("lesion_inference", "edema", base, "tentative")
        == "[SEG] It possibly reflects edema."
    )
    denied = "[SEG] There is no opacity in the right lung base."
    assert templates.write_negative_answer("lesion_inference", "opacity", base) == denied


def positive_pair(kind, target, word, location, *, certainty, sentence_index, grounded, reported, mask_id):
    unit = {
        "target": target, "word": word, "location": location, "certainty": certainty, "mask_id": mask_id,
        "sentence_index": sentence_index, "grounded_location": grounded, "reported_location": reported,
    }  # fmt: skip
    return pairs.make_positive(unit, kind)


def test_cardiomegaly_answers_seg_alone():
    pair = positive_pair(
        "global",
        "cardiomegaly",
        "cardiomegaly",
        ["heart"],
        certainty="definitive",
        sentence_index=2,
        grounded=["heart"],
        reported=["heart"],
        mask_id="m1",
    )
    assert (pair.instruction, pair.answer) == ("Segment the cardiomegaly.", "[SEG]")
    assert (pair.location, pair.certainty, pair.sentence_index) == (("heart",), None, 2)
    assert templates.parse_pair(pair.instruction, pair.answer) == templates.Meaning(
        "global", "cardiomegaly", ("heart",), present=True
    )


@st.composite
def positive_pairs(draw):
    kind = draw(st.sampled_from(templates.TYPES))
    lesions = {"basic": LUNG_LESIONS, "global": LESIONS, "lesion_inference": INFERRED_LESIONS}[kind]
    target = draw(st.sampled_from(lesions))
    certainty = "definitive" if kind == "global" else draw(st.sampled_from(["definitive", "tentative"]))
    heart = target == "cardiomegaly"
    return positive_pair(
        kind,
        target,
        "opacity" if certainty == "tentative" else target,
        ["heart"] if heart else in_table_order(draw(PLACES)),
        certainty=certainty,
        sentence_index=1,
        grounded=(),
        reported=(),
        mask_id="m",
    )


@given(positive_pairs())
def test_positive_texts_round_trip(pair):
    meaning = templates.parse_pair(pair.instruction, pair.answer)
    assert (meaning.type, meaning.location, meaning.present) == (pair.type, pair.location, True)
    if pair.type == "lesion_inference":
        assert (meaning.lesion, meaning.certainty) == (pair.target, pair.certainty)
    else:
        assert meaning.word == ("opacity" if pair.certainty == "tentative" else pair.target)


@given(st.sampled_from(templates.TYPES), st.sampled_from(LUNG_LESIONS), PLACES)
def test_negative_texts_round_trip(kind, lesion, places):
    lesion = "opacity" if kind == "lesion_inference" else lesion
    pair = pairs.make_negative(kind, lesion, () if kind == "global" else in_table_order(places))
    assert pair.answer.startswith("[SEG] There is no ")
    assert templates.parse_pair(pair.instruction, pair.answer) == templates.Meaning(kind, lesion, pair.location, False)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Segment the effusion in the right lung base.", "[SEG] There is no effusion in the left lung base."),
        ("Segment the effusion in the right lung base.", "[SEG] There is no edema in the right lung base."),
        ("Segment the effusion in the right lung base.", "[SEG] It is located in the right lung base."),
        ("Segment the effusion in the right lung base.", "[SEG] There is no effusion."),
        ("Segment the effusion in the right lung base.", ""),
        ("Segment the effusion.", "[SEG]"),
        ("Segment the cardiomegaly.", "[SEG] It is located in the right lung."),
        ("Segment the cardiomegaly in the right lung.", "[SEG]"),
        ("Segment the opacity in the left lung and predict its type.", "[SEG]"),
        ("Segment the edema in the left lung and predict its type.", "[SEG] It possibly reflects edema."),
        ("Where is the effusion?", "[SEG]"),
        ("Segment the nodule.", "[SEG] There is no nodule."),
    ],
)
def test_parse_refuses_texts_that_no_template_makes(question, answer):
    with pytest.raises(ValueError, match=r"answer|instruction|locations"):
        templates.parse_pair(question, answer)


def test_types_follow_the_released_rule(shared):
    metric = shared / "fixtures" / "lisa_reference" / "prompts_and_text_metric.json"
    cases = json.loads(metric.read_text(encoding="utf-8"))["text_metric"]
    assert len(cases) >= 15
    for case in cases:
        question = case["question"].removeprefix("<image>\n")
        assert templates.detect_type(question) == case["gt_parsed"]["type"].replace(" ", "_")
        meaning = templates.parse_pair(question, case["gt"])
        assert meaning.present == (case["polarity"] == "pos")


def test_paper_positive_examples(paper_examples):
    """Figure 11: from target, certainty and the location sets to the printed texts."""
    for example in paper_examples["figure_11"]:
        if not example["seg"]:
            continue
        for question, answer in zip(example["instruction"], example["answer"], strict=True):
            kind = templates.detect_type(question)
            pair = positive_pair(
                kind,
                example["target"],
                "opacity" if example["certainty"] == "tentative" else example["target"],
                example["grounded"],
                certainty=example["certainty"],
                sentence_index=1,
                grounded=example["grounded"],
                reported=example["reported"],
                mask_id="m",
            )
            assert (pair.instruction, pair.answer, pair.seg) == (question, answer, True)
            assert list(pair.location) == example["grounded"]
            assert sorted(pair.reported_location) == sorted(example["reported"])


def test_paper_negative_examples(paper_examples):
    (example,) = [example for example in paper_examples["figure_11"] if not example["seg"]]
    rows = zip(example["target"], example["drawn_location"], example["instruction"], example["answer"], strict=True)
    for target, place, question, answer in rows:
        pair = pairs.make_negative("basic", target, [place])
        assert (pair.instruction, pair.answer, pair.seg) == (question, answer, False)
        assert (pair.location, pair.mask_id, pair.certainty) == ((place,), None, None)
        assert list(chain(pair.grounded_location, pair.reported_location)) == []
