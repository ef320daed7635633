"""Fréchet and kernel distances: two known normal laws, and an estimate without bias."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from cxr.metrics.distances import fid, frechet, kid


def test_the_frechet_distance_of_two_known_laws():
    means, covariances = (np.array([1.0, 2.0]), np.array([4.0, -2.0])), (np.diag([4.0, 9.0]), np.diag([1.0, 16.0]))
    # 9 + 16 of the means, (2 - 1)^2 + (3 - 4)^2 of the deviations
    assert frechet(means, covariances) == pytest.approx(27.0)
    random = np.random.default_rng(1)
    first, second = (part @ part.T for part in random.normal(size=(2, 5, 5)))
    wanted = np.trace(first + second - 2 * sqrtm(first @ second).real)
    assert frechet((np.zeros(5), np.zeros(5)), (first, second)) == pytest.approx(wanted, rel=1e-6)


def test_fid_is_refused_in_few_samples_and_falls_with_their_number():
    random = np.random.default_rng(2)
    few, more = (random.normal(size=(2, size, 32)) for size in (40, 2000))
    with pytest.raises(ValueError, match="FID of 32 features needs 64 samples per set, but one has 40"):
        fid(*few)
    assert fid(*few, small=True) > 10 * fid(*more) > 0
    assert fid(more[0], more[0]) == pytest.approx(0, abs=1e-6)
    assert fid(random.normal(size=(64, 32)), few[0], small=True) > 0


def test_kid_has_no_bias_and_sees_a_shift():
    random = np.random.default_rng(5)
    found = np.array([kid(*random.normal(size=(2, 20, 16))) for _ in range(500)])
    error = found.std() / np.sqrt(500)
    assert abs(found.mean()) < 2 * error
    assert found.min() < 0 < found.max()
    shifted = [kid(random.normal(size=(20, 16)), random.normal(0.7, 1, (20, 16))) for _ in range(50)]
    assert np.mean(shifted) > 10 * error
    one, other = np.array([[1.0], [2.0]]), np.array([[0.0], [3.0]])
    # k(1,2) = 27, k(0,3) = 1, and the four across: 1, 4^3, 1, 7^3
    assert kid(one, other) == pytest.approx(27 + 1 - 2 * (1 + 64 + 1 + 343) / 4)
    with pytest.raises(ValueError, match="two samples"):
        kid(one[:1], other)
