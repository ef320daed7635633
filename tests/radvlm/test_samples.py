"""A sample's line, its slots and its boxes."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxr.base.tables import write_lines
from cxr.instructions.record import Turn
from cxr.radvlm.samples import (
    box_slot,
    make_line,
    round_coordinate,
    sort_by_area,
    survive_rounding,
    unit_boxes,
)
from cxr.vlm.conventions import CONVENTIONS, InputSize
from cxr.vlm.reading import read_boxes
from cxr.vlm.samples import read_samples

IMAGE = {"source": "own", "image_id": "007", "study_id": "s", "subject_id": "p", "split": "train", "view": "PA"}


def test_a_line_holds_its_slots_and_is_read_by_the_models_room(tmp_path):
    turns = (Turn("Where is the heart?", f"At {box_slot('heart')}.", "q1/a2"),)
    boxes = {"heart": ((0.25, 0.4, 0.7, 0.9), (0.1, 0.1, 0.2, 0.2))}
    line = make_line(
        "r1", "anatomical_grounding", IMAGE, turns, boxes=boxes, labels=["Edema"], facts=["f1"], target="heart"
    )
    write_lines(tmp_path / "train.jsonl", [line])
    assert json.loads((tmp_path / "train.jsonl").read_text()) == {
        "sample_id": "r1", "task": "anatomical_grounding", "source": "own", "subject_id": "p", "study_id": "s",
        "image_id": "007", "split": "train", "pass": 0, "asked": "heart",
        "turns": [{"question": "Where is the heart?", "answer": "At <box:heart>.", "wording": "q1/a2"}],
        "boxes": {"heart": [[0.25, 0.4, 0.7, 0.9], [0.1, 0.1, 0.2, 0.2]]}, "labels": ["Edema"], "mask_ids": [],
        "facts": ["f1"], "engine": "",
    }  # fmt: skip
    (sample,) = read_samples(tmp_path / "train.jsonl")
    said = sample.answer(0, CONVENTIONS["unit"], InputSize(512, 512))
    assert said == "At [0.25, 0.40, 0.70, 0.90] and [0.10, 0.10, 0.20, 0.20]."


@pytest.mark.parametrize("name", ["", "a<b", "a>"])
def test_a_name_that_would_end_its_slot_is_refused(name):
    with pytest.raises(ValueError, match="not a valid name of boxes"):
        box_slot(name)


def test_boxes_become_fractions_of_their_picture_and_are_clipped():
    found = unit_boxes(np.array([[-10.0, 50.0, 100.0, 500.0]]), 400, 200)
    np.testing.assert_array_equal(found, [[0.0, 0.125, 0.5, 1.0]])


def test_a_box_that_is_flat_once_written_has_no_area():
    boxes = np.array([[0.1, 0.1, 0.104, 0.5], [0.1, 0.1, 0.106, 0.5], [0.2, 0.3, 0.4, 0.304]])
    assert survive_rounding(boxes).tolist() == [False, True, False]


def test_the_area_of_many_boxes_is_that_of_their_written_corners():
    rng = np.random.default_rng(7)
    low = rng.uniform(0, 1, (20_000, 2))
    boxes = np.concatenate([low, low + rng.uniform(-0.005, 0.02, (20_000, 2))], axis=1)
    boxes[:5000] = np.round(boxes[:5000] * 200) / 200  # halves of what is written
    written = np.vectorize(round_coordinate)(boxes)
    wanted = (written[:, 2:] > written[:, :2]).all(axis=1)
    assert 5000 < wanted.sum() < 15_000
    np.testing.assert_array_equal(survive_rounding(boxes), wanted)
    sizes = rng.integers(100, 4000, (20_000, 2))
    each = [unit_boxes(3000 * box, *size)[0] for box, size in zip(boxes[:100], sizes, strict=False)]
    np.testing.assert_array_equal(unit_boxes(3000 * boxes[:100], sizes[:100, 0], sizes[:100, 1]), each)
    assert [round_coordinate(0.125), round_coordinate(0.375)] == [0.12, 0.38]  # exact halves


def test_the_largest_box_is_told_first():
    boxes = np.array([[0.5, 0.5, 0.6, 0.6], [0.0, 0.0, 0.5, 0.5], [0.0, 0.2, 0.1, 0.3]])
    expected = ((0.0, 0.0, 0.5, 0.5), (0.0, 0.2, 0.1, 0.3), (0.5, 0.5, 0.6, 0.6))
    assert sort_by_area(boxes)[0] == expected[0]
    assert sort_by_area(boxes[::-1]) == sort_by_area(boxes)


sides = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)


@pytest.mark.slow
@given(st.lists(st.tuples(sides, sides), min_size=1, max_size=9))
@settings(max_examples=2000, deadline=None)
def test_written_boxes_are_read_back_within_half_a_step(drawn):
    boxes = np.array([(x[0], y[0], x[1], y[1]) for x, y in drawn])
    boxes = boxes[survive_rounding(boxes)]
    for name in ("unit", "unit_short"):
        how, seen = CONVENTIONS[name], InputSize(512, 512)
        if len(boxes):
            found = read_boxes(f"It is at {how.write_list(boxes.tolist(), seen)}.", how, seen)
            assert found.notes == ()
            np.testing.assert_allclose(found.boxes, boxes, atol=0.005 + 1e-12)
