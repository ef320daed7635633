"""Components, boxes and attributes against scipy's labels and hull, closed forms and counts of real masks (T1, T2)."""

import csv
import json
import math

import cv2
import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial import ConvexHull

from cxr.medground.logic.components import contrast_and_texture, find_components, find_instances
from cxr.medground.logic.facts import Planes
from cxr.medground.regions.make_regions import box_on_grid, measure_image
from medground_data import LESIONS, regions_options

EIGHT = np.ones((3, 3))


def labelled(mask):
    """Return {box: area} of a mask's components by another library, and by the count of its numbers."""
    numbers, count = ndimage.label(mask, EIGHT)
    found = []
    for at, (rows, columns) in enumerate(ndimage.find_objects(numbers), 1):
        pixels = numbers[rows, columns] == at
        found.append(((columns.start, rows.start, columns.stop, rows.stop), int(pixels.sum())))
    assert len(found) == count
    return sorted(found)


def test_lesions_of_the_radiologists_have_the_counted_components(shared):
    folder, total, large = shared / "data/covid", 0, 0
    with open(folder / "covid.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if "lung_right" in (row["masks"] or "")]
    assert len(rows) == 18
    for row in rows:
        for name, path in json.loads(row["masks"]).items():
            mask = cv2.imread(str(folder / path), cv2.IMREAD_GRAYSCALE) > 0
            found = find_components(mask)
            assert sorted((one.box, one.area) for one in found) == labelled(mask)
            if name in LESIONS and name != "pneumothorax":
                total += len(found)
                large += sum(one.area >= 20 for one in found)
    assert (total, large) == (42, 41)


def test_nuclei_have_the_counted_components_and_instances(shared):
    folder = shared / "data/nuclei"
    large = 0
    for path in sorted(folder.glob("monuseg/*/labelcol/*.png")):
        mask = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) > 0
        found = find_components(mask)
        assert sorted((one.box, one.area) for one in found) == labelled(mask)
        large += sum(one.area >= 20 for one in found)
    assert large == 4448
    drawn = cv2.imread(str(folder / "stardist/mask2d.tif"), cv2.IMREAD_UNCHANGED)
    assert sum(one.area >= 20 for one in find_components(drawn > 0)) == 102
    assert len(find_instances(drawn, drawn > 0)) == 125
    assert find_instances(np.zeros((8, 8), np.uint16), np.zeros((8, 8), bool)) == []


@pytest.mark.parametrize("side", [128, 250, 256, 512, 1000])
def test_the_grid_holds_every_box_and_is_never_empty(side):
    rng = np.random.default_rng(side)
    for _ in range(300):
        x1, y1 = rng.integers(0, side, 2)
        x2, y2 = rng.integers(x1 + 1, side + 1), rng.integers(y1 + 1, side + 1)
        found = box_on_grid((x1, y1, x2, y2), side)
        exact = [math.floor(1000 * x1 / side), math.floor(1000 * y1 / side)]
        assert found == (*exact, math.ceil(1000 * int(x2) / side), math.ceil(1000 * int(y2) / side))
        assert 0 <= found[0] < found[2] <= 1000
        assert 0 <= found[1] < found[3] <= 1000


def draw_ellipse(radii, turn, side=400):
    """Return the component of an ellipse whose pixels' centres lie inside it."""
    y, x = np.mgrid[:side, :side] + 0.5 - side / 2
    a, b = x * math.cos(turn) + y * math.sin(turn), -x * math.sin(turn) + y * math.cos(turn)
    (one,) = find_components((a / radii[0]) ** 2 + (b / radii[1]) ** 2 <= 1)
    return one


@pytest.mark.parametrize("turn", [k * math.pi / 7 for k in range(7)])
@pytest.mark.parametrize("radii", [(60, 60), (80, 40), (120, 24), (150, 30)])
def test_an_ellipse_has_its_closed_form(radii, turn):
    one = draw_ellipse(radii, turn)
    assert one.area == pytest.approx(math.pi * radii[0] * radii[1], rel=0.02)
    assert one.elongation == pytest.approx(1 - radii[1] / radii[0], abs=0.01)
    assert one.solidity == pytest.approx(1, abs=0.03)
    assert one.centroid == pytest.approx((200, 200), abs=0.05)


def test_a_ring_and_a_corner_have_their_closed_forms():
    y, x = np.mgrid[:200, :200] + 0.5 - 100
    (ring,) = find_components((np.hypot(x, y) <= 80) & (np.hypot(x, y) >= 50))
    assert ring.solidity == pytest.approx(1 - 2500 / 6400, rel=0.02)
    corner = np.zeros((100, 100), bool)
    corner[:80, :20] = corner[60:80, :80] = True
    (one,) = find_components(corner)
    assert one.solidity == pytest.approx((80 * 20 + 20 * 60) / (80 * 80 - 60 * 60 / 2), rel=1e-6)


def test_attributes_of_real_nuclei_are_those_of_the_oracle(shared):
    path = sorted((shared / "data/nuclei").glob("monuseg/*/labelcol/*.png"))[0]
    mask = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) > 0
    seen = 0
    for one in find_components(mask):
        if one.area < 20:
            continue
        seen += 1
        y, x = np.nonzero(one.pixels)
        spread = np.linalg.eigvalsh(np.cov(np.stack([x, y]).astype(float), bias=True) + np.eye(2) / 12)
        assert one.elongation == pytest.approx(1 - math.sqrt(spread[0] / spread[1]), abs=1e-9)
        corners = np.concatenate([np.stack([x + a, y + b], axis=1) for a in (0, 1) for b in (0, 1)])
        assert one.solidity == pytest.approx(one.area / ConvexHull(corners).volume, abs=1e-9)
        middle = ndimage.center_of_mass(one.pixels)
        assert one.centroid == pytest.approx((middle[1] + 0.5 + one.box[0], middle[0] + 0.5 + one.box[1]))
    assert seen > 300


def test_compactness_of_a_disc_is_one():
    assert draw_ellipse((80, 80), 0).compactness == pytest.approx(1, abs=0.05)


def test_contrast_is_the_standardised_difference():
    rng = np.random.default_rng(0)
    grey = np.round(rng.normal(100, 10, (200, 200))).astype(np.uint8)
    mask = np.zeros(grey.shape, bool)
    mask[80:120, 80:120] = True
    grey[mask] = np.round(rng.normal(130, 20, int(mask.sum()))).astype(np.uint8)
    (one,) = find_components(mask)
    contrast, texture = contrast_and_texture(one, grey, mask)
    assert contrast == pytest.approx(30 / math.sqrt((100 + 400) / 2), rel=0.06)
    assert texture == pytest.approx(2, rel=0.06)
    # the ring leaves out what another component covers
    other = mask.copy()
    other[:, 120:] = True
    assert contrast_and_texture(one, np.where(other & ~mask, 255, grey).astype(np.uint8), other)[0] > 1


def image(**more):
    return {"image_id": "a", "boxes": None, "extent": [0, 0, 64, 64], "inner": [False] * 4, "anatomy": "none"} | more


def planes(*squares, label="x"):
    mask = np.zeros((64, 64), bool)
    for x1, y1, x2, y2 in squares:
        mask[y1:y2, x1:x2] = True
    return Planes(np.full((64, 64, 3), 9, np.uint8), {label: mask})


def test_small_components_are_dropped_and_open_their_class():
    rows, lost, _ = measure_image(image(), planes((0, 0, 10, 10), (40, 40, 42, 42)), regions_options(), 2026)
    assert [(row["x1"], row["area"], row["open_class"]) for row in rows] == [(0, 100, True)]
    assert [(row["x1"], row["area"], row["reason"]) for row in lost] == [(40, 4, "too_small")]
    rows, *_ = measure_image(image(), planes((0, 0, 30, 30), (40, 40, 42, 42)), regions_options(), 2026)
    assert not rows[0]["open_class"]


def test_a_box_cut_by_a_tiles_edge_is_a_distractor():
    rows, *_ = measure_image(
        image(inner=[True, False, False, False]), planes((0, 0, 10, 10), (30, 30, 40, 40)), regions_options(), 2026
    )
    assert [row["candidate"] for row in rows] == [False, True]


def test_no_more_candidates_than_the_settings_allow():
    many = planes(*((8 * x, 8 * y, 8 * x + 5, 8 * y + 5) for x in range(8) for y in range(8)))
    rows, *_ = measure_image(image(), many, regions_options(), 2026)
    assert (len(rows), sum(row["candidate"] for row in rows)) == (64, 60)
    assert rows == measure_image(image(), many, regions_options(), 2026)[0]
    assert [row["rank_cy"] for row in rows] == list(range(64))


@pytest.mark.parametrize("side", [200, 400])  # numbers of 16 bits and of 32: 40,000 and 160,000 pixels
def test_components_of_small_and_large_masks(side):
    mask = np.ones((side, side), bool)
    mask[:, 9] = False
    for plane in (mask, mask.astype(np.uint8) * 255, mask.T.copy().T):
        found = [(one.box, one.area, int(one.pixels.sum())) for one in find_components(plane)]
        assert found == [
            ((0, 0, 9, side), 9 * side, 9 * side),
            ((10, 0, side, side), (side - 10) * side, (side - 10) * side),
        ]
