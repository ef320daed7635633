"""Scores of realism against enumeration, and with draws against repeated samples."""

import numpy as np
import pytest

from cxr.metrics.matching import Boxes
from cxr.semisyn.realism import score

RNG = np.random.default_rng(4)
PATIENTS = [f"p{number % 7}" for number in range(20)]


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    return score.draw_patients(PATIENTS, 30, 1)


def test_a_draw_takes_patients_whole(draws):
    assert (draws[0] == 1).all()
    assert len(draws) == 31
    for row in draws:
        assert all(len({row[at] for at, name in enumerate(PATIENTS) if name == each}) == 1 for each in set(PATIENTS))


def test_auroc_of_a_draw_is_that_of_the_repeated_sample(draws):
    edited, source = RNG.integers(0, 6, 20) / 5, RNG.integers(0, 4, 20) / 5
    found = score.auroc(edited, source, draws)
    for row, value in zip(draws, found, strict=True):
        ours, theirs = np.repeat(edited, row), np.repeat(source, row)
        pairs = [(a > b) + 0.5 * (a == b) for a in ours for b in theirs]
        assert value == pytest.approx(np.mean(pairs), abs=1e-12)
    assert score.auroc(np.ones(20), np.zeros(20), draws).tolist() == [1.0] * 31


def test_ap_is_one_where_every_box_is_hit_and_half_where_half_the_jobs_are(draws):
    corners = np.tile([10.0, 10, 60, 60], (20, 1))
    true = Boxes(np.arange(20), corners)
    sure = np.full(20, 0.5)
    np.testing.assert_allclose(score.ap1070(true, sure, true, draws), 1.0)
    half = Boxes(np.arange(10), corners[:10])
    # recalls 0 to .5 of 101 points have precision 1
    assert score.ap1070(half, sure[:10], true, draws[:1])[0] == pytest.approx(51 / 101)


def test_boxes_of_one_law_cannot_be_told_apart_and_of_another_can(draws):
    patients, real_patients = [f"o{n}" for n in range(60)], [f"r{n}" for n in range(60)]
    real, same, other = RNG.normal(size=(60, 6)), RNG.normal(size=(60, 6)), RNG.normal(1.5, 1, (60, 6))
    many = score.draw_patients(patients, 3, 1)
    assert abs(score.two_sample_test(same, patients, real, real_patients, many)[0] - 0.5) < 0.2
    assert (score.two_sample_test(other, patients, real, real_patients, many) > 0.9).all()


def test_fid_of_few_samples_is_not_told():
    few = RNG.normal(size=(15, 8))
    assert score.frechet_distance(few, few) is None
    assert score.frechet_distance(np.tile(few, (2, 1)), np.tile(few, (2, 1))) == pytest.approx(0, abs=1e-6)
