"""Answers of models are read in every form that they come in; none raises an error, none is evaluated."""

import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cxr.vlm.conventions import CONVENTIONS, InputSize
from cxr.vlm.reading import MOST_BOXES, read_boxes

SEEN = InputSize(640, 420)
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
    ("<think>maybe [1, 2, 3, 4]? no.</think>\n[100, 200, 300, 400]", ONE),
    ("<thinking>[1, 2, 3, 4]</thinking>[100, 200, 300, 400]<reflection>or [5, 6, 7, 8]</reflection>", ONE),
    ("[THINK][1, 2, 3, 4][/THINK][100, 200, 300, 400]", ONE),
    ("◁think▷[1, 2, 3, 4]◁/think▷[100, 200, 300, 400]", ONE),
    ("<unused94>thought\n[1, 2, 3, 4]<unused95>[100, 200, 300, 400]", ONE),
    ("maybe [1, 2, 3, 4]\n</think>\n[100, 200, 300, 400]", ONE),  # the prompt opened it
    ('{"x": 100, "y": 200, "width": 200, "height": 200}', ONE),
    ('{"x": 100, "y": 200, "w": 200, "h": 200}', ONE),
    ('{"width": 200, "height": 200, "x": 100, "y": 200}', ONE),
    ('{"x": 100, "y": 200, "label": "nodule, 5 mm", "width": 200, "height": 200}', ONE),
    ('{"left": 100, "top": 200, "width": 200, "height": 200}', ONE),
    ('{"left": 100, "top": 200, "right": 300, "bottom": 400}', ONE),
    ('{"x2": 300, "y2": 400, "x1": 100, "y1": 200}', ONE),
    ('{"cx": 200, "cy": 300, "w": 200, "h": 200}', ONE),
    ('{"x_center": 200, "y_center": 300, "width": 200, "height": 200}', ONE),
    ('{"bbox": {"x": "100", "y": "200", "width": "200", "height": "200"}}', ONE),
    ("x: 100, y: 200, width: 200, height: 200", ONE),
    ('[{"x": 100, "y": 200, "width": 200, "height": 200}, {"x": 500, "y": 600, "width": 200, "height": 200}]', TWO),
    ('<think>{"x": 1, "y": 2, "width": 3, "height": 4}</think>{"x": 100, "y": 200, "width": 200, "height": 200}', ONE),
    ("[10%, 20%, 30%, 40%]", ONE),
    ("[10.0 %, 20.0 %, 30.0 %, 40.0 %]", ONE),
    ('{"bbox_2d": ["10%", "20%", "30%", "40%"]}', ONE),
    ("[10, 20, 30, 40]%", ONE),
    ("(10%, 20%), (30%, 40%)", ONE),
    ("10% 20% 30% 40%", ONE),
    ("box: 10%, 20%, 30%, 40%", ONE),
    ("[10%, 200, 30%, 400]", ONE),
    ('{"x": "10%", "y": "20%", "width": "20%", "height": "20%"}', ONE),
    ('{"x1": 10%, "y1": 200, "x2": 300, "y2": 40%}', ONE),
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
    ("About 45%.", "count"),
    ("<think>[1, 2, 3, 4]</think>", "nothing"),
    ("<think>[1, 2, 3, 4]</think> It is not there.", "nothing"),
    ('{"x": 100, "y": 200, "width": 0, "height": 200}', "zero_area"),
    (json.dumps([{"bbox_2d": [1, 2, 3, 4 + n]} for n in range(MOST_BOXES + 1)]), "too_many"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "boxes"), FORMS)
def test_forms(text, boxes):
    reading = read_boxes(text, GRID, SEEN)
    assert reading.outcome == "boxes", reading
    np.testing.assert_allclose(reading.boxes * 1000, boxes, atol=1e-9)


def test_a_named_box_and_a_percentage_mean_the_same_under_every_convention():
    seen = InputSize(448, 364)
    box = np.array([0.25, 0.5, 0.5, 0.75])
    for convention in CONVENTIONS.values():
        width, height = convention.sides(seen)[:2]
        x, y = 0.25 * width, 0.5 * height
        for text in (
            f'{{"x": {x}, "y": {y}, "width": {x}, "height": {y / 2}}}',
            f'{{"x": {x}, "y": {y}, "width": "25%", "height": "25%"}}',
            '{"left": "25%", "top": "50%", "right": "50%", "bottom": "75%"}',
            "[50%, 25%, 75%, 50%]" if convention.y_first else "[25%, 50%, 50%, 75%]",
        ):
            np.testing.assert_allclose(read_boxes(text, convention, seen).boxes, [box], atol=1e-12)


def test_reasoning_that_never_ends_is_read_as_before():
    assert len(read_boxes("<think>It may be [100, 200, 300, 400]", GRID, SEEN).boxes) == 1


@pytest.mark.parametrize(
    "form", ["[%d, 200, 300, 400]", '{"bbox_2d": [%d, 200, 300, 400]}', "<loc0100><loc%04d><loc0300><loc0400>"]
)
def test_a_box_that_a_model_repeats_without_end_is_one_box(form):
    repeated = read_boxes(" ".join([form % 100] * 150), GRID, SEEN)
    assert (repeated.outcome, len(repeated.boxes), repeated.notes) == ("boxes", 1, ("repeated",))
    assert np.array_equal(repeated.boxes, read_boxes(form % 100, GRID, SEEN).boxes)
    few = read_boxes(" ".join([form % 100] * MOST_BOXES), GRID, SEEN)
    assert (len(few.boxes), few.notes) == (MOST_BOXES, ())
    many = read_boxes(" ".join(form % (number % MOST_BOXES) for number in range(150)), GRID, SEEN)
    assert len(many.boxes) == MOST_BOXES
    assert read_boxes(" ".join(form % number for number in range(150)), GRID, SEEN).reason == "too_many"


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
