"""Measures of edits and of lesions' appearance, each against a formula of its own or a case whose answer is known."""

import numpy as np
import pytest
from scipy import optimize

from cxr.metrics import appearance, edits

SHAPE = (512, 512)


def _chest() -> np.ndarray:
    lungs = np.zeros((2, *SHAPE), bool)
    lungs[0, 100:400, 60:220] = True
    lungs[1, 100:400, 292:452] = True
    return lungs


def _noise(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(100, 20, SHAPE)


def test_the_change_inside_outside_and_leaked_of_a_known_edit():
    difference = np.zeros(SHAPE)
    difference[100:110, 100:110] = 3.0  # 100 px in the box
    difference[200:205, 200:205] = -4.0  # 25 px outside
    inside = edits.mask_from_boxes(np.array([[100.0, 100, 120, 110]]), SHAPE)
    assert edits.mean_change_inside(difference, inside) == pytest.approx(1.5)
    assert edits.largest_change_outside(difference, inside) == 4.0
    assert edits.leaked_fraction(difference, inside) == pytest.approx(25 * 16 / (100 * 9 + 25 * 16))
    assert edits.leaked_fraction(np.zeros(SHAPE), inside) == 0.0
    assert edits.visible_pixels(difference, 4.0).sum() == 25


def test_a_box_covers_the_pixels_whose_centres_lie_in_it():
    assert edits.mask_from_boxes(np.array([[0.4, 0.6, 2.5, 1.6]]), (3, 4)).astype(int).tolist() == [
        [0, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 0, 0],
    ]


def test_the_visible_box_of_a_region_in_a_box():
    lungs = _chest()
    assert edits.tight_box_inside(np.array([40.0, 90, 100, 150]), lungs[0]).tolist() == [60, 100, 100, 150]
    assert edits.tight_box_inside(np.array([0.0, 0, 50, 50]), lungs[0]) is None


@pytest.mark.parametrize(("box", "expected"), [((100, 150, 180, 250), 1.0), ((60, 100, 220, 400), None)])
def test_a_rectangle_has_an_edge_ratio_of_one_and_one_at_the_lungs_border_none(box, expected):
    lungs = _chest()[0]
    difference = 5.0 * edits.mask_from_boxes(np.array([box]), SHAPE)
    found = edits.edge_ratio(difference, np.array(box, float), lungs)
    assert np.isnan(found) if expected is None else found == pytest.approx(expected)


def test_a_cone_has_the_edge_ratio_of_its_sums():
    lungs, box = _chest()[0], np.array([100.0, 150, 180, 250])
    y, x = np.mgrid[:512, :512] + 0.5
    difference = np.clip(1 - np.hypot((x - 140) / 40, (y - 200) / 50), 0, None)
    inside = difference[150:250, 100:180]
    inner = inside[2:-2, 2:-2]
    strips = (inside.sum() - inner.sum()) / (inside.size - inner.size)
    assert edits.edge_ratio(difference, box, lungs) == pytest.approx(strips / inside.mean())


def test_the_heart_share_is_a_ratio_of_widths():
    lungs, heart = _chest(), np.zeros(SHAPE, bool)
    heart[250:380, 200:396] = True
    assert edits.cardiothoracic_ratio(heart, *lungs) == pytest.approx(196 / 392)
    assert np.isnan(edits.cardiothoracic_ratio(np.zeros(SHAPE, bool), *lungs))


def test_the_six_numbers_of_a_box_by_their_definition():
    film, lungs, box = _noise(1), _chest(), np.array([100.0, 150, 180, 250])
    film[150:250, 100:180] += 30
    found = dict(zip(appearance.FEATURES, appearance.lesion_features(film, box, lungs), strict=True))
    here, there = film[150:250, 100:180], film[150:250, 332:412]  # the lungs are mirror images about column 256
    deviation = film[lungs.any(axis=0)].std()
    assert found["contrast"] == pytest.approx((here.mean() - there.mean()) / deviation, rel=1e-4)
    assert found["spread"] == pytest.approx(np.log(here.std() / there.std()), abs=1e-4)
    band = edits.cv2.GaussianBlur(film, (0, 0), 2) - edits.cv2.GaussianBlur(film, (0, 0), 5)
    ratio = np.log(band[150:250, 100:180].std() / band[150:250, 332:412].std())
    assert found["ratio_mid"] == pytest.approx(ratio, abs=1e-3)
    rows, columns = np.mgrid[:100, :80]
    near = np.minimum(np.minimum(rows, 99 - rows), np.minimum(columns, 79 - columns))
    core = near >= appearance.CORE_MARGIN
    assert found["core"] == pytest.approx((here[core].mean() - here[~core].mean()) / deviation, abs=2e-3)


def test_a_box_whose_mirrored_place_is_taken_or_too_small_has_no_numbers():
    film, lungs, box = _noise(), _chest(), np.array([100.0, 150, 180, 250])
    assert appearance.lesion_features(film, box, lungs, np.array([[332.0, 150, 412, 250]])) is None
    assert appearance.lesion_features(film, box, lungs, np.array([[332.0, 150, 338, 250]])) is not None
    assert appearance.lesion_features(film, np.array([100.0, 150, 118, 170]), lungs) is None  # 360 px


def test_the_logistic_fit_is_the_minimum_of_its_loss():
    random = np.random.default_rng(4)
    values, label = random.normal(size=(60, 3)), np.repeat([1.0, 0.0], [20, 40])
    share = np.where(label == 1, 1 / 40, 1 / 80)

    def loss(weights):
        score = values @ weights[1:] + weights[0]
        return (share * (np.logaddexp(0, score) - label * score)).sum() + 0.005 * (weights[1:] ** 2).sum()

    assert appearance._fit_logistic(values, label) == pytest.approx(
        optimize.minimize(loss, np.zeros(4), tol=1e-12).x, abs=1e-4
    )


def test_the_two_sample_test_cannot_tell_one_law_and_tells_two():
    random = np.random.default_rng(5)
    people = [f"a{number % 50}" for number in range(200)], [f"b{number % 50}" for number in range(200)]
    same = [appearance.c2st(*random.normal(size=(2, 200, 6)), *people) for _ in range(20)]
    assert abs(np.mean(same) - 0.5) < 0.04
    apart = appearance.c2st(random.normal(size=(200, 6)), random.normal(size=(200, 6)) + 3, *people)
    assert apart > 0.99
    wide = appearance.c2st(random.normal(size=(200, 6)), 3 * random.normal(size=(200, 6)), *people)
    assert wide > 0.9  # only the squares tell these
