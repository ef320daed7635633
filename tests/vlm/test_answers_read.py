"""Answers of models are read in every form that they come in; none raises an error, none is evaluated."""

import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cxr.vlm.conventions import CONVENTIONS, Seen
from cxr.vlm.reading import MOST_BOXES, read_boxes

SEEN = Seen(640, 420)
GRID = CONVENTIONS["grid1000"]
ONE = [[100, 200, 300, 400]]
TWO = [[100, 200, 300, 400], [500, 600, 700, 800]]
FORMS = [
    ('{"bbox_2d": [100, 200, 300, 400]}', ONE),
    ('[{"bbox_2d": [100, 200, 300, 400]}]', ONE),
    ('[{"bbox_2d": [100, 200, 300, 400]}, {"bbox_2d": [500, 600, 700, 800]}]', TWO),
    ('```json\n[{"bbox_2d": [100, 200, 300, 400], "label": "nucleus"}]\n```', ONE),
    ('```\n{"bbox_2d": [100, 200, 300, 400]}\n```', ONE),
    ('{"bbox_2d": [[100, 200, 300, 400], [500, 600, 700, 800]]}', TWO),
    ('{"box_2d": [100, 200, 300, 400]}', ONE),
    ('{"bbox": [100, 200, 300, 400]}', ONE),
    ('{"boxes": [[100, 200, 300, 400], [500, 600, 700, 800]]}', TWO),
    ('{"bboxes": [[100, 200, 300, 400]]}', ONE),
    ("{'bbox_2d': [100, 200, 300, 400]}", ONE),
    ("bbox_2d: [100, 200, 300, 400]", ONE),
    ("bbox = (100, 200, 300, 400)", ONE),
    ("box: 100, 200, 300, 400", ONE),
    ('{"bbox_2d": [100, 200, 300, 400,]}', ONE),
    ('[{"bbox_2d": [100, 200, 300, 400]},]', ONE),
    ('{"bbox_2d": [100 200 300 400]}', ONE),
    ('{"bbox_2d": [100.0, 200.0, 300.0, 400.0]}', ONE),
    ('{"bbox_2d": [1e2, 2e2, 3e2, 4e2]}', ONE),
    ('{"bbox_2d": ["100", "200", "300", "400"]}', ONE),
    ('{"BBox_2D": [100, 200, 300, 400]}', ONE),
    ('{"bbox_2d":[100,200,300,400]}', ONE),
    ('{"label": "box", "bbox_2d": [100, 200, 300, 400]}', ONE),
    ('{"bbox_2d": [100, 200, 300, 400], "confidence": 0.9}', ONE),
    ('{"bbox_2d": [100, 200, 300, 400], "point_2d": [7, 8]}', ONE),
    ('{"answer": {"bbox_2d": [100, 200, 300, 400]}}', ONE),
    ('{"bbox_2d": [100, 200, 300, 400]', ONE),
    ('[{"bbox_2d": [100, 200, 300, 400]}, {"bbox_2d": [500, 60', ONE),
    ('[{"bbox_2d": [100, 200, 300, 400]}, {"bbox', ONE),
    ('{"bbox_2d": [[100, 200], [300, 400]]}', ONE),
    ('{"bbox_2d": [(100, 200), (300, 400)]}', ONE),
    ('{"x1": 100, "y1": 200, "x2": 300, "y2": 400}', ONE),
    ('{"xmin": 100, "ymin": 200, "xmax": 300, "ymax": 400}', ONE),
    ('{"x_min": 100, "y_min": 200, "x_max": 300, "y_max": 400}', ONE),
    ("x1=100, y1=200, x2=300, y2=400", ONE),
    ('[{"x1": 100, "y1": 200, "x2": 300, "y2": 400}, {"x1": 500, "y1": 600, "x2": 700, "y2": 800}]', TWO),
    ("<|box_start|>(100,200),(300,400)<|box_end|>", ONE),
    ("<|object_ref_start|>cell<|object_ref_end|><|box_start|>(100,200),(300,400)<|box_end|>", ONE),
    ("<|box_start|>(100,200),(300,400)<|box_end|><|box_start|>(500,600),(700,800)<|box_end|>", TWO),
    ("<|box_start|>(100, 200), (300, 400)", ONE),
    ("[100, 200, 300, 400]", ONE),
    ("[[100, 200, 300, 400]]", ONE),
    ("[[100, 200, 300, 400], [500, 600, 700, 800]]", TWO),
    ("[100, 200, 300, 400, 500, 600, 700, 800]", TWO),
    ("(100, 200, 300, 400)", ONE),
    ("(100,200),(300,400)", ONE),
    ("<100, 200, 300, 400>", ONE),
    ("100, 200, 300, 400", ONE),
    ("100 200 300 400", ONE),
    ("100;200;300;400", ONE),
    ("The nucleus is at [100, 200, 300, 400].", ONE),
    ("Sure! Here it is:\n\n[100, 200, 300, 400]\n\nLet me know.", ONE),
    ("Answer: [100, 200, 300, 400]", ONE),
    ("Step 1: look at [1, 2, 3, 4]. Answer: [100, 200, 300, 400]", ONE),
    ("The final answer is: 100, 200, 300, 400", ONE),
    ("answer = (100, 200), (300, 400)", ONE),
    ('I see 2 cells. {"bbox_2d": [100, 200, 300, 400]} is the larger one of [7, 8, 9, 10].', ONE),
    ("\ufeff[100, 200, 300, 400]", ONE),
    ("[100,\n200,\n300,\n400]", ONE),
    ("- [100, 200, 300, 400]\n- [500, 600, 700, 800]", TWO),
    ("1) (100, 200, 300, 400)", ONE),
    ("<box>[[100, 200, 300, 400]]</box>", ONE),
    ("<think>Perhaps [5, 5, 6, 6]?</think> Answer: [100, 200, 300, 400]", ONE),
    ("[+100, +200, +300, +400]", ONE),
    ("In boxes: [100, 200, 300, 400] and [500, 600, 700, 800].", TWO),
    ("Its boxes: [100, 200, 300, 400], [500, 600, 700, 800]; no other.", TWO),
    ("Findings and their boxes: mass [100, 200, 300, 400]; nodule [500, 600, 700, 800].", TWO),
]
NONE = [
    "[]",
    "[[]]",
    "{}",
    "```json\n[]\n```",
    '{"bbox_2d": []}',
    '{"bbox_2d": null}',
    '{"boxes": [[]]}',
    "none",
    " None. ",
]
UNREADABLE = [
    ("", "nothing"),
    ("I cannot see it.", "nothing"),
    ("No.", "nothing"),
    ('{"bbox_2d": [NaN, 200, 300, 400]}', "non_finite"),
    ('{"bbox_2d": [100, 200, Infinity, 400]}', "non_finite"),
    ('{"bbox_2d": [1e400, 200, 300, 400]}', "non_finite"),
    ('{"bbox_2d": [null, 200, 300, 400]}', "non_finite"),
    ('{"bbox_2d": [100, 200, 100, 400]}', "zero_area"),
    ('{"bbox_2d": [1200, 200, 1300, 400]}', "zero_area"),
    ('{"bbox_2d": [-5, -5, 0, 0]}', "zero_area"),
    ('{"bbox_2d": [100, 200, 300]}', "count"),
    ("[100, 200, 300]", "count"),
    ("[1, 2, 3, 4, 5]", "count"),
    ("About 45 percent.", "count"),
    (json.dumps([{"bbox_2d": [1, 2, 3, 4 + n]} for n in range(MOST_BOXES + 1)]), "too_many"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "boxes"), FORMS)
def test_forms(text, boxes):
    reading = read_boxes(text, GRID, SEEN)
    assert reading.outcome == "boxes", reading
    np.testing.assert_allclose(reading.boxes * 1000, boxes, atol=1e-9)


def test_there_are_sixty_forms():
    assert len(FORMS) >= 60


@pytest.mark.parametrize("text", NONE)
def test_an_answer_may_say_that_there_is_no_box(text):
    assert read_boxes(text, GRID, SEEN).outcome == "none"


@pytest.mark.parametrize(("text", "reason"), UNREADABLE)
def test_reasons(text, reason):
    reading = read_boxes(text, GRID, SEEN)
    assert (reading.outcome, len(reading.boxes)) == ("unreadable", 0)
    assert reading.reason == reason


def test_tokens_of_paligemma_name_their_own_scale_and_order():
    reading = read_boxes("<loc0256><loc0512><loc0768><loc1023> cell", GRID, SEEN)
    np.testing.assert_allclose(reading.boxes, [[512 / 1024, 256 / 1024, 1023 / 1024, 768 / 1024]])


def test_notes_say_what_was_mended():
    assert read_boxes("[300, 200, 100, 400]", GRID, SEEN).notes == ("swapped",)
    assert read_boxes("[100, 200, 1300, 400]", GRID, SEEN).notes == ("clipped",)
    assert read_boxes("1 2 3 4", GRID, SEEN).notes == ("bare",)
    far = read_boxes("[100, 200, 1300, 400] [0, 0, 3000, 400] [5, 6, 7, 8]", GRID, SEEN)
    assert (far.beyond, far.swapped) == ((False, True, False), (False, False, False))
    np.testing.assert_allclose(far.boxes[1], [0, 0, 1, 0.4])  # kept: each system's scoring says what the mark costs
    some = read_boxes("[[100, 200, 300, 400], [5, 5, 5, 5]]", GRID, SEEN)
    assert (len(some.boxes), some.notes) == (1, ("left_out:zero_area",))


def test_corners_that_are_named_are_never_y_first():
    text = '{"x1": 100, "y1": 200, "x2": 300, "y2": 400}'
    np.testing.assert_allclose(read_boxes(text, CONVENTIONS["yx1000"], SEEN).boxes * 1000, ONE)
    y_first = read_boxes('{"box_2d": [200, 100, 400, 300]}', CONVENTIONS["yx1000"], SEEN)
    np.testing.assert_allclose(y_first.boxes * 1000, ONE)


@given(st.text(alphabet=st.sampled_from(list("[](){}<>,.:;=\"' -+0123456789einfNalxy_2dbox|\n")), max_size=200))
@example("[" * 5000)
@example("<|box_start|>" * 500)
@example("(" * 3000 + "1,2,3,4" + ")" * 3000)
@example("9" * 5000)
@example("bbox:" * 3000)
@settings(max_examples=400, deadline=None)
def test_no_text_raises_and_boxes_are_whole(text):
    for convention in CONVENTIONS.values():
        reading = read_boxes(text, convention, SEEN)
        assert reading.outcome in ("boxes", "none", "unreadable")
        assert (reading.outcome == "boxes") == (len(reading.boxes) > 0) == (not reading.reason)
        assert np.isfinite(reading.boxes).all()
        assert (reading.boxes >= 0).all()
        assert (reading.boxes <= 1).all()
        assert (reading.boxes[:, 2:] > reading.boxes[:, :2]).all()
        assert len(reading.boxes) <= MOST_BOXES


box = st.tuples(*[st.integers(0, 99)] * 4).map(
    lambda b: (b[0] * 10, b[1] * 10, min(1000, b[0] * 10 + 10 + b[2] * 5), min(1000, b[1] * 10 + 10 + b[3] * 5))
)


@given(st.lists(box, min_size=1, max_size=60), st.sampled_from(sorted(CONVENTIONS)), st.text(max_size=30))
@settings(max_examples=300, deadline=None)
def test_what_a_convention_writes_is_read_back(boxes, name, around):
    convention = CONVENTIONS[name]
    fractions = np.array(boxes) / 1000
    text = convention.answer(fractions, SEEN)
    reading = read_boxes(text, convention, SEEN)
    step = 0.5 / convention.sides(SEEN) if not convention.decimals else np.full(4, 0.5 * 10.0**-convention.decimals)
    assert len(reading.boxes) == len(boxes)
    assert (np.abs(reading.boxes - fractions) <= step + 1e-12).all()
    if convention.scale == 1000:
        assert (np.rint(reading.boxes * 1000) == boxes).all()
    assert math.isclose(reading.boxes.sum(), read_boxes(f"Here: {text}", convention, SEEN).boxes.sum())
