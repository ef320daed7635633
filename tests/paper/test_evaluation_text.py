"""Answers: the authors' rules agree with their own table, the strict ones with Table 2."""

import json

import pytest

from cxr.base.vocabulary import INFERRED_LESIONS, LESIONS, VALID_LOCATIONS
from cxr.ils import templates
from cxr.ils.evaluation import answer_rules
from evaluation_cases import LINES
from scored import own, score


@pytest.fixture(scope="module")
def rows(shared):
    path = shared / "fixtures" / "lisa_reference" / "prompts_and_text_metric.json"
    if not path.is_file():
        pytest.skip(f"no reference of the texts: {path}")
    return json.loads(path.read_text(encoding="utf-8"))["text_metric"]


def as_fields(parsed: answer_rules.ParsedAnswer) -> dict:
    return {
        "type": parsed.type.replace("_", " "),
        "target": parsed.target,
        "location": parsed.location,
        "presence_label": parsed.presence,
    }


def test_the_authors_rules_agree_with_their_table_in_every_row(rows):
    assert len(rows) >= 18
    seen = set()
    for row in rows:
        kind = templates.detect_type(row["question"])
        true, said = answer_rules.parse_answer(kind, row["gt"]), answer_rules.parse_answer(kind, row["pred"])
        assert as_fields(true) == row["gt_parsed"], row
        assert as_fields(said) == row["pred_parsed"], row
        assert ("neg" if true.presence == "no" else "pos") == row["polarity"], row
        judged = answer_rules.judge_by_authors(kind, row["gt"], row["pred"])
        assert judged["authors"] == row["counted_correct"], row
        assert judged["authors_certainty"] == row["fully_equal"], row
        if row["global_loose"] is not None:
            assert judged["authors_side"] == row["global_loose"], row
        seen.add((kind, row["polarity"], row["counted_correct"]))
    assert len(seen) >= 10  # both outcomes, not one answer for all


def table_2():
    """Every instruction and answer of Table 2 for some places: (type, positive, instruction, answer)."""
    for place in ([VALID_LOCATIONS[0]], list(VALID_LOCATIONS[:2]), list(VALID_LOCATIONS[3:6])):
        for word in LESIONS:
            kinds = (templates.GLOBAL,) if word == "cardiomegaly" else (templates.GLOBAL, templates.BASIC)
            for kind in kinds:
                asked = templates.write_instruction(kind, word, place)
                yield kind, True, asked, templates.write_positive_answer(kind, word, place)
                yield kind, False, asked, templates.write_negative_answer(kind, word, place)
        asked = templates.write_instruction(templates.INFERENCE, "opacity", place)
        yield templates.INFERENCE, False, asked, templates.write_negative_answer(templates.INFERENCE, "opacity", place)
        for lesion in INFERRED_LESIONS:
            for certainty in templates.CERTAINTY_PHRASES:
                answer = templates.write_positive_answer(templates.INFERENCE, lesion, place, certainty)
                yield templates.INFERENCE, True, asked, answer


def test_every_answer_of_table_2_is_right_and_its_polarity_is_read():
    for kind, positive, asked, answer in table_2():
        assert templates.detect_type(asked) == kind
        assert all(answer_rules.judge_answer(kind, answer, answer).values()), answer
        assert (answer_rules.parse_answer(kind, answer).presence != "no") is positive, answer


def test_strict_is_equality_and_no_looser_than_the_authors():
    by_question: dict[tuple, set] = {}
    for kind, _, asked, answer in table_2():
        by_question.setdefault((kind, asked), set()).add(answer)
    looser = 0
    for (kind, _), answers in by_question.items():
        for true in answers:
            for said in answers:
                judged = answer_rules.judge_answer(kind, true, said)
                assert judged["strict"] == (true == said)
                assert judged["strict"] <= judged["strict_lesion"] <= judged["authors"]
                assert judged["authors_certainty"] <= judged["authors"]
                looser += judged["strict_lesion"] > judged["strict"]
    assert looser == 3 * len(INFERRED_LESIONS) * 2  # both certainties of each lesion, at each of three places


@pytest.mark.parametrize(
    ("kind", "reference", "answer", "right"),
    [
        # blanks alone are forgiven
        ("basic", "[SEG]", " [SEG]  ", {"strict", "strict_lesion", "authors", "authors_certainty", "authors_side"}),
        # garbage is right by the authors' rules
        ("basic", "[SEG]", "", {"authors", "authors_certainty", "authors_side"}),
        # an answer without [SEG]
        ("global", "[SEG] There is no edema.", "There is no edema.", {"authors", "authors_certainty", "authors_side"}),
        ("global", "[SEG] There is no edema.", "[SEG] There is no effusion.", set()),
        # the same side
        ("global", "[SEG] It is located in the right lung base.", "[SEG] It is located in the right lung.",
         {"authors_side"}),
        ("global", "[SEG] It is located in the right lung base.", "[SEG] It is located in the left lung.", set()),
        # certainty
        ("lesion_inference", "[SEG] It possibly reflects edema.", "[SEG] It is highly suggestive of edema.",
         {"strict_lesion", "authors", "authors_side"}),
        ("lesion_inference", "[SEG] It possibly reflects edema.", "[SEG] It possibly reflects pneumonia.", set()),
        # a denial that names another place
        ("lesion_inference", "[SEG] There is no opacity in the left lung.",
         "[SEG] There is no opacity in the right lung.", set()),
    ],
)  # fmt: skip
def test_what_each_rule_forgives(kind, reference, answer, right):
    assert {rule for rule, correct in answer_rules.judge_answer(kind, reference, answer).items() if correct} == right


def test_the_table_of_a_run_by_hand(tmp_path):
    # right, the other order of places, the other certainty, right, right but for [SEG], denied
    said = [
        "[SEG]",
        "[SEG] It is located in the left lung and right lung.",
        "[SEG] It possibly reflects edema.",
        "[SEG] There is no effusion.",
        "There is no opacity in the left lung.",
        "[SEG] There is no cardiomegaly.",
    ]
    entries = [entry | {"mask": None, "answer": answer} for entry, answer in zip(own(range(6)), said, strict=True)]
    made = score(tmp_path, entries)
    accuracy = {
        (row["rule"], row["group"], row["type"]): (row["pairs"], row["accuracy"], row["accuracy_paper"])
        for row in made["text_table"].iter_rows(named=True)
    }
    assert accuracy["strict", "total", "overall"] == (6, 33.33, 94.4)
    assert accuracy["strict_lesion", "total", "overall"] == (6, 50.0, 94.4)
    assert accuracy["authors", "total", "overall"] == (6, 66.67, 94.4)
    assert accuracy["authors_certainty", "total", "overall"] == (6, 50.0, 94.4)
    assert accuracy["authors", "positive", "lesion_inference"] == (1, 100.0, 75.1)
    assert accuracy["authors", "positive", "global"] == (2, 0.0, 93.7)
    assert accuracy["authors", "negative", "overall"] == (2, 100.0, 95.3)
    assert accuracy["strict", "negative", "basic"] == (1, 0.0, 96.9)
    assert accuracy["authors", "edema", "overall"] == (2, 50.0, 93.4)
    assert accuracy["authors", "opacity", "basic"] == (1, 100.0, 92.2)
    assert ("authors", "pneumonia", "overall") not in accuracy  # nobody asked
    assert accuracy["strict", "cardiomegaly", "global"] == (1, 0.0, 96.0)


def test_a_pair_without_an_answer_is_wrong_where_others_have_one(tmp_path):
    entries = own([0, 3], mask=None, answer="[SEG]") + own([1], mask=None)
    made = score(tmp_path, entries)
    assert made["pairs"]["authors"].to_list() == [True, False, False, False, False, False]
    assert [LINES[number]["pair_id"] for number in (0, 1, 3)] == ["p0", "p1", "p3"]
