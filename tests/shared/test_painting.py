"""Painters of real films on chests whose anatomy is known: where they change, what each does, and what they heed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cxr.base.vocabulary import HEART, LUNGS
from cxr.geometry.boxes import bounding_box
from cxr.imaging.phantom import chest
from cxr.metrics import edits
from cxr.painting import absorption
from cxr.painting.chest import Chest, PaintRequest, Place, Window
from cxr.painting.edema import widen_vessels
from cxr.painting.painters import PAINTERS, region_of
from cxr.painting.pneumothorax import remove_vessels
from cxr.semisyn.editing.lite import read_ranges

RANGES = read_ranges()
IN_LUNGS = [name for name in PAINTERS if name != "cardiomegaly"]
PARTS = {
    "pneumothorax": (0.0, 0.0, 0.8, 0.45),
    "effusion": (0.0, 0.6, 1.0, 1.15),
    "atelectasis": (0.05, 0.55, 0.9, 1.0),
}


@pytest.fixture(scope="module")
def film() -> Chest:
    normal = chest.draw_chest(np.random.default_rng(3), 512, cardiomegaly=False, ap=False)
    return Chest(normal.image.astype(np.float32), *(normal.masks[name] for name in (*LUNGS, HEART)))


def place(film: Chest, painter: str, side: str = "right") -> Place:
    """Return a box in percent of the lung's, from its lateral edge."""
    x1, y1, x2, y2 = bounding_box(film.lung(side))
    left, top, right, bottom = PARTS.get(painter, (0.1, 0.5, 0.9, 0.9))
    left, right = (left, right) if side == "right" else (1 - right, 1 - left)
    wide, tall = x2 - x1, y2 - y1
    return Place((x1 + left * wide, y1 + top * tall, x1 + right * wide, y1 + bottom * tall), side)


def asked(film: Chest, painter: str, words: str = "", side: str = "right", **changes: object) -> PaintRequest:
    places = () if painter == "cardiomegaly" else (place(film, painter, side),)
    ratio = 0.6 if painter == "cardiomegaly" else None
    return PaintRequest(places, words, ratio, RANGES.get(painter, {}) | changes)


def painted(film: Chest, painter: str, *words: str, seed: int = 1, **changes: object):
    return PAINTERS[painter](film, asked(film, painter, *words, **changes), np.random.default_rng(seed))


@pytest.mark.parametrize("painter", PAINTERS)
def test_a_painter_changes_nothing_outside_its_region_and_its_mask_lies_inside(film, painter):
    done, region = painted(film, painter), region_of(painter, film, asked(film, painter))
    difference = np.abs(done.image - film.image)
    assert difference[~region].max() == 0
    assert difference.max() > 0.02
    assert done.lesion.any()
    assert not (done.lesion & ~region).any()
    assert done.image.dtype == np.float32
    assert 0 <= done.image.min() <= done.image.max() <= 1
    json.dumps(done.parameters, default=float)


@pytest.mark.parametrize("painter", PAINTERS)
def test_the_seed_alone_decides_what_is_drawn(film, painter):
    first, second = painted(film, painter), painted(film, painter)
    assert first.image.tobytes() == second.image.tobytes()
    assert first.parameters == second.parameters
    if painter != "cardiomegaly":  # a warp to a ratio draws nothing
        assert (painted(film, painter, seed=2).image != first.image).any()


@pytest.mark.parametrize("painter", IN_LUNGS)
def test_a_box_that_misses_the_lung_changes_nothing(film, painter):
    far = PaintRequest((Place((0.0, 0.0, 20.0, 20.0), "right"),), "", None, RANGES[painter])
    done = PAINTERS[painter](film, far, np.random.default_rng(0))
    np.testing.assert_allclose(done.image, film.image, atol=1e-6)
    assert not done.lesion.any()


def test_absorption_is_the_share_of_what_is_missing_to_water_and_never_darkens():
    level = np.linspace(0, 1, 11, dtype=np.float32)[None]
    found = absorption.brighten(level, np.float32(0.4), white=0.7)
    np.testing.assert_allclose(found, np.where(level < 0.7, level + (0.7 - level) * 0.4, level), atol=1e-6)


@pytest.mark.parametrize(("flat", "expected"), [(0.0, 1.0), (0.5, 0.5)])
def test_flattening_takes_its_share_of_the_detail(flat, expected):
    y, _x = np.mgrid[:256, :256].astype(np.float32)
    ribs = (0.4 + 0.05 * np.sin(2 * np.pi * y / 30)).astype(np.float32)  # longer than vessels, shorter than the base
    density = np.full(ribs.shape, 1e-6, np.float32)
    after = absorption.add_absorption(ribs, density, 1.0, flat, 0.0)
    middle = slice(90, 166), slice(90, 166)
    base = absorption.cv2.GaussianBlur(ribs, (0, 0), absorption.BASE)
    share = (after - base)[middle].std() / (ribs - base)[middle].std()
    assert share == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("at", [(0, 90, 120, 250), (200, 310, 0, 160), (300, 512, 260, 512), (250, 251, 250, 251)])
def test_filters_of_a_part_are_those_of_the_whole_film_there(film, at):
    part, whole = np.zeros(film.image.shape, bool), np.ones(film.image.shape, bool)
    part[at[0] : at[1], at[2] : at[3]] = True
    for name, made in {"vessels": absorption.extract_vessels, "widened": widen_vessels}.items():
        assert np.array_equal(made(film.image, part)[part], made(film.image, whole)[part]), name
    # at the film's own edge sums are taken in another order
    found = remove_vessels(film, part)[part] - remove_vessels(film, whole)[part]
    assert np.abs(found).max() < 1e-6
    assert not np.array_equal(
        absorption.extract_vessels(film.image, part), absorption.extract_vessels(film.image, whole)
    )


def test_a_lesion_is_no_brighter_than_water(film):
    done = painted(film, "consolidation", delta=(0.85, 0.85), flat=(1.0, 1.0), lost=(0.0, 0.0))
    white = absorption.water_brightness(film.image, film.heart)
    grown = done.image > film.image + 0.02
    assert done.image[grown].max() <= white + 0.12  # the film's grain stays


@pytest.mark.parametrize("painter", ["opacity", "consolidation", "edema"])
def test_a_lesion_fills_its_box_and_shows_no_side_of_it(film, painter):
    for seed in range(5):
        done, box = painted(film, painter, seed=seed), np.array(place(film, painter).box)
        label, found = edits.tight_box_inside(box, film.right), edits.tight_box(done.lesion)
        assert edits_iou(label, found) >= 0.75
        assert edits.edge_ratio(255 * (done.image - film.image), box, film.right) <= 0.25


def edits_iou(first: np.ndarray, second: np.ndarray) -> float:
    low, high = np.maximum(first[:2], second[:2]), np.minimum(first[2:], second[2:])
    shared = np.prod(np.clip(high - low, 0, None))
    return shared / (np.prod(first[2:] - first[:2]) + np.prod(second[2:] - second[:2]) - shared)


def test_prompts_are_heeded(film):
    def told(painter: str, words: str, seed: int = 1) -> dict:
        return painted(film, painter, words, seed=seed).parameters["parts"][0]

    plain, glass = (told("opacity", words) for words in ("Opacity.", "Ground-glass opacities."))
    assert glass["delta"] == pytest.approx(0.5 * plain["delta"])
    assert all(told("opacity", "Patchy opacity.", seed)["cores"] >= 3 for seed in range(8))
    assert "net" in told("opacity", "Right lower lobe infiltrate.")
    assert "net" not in plain
    forms = {told("atelectasis", "Linear atelectasis.", seed)["form"] for seed in range(8)}
    assert forms == {"plates"}
    assert {told("atelectasis", "Right lower lobe collapse.", seed)["form"] for seed in range(8)} == {"collapse"}
    assert {told("atelectasis", "Atelectasis.", seed)["form"] for seed in range(8)} == {"plates", "wedge"}
    assert told("edema", "Peribronchial cuffing.")["cuffs"] == 2 * told("edema", "Edema.")["cuffs"]


def test_a_middle_lobe_begins_at_the_minor_fissure(film):
    x1, y1, x2, y2 = bounding_box(film.right)
    row = y1 + 0.5 * (y2 - y1)
    box = (x1 + 5.0, row - 15, x2 - 10.0, row + 90)
    found = {}
    for words in ("Right middle lobe consolidation.", "Right lower lobe consolidation."):
        wish = PaintRequest((Place(box, "right"),), words, None, RANGES["consolidation"])
        found[words] = PAINTERS["consolidation"](film, wish, np.random.default_rng(4)).image - film.image
    middle, lower = found.values()
    above = slice(int(row - 9), int(row - 4)), slice(int(x1 + 40), int(x2 - 60))
    assert np.abs(middle[above]).max() < 1e-3  # (medial, lateral) = (.50, .55): the fissure lies below these rows
    assert np.abs(lower[above]).max() > 0.02


def test_air_beyond_the_pleural_line_is_darker_and_without_vessels(film):
    def fine(image: np.ndarray) -> np.ndarray:
        return absorption.cv2.GaussianBlur(image, (0, 0), 0.7) - absorption.cv2.GaussianBlur(image, (0, 0), 2.0)

    shares, kept = [], []
    for seed in range(6):
        done = painted(film, "pneumothorax", "Right apical pneumothorax.", seed=seed)
        air = absorption.cv2.erode(done.lesion.astype(np.uint8), np.ones((7, 7))) > 0
        shares.append(done.image[air].mean() / film.image[air].mean() - 1)
        kept.append((fine(done.image)[air] ** 2).mean() / (fine(film.image)[air] ** 2).mean())
    assert -0.12 <= min(shares) <= max(shares) <= -0.02
    assert np.median(kept) <= 0.5


def test_an_effusion_hides_the_diaphragm(film):
    rows = absorption.cv2.Sobel(absorption.cv2.GaussianBlur(film.image, (0, 0), 2.0), absorption.cv2.CV_32F, 0, 1)
    lowest = film.right & ~np.roll(film.right, -1, axis=0)  # the lung's lowest pixels
    x1, y1, x2, y2 = bounding_box(film.right)
    lowest[: (y1 + 2 * y2) // 3] = False
    lowest[:, : x1 + 6] = lowest[:, (x1 + x2) // 2 :] = False
    left = []
    for seed in range(6):
        after = painted(film, "effusion", seed=seed).image
        new = absorption.cv2.Sobel(absorption.cv2.GaussianBlur(after, (0, 0), 2.0), absorption.cv2.CV_32F, 0, 1)
        left.append((new * rows)[lowest].sum() / (rows**2)[lowest].sum())
    assert np.median(left) <= 0.4


def test_a_larger_heart_has_the_ratio_asked_for_between_lungs_that_stay(film):
    before = edits.cardiothoracic_ratio(film.heart, film.right, film.left)
    for goal in (before + 0.05, before + 0.12):
        done = PAINTERS["cardiomegaly"](film, PaintRequest((), "", goal, {}), np.random.default_rng(0))
        assert edits.cardiothoracic_ratio(done.lesion, film.right, film.left) == pytest.approx(goal, abs=0.03)
    outside = region_of("cardiomegaly", film, PaintRequest((), "", goal, {}))
    assert (done.image == film.image)[~outside].all()


def test_the_warp_is_corrected_by_what_is_measured(film):
    seen = []

    def measure(image: np.ndarray) -> float:
        seen.append(image)
        return 0.5 if len(seen) == 1 else 0.6

    done = PAINTERS["cardiomegaly"](film, PaintRequest((), "", 0.6, {}, measure=measure), np.random.default_rng(0))
    assert done.parameters == {"ratio": 0.6, "measured": 0.5, "goal": pytest.approx(0.7)}
    assert len(seen) == 1
    beyond = PAINTERS["cardiomegaly"](film, PaintRequest((), "", 0.7, {}), np.random.default_rng(0))
    assert done.image.tobytes() == beyond.image.tobytes()  # the reached .5 is .1 too small, so .7 is asked for


def test_the_fading_ends_at_a_side_in_the_lung_and_not_at_the_lungs_border(film):
    window = Window(film, place(film, "opacity"))
    fade = window.fade_weights()
    x1, y1, x2, y2 = window.place_box
    assert fade[y1 : y1 + 1].max() < 0.05
    assert fade[(y1 + y2) // 2, (x1 + x2) // 2] == pytest.approx(1, abs=0.05)
    assert not fade[~window.inside].any()
    half = replace(film, right=film.right & (np.arange(512)[None] > x1 + window.columns.start + 30))
    assert Window(half, place(film, "opacity")).lung_border_shares()[0] > 0.5
