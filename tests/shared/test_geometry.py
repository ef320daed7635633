"""Geometry: frame and original pixels map to each other, and boxes cover exactly the defined pixels."""

import cv2
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cxr.geometry.affine import FITS, fit_affine, points_to_frame, points_to_original, to_frame, to_original
from cxr.geometry.boxes import box_iou, clip_boxes, suppress_overlaps
from cxr.geometry.masks import component_boxes, largest_component, resize_mask

SIZE = 128
sides = st.integers(20, 700)
fits = st.sampled_from(FITS)


@given(sides, sides, fits)
def test_the_centre_stays_and_the_whole_picture_is_where_the_fit_says(rows, columns, fit):
    affine = fit_affine((rows, columns), SIZE, fit)
    centre = points_to_original(np.array([[SIZE / 2, SIZE / 2]]), affine)
    assert np.allclose(centre, [[columns / 2, rows / 2]])
    corners = points_to_frame(np.array([[0.0, 0.0], [columns, rows]]), affine)
    width, height = corners[1] - corners[0]
    if fit == "stretch":
        assert np.allclose(corners, [[0, 0], [SIZE, SIZE]])
    else:
        assert width / height == pytest.approx(columns / rows)
        assert (max if fit == "pad" else min)(width, height) == pytest.approx(SIZE)


def test_an_unknown_fit_is_refused():
    with pytest.raises(ValueError, match="pad, stretch, crop"):
        fit_affine((10, 10), SIZE, "squeeze")


@given(sides, sides, fits, st.lists(st.tuples(st.floats(-50, 700), st.floats(-50, 700)), min_size=1, max_size=5))
def test_points_go_there_and_back(rows, columns, fit, points):
    affine = fit_affine((rows, columns), SIZE, fit)
    points = np.array(points)
    assert np.allclose(points_to_frame(points_to_original(points, affine), affine), points, atol=1e-9)


def nearest_by_definition(
    image: np.ndarray, affine: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return (the value under each pixel's centre, 0 outside; bool: the centre is well inside one pixel)."""
    x = affine[0, 0] * (np.arange(shape[1]) + 0.5) + affine[0, 2]
    y = affine[1, 1] * (np.arange(shape[0]) + 0.5) + affine[1, 2]
    inside = ((y >= 0) & (y < image.shape[0]))[:, None] & ((x >= 0) & (x < image.shape[1]))[None]
    rows, columns = (np.clip(np.floor(v).astype(int), 0, n - 1) for v, n in zip((y, x), image.shape, strict=True))
    away_y, away_x = (np.abs(v - np.rint(v)) > 0.05 for v in (y, x))
    return np.where(inside, image[np.ix_(rows, columns)], 0), away_y[:, None] & away_x[None]


@settings(deadline=None, max_examples=60)
@given(sides, sides, fits, st.integers(0, 2**32 - 1))
def test_masks_are_read_at_the_pixel_under_the_centre(rows, columns, fit, seed):
    affine = fit_affine((rows, columns), SIZE, fit)
    rng = np.random.default_rng(seed)
    mask = (rng.random((rows, columns)) < 0.5).astype(np.uint8)
    expected, certain = nearest_by_definition(mask, affine, (SIZE, SIZE))
    assert np.array_equal(to_frame(mask, affine, SIZE, nearest=True)[certain], expected[certain])
    frame = (rng.random((SIZE, SIZE)) < 0.5).astype(np.uint8)
    inverse = cv2.invertAffineTransform(affine)
    expected, certain = nearest_by_definition(frame, inverse, (rows, columns))
    assert np.array_equal(to_original(frame, affine, (rows, columns))[certain], expected[certain])


@settings(deadline=None, max_examples=60)
@given(st.integers(SIZE, 700), st.integers(SIZE, 700), fits, st.integers(0, 2**32 - 1))
def test_masks_come_back_where_original_pixels_are_no_larger(rows, columns, fit, seed):
    """A frame's mask survives the way to original pixels and back, because centres move by less than half a pixel."""
    affine = fit_affine((rows, columns), SIZE, fit)
    assume(min(affine[0, 0], affine[1, 1]) >= 1)
    mask = (np.random.default_rng(seed).random((SIZE, SIZE)) < 0.5).astype(np.uint8)
    back = to_frame(to_original(mask, affine, (rows, columns)), affine, SIZE, nearest=True)

    def certain(scale: float, shift: float, length: int) -> np.ndarray:
        place = scale * (np.arange(SIZE) + 0.5) + shift
        again = (np.floor(place) + 0.5 - shift) / scale
        off_ties = (np.abs(place - np.rint(place)) > 0.05) & (np.abs(again - np.rint(again)) > 0.05)
        return off_ties & (place >= 0) & (place < length)

    sure = certain(affine[1, 1], affine[1, 2], rows)[:, None] & certain(affine[0, 0], affine[0, 2], columns)[None]
    assert np.array_equal(back[sure], mask[sure])


@pytest.mark.parametrize("fit", FITS)
def test_masks_of_real_sizes_come_back(fit):
    for shape in ((2544, 3056), (3056, 2544), (1024, 1024), (2022, 1736)):
        affine = fit_affine(shape, 512, fit)
        shown = to_frame(np.ones(shape, np.uint8), affine, 512, nearest=True)
        mask = cv2.circle(np.zeros((512, 512), np.uint8), (200, 260), 90, 1, -1) & shown
        back = to_frame(to_original(mask, affine, shape), affine, 512, nearest=True)
        assert (mask & back).sum() / (mask | back).sum() > 0.999


def smooth(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 128 + 60 * np.sin(2 * np.pi * x) * np.cos(2 * np.pi * y) + 40 * np.sin(5 * x + 3 * y)


@pytest.mark.parametrize(
    "shape", [(512, 512), (2544, 3056), (3056, 2544), (700, 300), (200, 260), (300, 2000), (60, 61)]
)
@pytest.mark.parametrize("fit", FITS)
def test_a_smooth_picture_is_resampled_truly(shape, fit):
    rows, columns = shape
    size = 512
    longest = max(shape)
    y, x = np.mgrid[:rows, :columns] + 0.5
    image = smooth(x / longest, y / longest).astype(np.float32)
    affine = fit_affine(shape, size, fit)
    frame = to_frame(image, affine, size)
    v, u = np.mgrid[:size, :size] + 0.5
    places = points_to_original(np.stack([u.ravel(), v.ravel()], 1), affine)
    expected = smooth(places[:, 0] / longest, places[:, 1] / longest).reshape(size, size)
    inside = (places >= 0).all(axis=1) & (places < [columns, rows]).all(axis=1)
    inside = inside.reshape(size, size)
    assert not frame[~inside].any()
    # Half an original pixel of slope where the border is repeated or where the picture is coarser than the frame.
    tolerance = 0.5 if min(shape) >= size else 1.2 * 600 * 0.5 / longest
    assert np.abs(frame - expected)[inside].max() < tolerance


@pytest.mark.parametrize("fit", FITS)
def test_shrinking_skips_no_pixel(fit):
    """Lines of one pixel keep their mean brightness, also along an axis that shrinks while the other grows."""
    image = np.zeros((2000, 300), np.uint8)
    image[::2] = 200
    frame = to_frame(image, fit_affine(image.shape, 512, "stretch"), 512)
    assert np.abs(frame.astype(int) - 100).max() <= 30  # 3.9 lines per pixel, of which 1 to 3 are bright
    assert frame.mean() == pytest.approx(100, abs=1)


def test_an_edge_keeps_its_brightness_when_a_small_picture_grows():
    frame = to_frame(np.full((100, 80), 200, np.uint8), fit_affine((100, 80), 512, "pad"), 512)
    assert set(np.unique(frame)) == {0, 200}
    assert (frame > 0).sum() == 512 * round(512 * 0.8)


corner = st.one_of(st.floats(-20, 30), st.integers(-3, 15).map(lambda n: n + 0.5), st.just(float("nan")))


@given(st.lists(st.tuples(corner, corner, corner, corner), max_size=6), st.integers(1, 12), st.integers(1, 12))
def test_boxes_cover_the_pixels_whose_centres_they_hold(boxes, height, width):
    pixels = clip_boxes(np.array(boxes).reshape(-1, 4), height, width)
    assert pixels.shape == (len(boxes), 4)
    assert pixels.dtype == np.int64
    for (x1, y1, x2, y2), (left, top, right, bottom) in zip(boxes, pixels, strict=True):
        covered = {
            (x, y) for x in range(width) for y in range(height) if x1 <= x + 0.5 < x2 and y1 <= y + 0.5 < y2
        }  # half-open; a comparison with NaN is false
        assert {(x, y) for x in range(left, right) for y in range(top, bottom)} == covered
        assert 0 <= left <= right <= width
        assert 0 <= top <= bottom <= height


def test_infinite_and_huge_boxes_are_clipped():
    infinite = float("inf")
    boxes = np.array([[-infinite, -infinite, infinite, infinite], [1e300, 1e300, 2e300, 2e300], [5, 5, 2, 2]])
    whole, far, turned = clip_boxes(boxes, 10, 20)
    assert whole.tolist() == [0, 0, 20, 10]
    assert (far[2] - far[0]) * (far[3] - far[1]) == 0
    assert (turned[2] - turned[0]) * (turned[3] - turned[1]) == 0


# Boxes that overlap


def pixels(box) -> set:
    """An independent oracle: the unit pixels of a box with integer corners."""
    return {(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3])}


corner = st.integers(0, 6)
whole_box = st.tuples(corner, corner, corner, corner).map(
    lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]) + 1, max(b[1], b[3]) + 1)
)


@given(st.lists(whole_box, max_size=5), st.lists(whole_box, max_size=5))
def test_iou_counts_pixels(first, second):
    found = box_iou(np.array(first, float).reshape(-1, 4), np.array(second, float).reshape(-1, 4))
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            assert found[i, j] == len(pixels(a) & pixels(b)) / len(pixels(a) | pixels(b))


def test_iou_of_boxes_without_area_is_zero():
    assert box_iou(np.array([[1.0, 1, 1, 4]]), np.array([[1.0, 1, 1, 4], [0, 0, 4, 4]])).tolist() == [[0.0, 0.0]]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(whole_box, st.integers(1, 4), st.integers(0, 2)), max_size=9),
    st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 1.0]),
)
def test_suppression_is_the_greedy_rule(rows, iou):
    """Oracle: walk the boxes from the most preferred one; a box stays unless one of its class that stayed overlaps."""
    boxes = np.array([row[0] for row in rows], float).reshape(-1, 4)
    confidence = np.array([row[1] / 4 for row in rows])
    classes = np.array([row[2] for row in rows], int)
    stay = []
    for index in sorted(range(len(rows)), key=lambda i: (-rows[i][1], rows[i][0], rows[i][2])):
        a = pixels(rows[index][0])
        rivals = [pixels(rows[other][0]) for other in stay if rows[other][2] == rows[index][2]]
        if all(len(a & b) / len(a | b) <= iou for b in rivals):
            stay.append(index)
    kept = suppress_overlaps(boxes, confidence, classes, iou)
    # Equal rows are interchangeable: compare their contents, not their indices.
    assert [rows[i] for i in kept] == [rows[i] for i in stay]


# Components


def square(x1: int, y1: int, x2: int, y2: int) -> np.ndarray:
    mask = np.zeros((64, 64), bool)
    mask[y1:y2, x1:x2] = True
    return mask


def test_a_mask_is_boxed_part_by_part():
    mask = square(0, 0, 10, 10) | square(20, 30, 40, 60) | square(50, 0, 52, 2)
    assert component_boxes(mask, 64).tolist() == [[20, 30, 40, 60], [0, 0, 10, 10]]
    assert component_boxes(mask).tolist() == [[20, 30, 40, 60], [0, 0, 10, 10], [50, 0, 52, 2]]
    assert component_boxes(square(50, 0, 52, 2), 64).tolist() == [[50, 0, 52, 2]]
    assert component_boxes(np.zeros((64, 64), bool)).shape == (0, 4)


def test_parts_that_touch_by_a_corner_are_one():
    assert component_boxes(square(0, 0, 4, 4) | square(4, 4, 6, 6)).tolist() == [[0, 0, 6, 6]]


def test_the_largest_part_stays_without_its_holes():
    ring = square(10, 10, 30, 30) & ~square(15, 15, 20, 20)
    assert np.array_equal(largest_component(ring | square(40, 40, 50, 50)), square(10, 10, 30, 30))
    assert not largest_component(np.zeros((64, 64), bool)).any()


def test_resizing_takes_the_nearest_pixel():
    mask = np.random.default_rng(0).random((512, 512)) > 0.5
    assert (resize_mask(mask, 1024) == np.kron(mask, np.ones((2, 2), bool))).all()
    assert (resize_mask(mask, 256) == mask[::2, ::2]).all()
    third = mask[:9, :9]
    assert (resize_mask(third, 3) == third[::3, ::3]).all()
    assert resize_mask(mask, 512) is not None
