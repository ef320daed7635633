"""Monotone cubic interpolation (PCHIP; Fritsch and Butland 1984) of many rows at once, each with knots of its own.

scipy's PchipInterpolator takes one set of knots at a time, which for the rows of a film takes longer than all the rest
of the painting. The numbers are the same.
"""

import numpy as np


def interpolate_monotone(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return values (R, N) at ``at`` (N,) of R curves through knots ``x``, ``y`` (R, K), x increasing, K > 2.

    Beyond the knots the first and the last piece go on.
    """
    step = np.diff(x, axis=1)
    slope = np.diff(y, axis=1) / step
    tangent = _knot_slopes(step, slope)
    bend = (tangent[:, :-1] + tangent[:, 1:] - 2 * slope) / step
    powers = (y[:, :-1], tangent[:, :-1], (slope - tangent[:, :-1]) / step - bend, bend / step)
    piece = np.clip((at[None, :, None] >= x[:, None, :]).sum(axis=2) - 1, 0, step.shape[1] - 1)
    away = at - np.take_along_axis(x, piece, axis=1)
    values, power = np.zeros(piece.shape), np.ones(piece.shape)
    for factor in powers:
        values, power = values + np.take_along_axis(factor, piece, axis=1) * power, power * away
    return values


def _knot_slopes(step: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Return the slope of each curve at its knots, (R, K): 0 at a turn, else a weighted harmonic mean."""
    before, after = slope[:, :-1], slope[:, 1:]
    turn = (np.sign(before) != np.sign(after)) | (before == 0) | (after == 0)
    before_weight, after_weight = 2 * step[:, 1:] + step[:, :-1], step[:, 1:] + 2 * step[:, :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (before_weight / before + after_weight / after) / (before_weight + after_weight)
        inner = np.where(turn, 0.0, 1.0 / mean)
    first = _end_slope(step[:, 0], step[:, 1], slope[:, 0], slope[:, 1])
    last = _end_slope(step[:, -1], step[:, -2], slope[:, -1], slope[:, -2])
    return np.concatenate([first[:, None], inner, last[:, None]], axis=1)


def _end_slope(step: np.ndarray, next_step: np.ndarray, slope: np.ndarray, next_slope: np.ndarray) -> np.ndarray:
    """Return the slope at an end, (R,): of the parabola through three knots, as far as the curve stays monotone."""
    end_slope = ((2 * step + next_step) * slope - step * next_slope) / (step + next_step)
    steep = (np.sign(slope) != np.sign(next_slope)) & (np.abs(end_slope) > 3 * np.abs(slope))
    return np.where(np.sign(end_slope) != np.sign(slope), 0.0, np.where(steep, 3 * slope, end_slope))
