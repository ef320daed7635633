"""Monotone interpolation of many rows: the numbers of scipy's, one row at a time."""

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

from cxr.painting.cardiomegaly import interpolate_monotone


@pytest.mark.parametrize("kind", ["rising", "any", "flat"])
def test_each_row_has_scipys_numbers(kind):
    random = np.random.default_rng(3)
    at = np.arange(512) + 0.5
    for knots in (3, 6):
        x = np.sort(random.uniform(0, 500, (40, knots)), axis=1) + np.arange(knots) / 100
        y = random.uniform(0, 500, x.shape)
        y = np.sort(y, axis=1) if kind == "rising" else np.repeat(y[:, :1], knots, axis=1) if kind == "flat" else y
        found = interpolate_monotone(x, y, at)
        for row, (one, other) in enumerate(zip(x, y, strict=True)):
            inside = (at > one[0]) & (at < one[-1])
            np.testing.assert_array_equal(found[row, inside], PchipInterpolator(one, other)(at[inside]))
