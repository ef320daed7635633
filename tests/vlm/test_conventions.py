"""A perfect model scores 100 under its own convention and not under another; unions of boxes are exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxr.base.errors import UserError
from cxr.geometry.unions import EDGES_PER_CHUNK, MAX_COLUMNS, union_iou, union_ious, union_overlap, union_overlaps
from cxr.vlm.conventions import CONVENTIONS, PROBED_CONVENTIONS, InputSize, find_convention, localization_question
from cxr.vlm.reading import read_boxes

SEEN = InputSize(644, 420)
"""640 x 427 pixels as a processor with patches of 28 sees them."""


def drawn() -> np.ndarray:
    """200 boxes on the grid of 1000, none square on the diagonal."""
    rng = np.random.default_rng(7)
    found = []
    while len(found) < 200:
        x1, y1 = rng.integers(0, 700, 2)
        w, h = rng.integers(80, 300, 2)
        if abs(int(x1) - int(y1)) > 120 and abs(int(w) - int(h)) > 40:
            found.append((x1, y1, min(x1 + w, 1000), min(y1 + h, 1000)))
    return np.array(found)


def mean_iou(written: str, read: str) -> float:
    scores = []
    for box in drawn():
        text = CONVENTIONS[written].answer([box / 1000], SEEN)
        reading = read_boxes(text, CONVENTIONS[read], SEEN)
        found = np.rint(reading.boxes * 1000).astype(int)
        scores.append(union_iou(found, box[None]))
    return float(np.mean(scores))


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_perfect_model_is_perfect_under_its_own_convention(name):
    assert mean_iou(name, name) == 1.0 if name != "pixels_resized" else mean_iou(name, name) > 0.98


@pytest.mark.parametrize(
    ("written", "read"), [(a, b) for a in PROBED_CONVENTIONS for b in PROBED_CONVENTIONS if a != b]
)
def test_it_is_poor_under_another(written, read):
    assert mean_iou(written, read) < 0.30


def test_pixels_read_on_a_grid_of_1000_give_what_the_specification_says():
    lesion = np.array([200, 200, 800, 800])
    text = CONVENTIONS["pixels_resized"].answer([lesion / 1000], InputSize(512, 512))
    found = np.rint(read_boxes(text, CONVENTIONS["grid1000"], InputSize(512, 512)).boxes * 1000).astype(int)
    assert round(union_iou(found, lesion[None]), 3) == 0.107
    small = np.array([300, 300, 700, 700])
    text = CONVENTIONS["pixels_resized"].answer([small / 1000], InputSize(256, 256))
    found = np.rint(read_boxes(text, CONVENTIONS["grid1000"], InputSize(256, 256)).boxes * 1000).astype(int)
    assert union_iou(found, small[None]) == 0


def test_answers_are_written_in_one_form():
    box = (0.1, 0.2, 0.3, 0.4)
    assert CONVENTIONS["grid1000"].answer([box], SEEN) == '{"bbox_2d": [100, 200, 300, 400]}'
    assert CONVENTIONS["yx1000"].answer([box], SEEN) == '{"box_2d": [200, 100, 400, 300]}'
    assert CONVENTIONS["pixels_resized"].answer([box], SEEN) == '{"bbox_2d": [64, 84, 193, 168]}'
    assert CONVENTIONS["unit"].answer([box, box], SEEN) == (
        '[{"bbox_2d": [0.100, 0.200, 0.300, 0.400]}, {"bbox_2d": [0.100, 0.200, 0.300, 0.400]}]'
    )


def test_boxes_stand_in_a_sentence():
    boxes = [(0.0, 0.125, 0.3, 1.0), (0.1, 0.2, 0.375, 0.4), (0.5, 0.5, 0.6, 0.6)]
    unit, short, grid = (CONVENTIONS[name] for name in ("unit", "unit_short", "grid1000"))
    assert unit.write_list(boxes[:1], SEEN) == "[0.00, 0.12, 0.30, 1.00]"  # an exact half goes to the even digit
    assert unit.write_list(boxes[:2], SEEN) == "[0.00, 0.12, 0.30, 1.00] and [0.10, 0.20, 0.38, 0.40]"
    assert short.write_list(boxes[:1], SEEN) == "[0.0, 0.12, 0.3, 1.0]"
    assert grid.write_list(boxes, SEEN) == "[0, 125, 300, 1000], [100, 200, 375, 400] and [500, 500, 600, 600]"
    said = read_boxes(f"Left at {unit.write_list(boxes, SEEN)}.", unit, SEEN)
    np.testing.assert_allclose(said.boxes, boxes, atol=0.005)


def test_the_question_names_the_convention_and_leaves_braces_alone():
    asked = localization_question("the {form} of {query}", CONVENTIONS["yx1000"])
    assert asked.startswith("the {form} of {query} Answer with")
    assert '{"box_2d": [y1, x1, y2, x2]}' in asked
    assert asked.endswith("in the order y1, x1, y2, x2.")
    with pytest.raises(UserError, match="convention is 'pixels': choose one of grid1000"):
        find_convention("pixels")


boxes = st.lists(
    st.tuples(*[st.integers(0, 60)] * 4).map(lambda b: (*map(min, b[:2], b[2:]), *map(max, b[:2], b[2:]))), max_size=8
)


@given(boxes, boxes)
@settings(max_examples=300, deadline=None)
def test_unions_equal_a_raster(first, second):
    planes = []
    for part in (first, second):
        plane = np.zeros((60, 60), bool)
        for x1, y1, x2, y2 in part:
            plane[y1:y2, x1:x2] = True
        planes.append(plane)
    wanted = int((planes[0] & planes[1]).sum()), int((planes[0] | planes[1]).sum())
    one, other = (np.array(part, int).reshape(-1, 4) for part in (first, second))
    assert union_overlap(one, other) == wanted


@given(st.lists(st.tuples(boxes, boxes), max_size=12), st.integers(-70, 70), st.sampled_from([1, 40, 10**6]))
@settings(max_examples=60, deadline=None)
def test_unions_of_many_pairs_at_once_equal_a_raster_for_each(pairs, shift, scale):
    """Also left of and above 0, and wider than rows of bits."""
    wanted = []
    for pair in pairs:
        planes = np.zeros((2, 60, 60), bool)
        for plane, part in zip(planes, pair, strict=True):
            for x1, y1, x2, y2 in part:
                plane[y1:y2, x1:x2] = True
        wanted.append([int((planes[0] & planes[1]).sum()) * scale**2, int((planes[0] | planes[1]).sum()) * scale**2])
    first, second = ([(np.array(pair[at], int).reshape(-1, 4) + shift) * scale for pair in pairs] for at in (0, 1))
    assert union_overlaps(first, second).tolist() == wanted
    assert union_ious(first, second).tolist() == [one / other if other else 0 for one, other in wanted]


def test_unions_of_chunks_are_those_of_their_pairs():
    rng = np.random.default_rng(3)
    sets = []
    for _ in range(2):
        low = [rng.integers(0, 900, (int(count), 2)) for count in rng.integers(0, 90, 120)]
        sets.append([np.concatenate([one, one + rng.integers(0, 200, one.shape)], axis=1) for one in low])
    first, second = sets
    assert 2 * sum(map(len, [*first, *second])) > 3 * EDGES_PER_CHUNK
    found = union_overlaps(first, second).tolist()
    assert found == [list(union_overlap(*pair)) for pair in zip(first, second, strict=True)]
    far = [np.array([[0, 0, 1, 1], [MAX_COLUMNS, 0, MAX_COLUMNS + 5, 3]])]
    assert union_overlaps([*first, *far], [*second, *far]).tolist() == [*found, [16, 16]]
    with pytest.raises(ValueError, match="not 120 and 119"):
        union_overlaps(first, second[1:])


def test_unions_of_fractions_are_refused():
    with pytest.raises(ValueError, match="must be integers"):
        union_overlap(np.array([[0.1, 0, 1, 1]]), np.zeros((0, 4), int))
    with pytest.raises(ValueError, match="must be integers"):
        union_ious([np.zeros((0, 4))], [np.array([[0.1, 0, 1, 1]])])
