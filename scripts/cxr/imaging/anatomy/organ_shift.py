"""Comparing the organs of the image with those of the edited image (paper, D.2).

The comparison uses the outer edge of each lung and the lower edge of the heart. A large difference means that one of
the two segmentations failed, or that the edit moved the anatomy.
"""

import math

import numpy as np

from cxr.base.vocabulary import HEART, LUNGS


def outer_edges(masks: dict[str, np.ndarray]) -> dict[str, float | None]:
    """Return the outermost column of each lung and the lowest row of the heart, in pixels; None for an empty mask.

    The right lung lies on the image's left, so its outer edge is its smallest column.
    """
    right_columns, left_columns = (np.flatnonzero(masks[name].any(axis=0)) for name in LUNGS)
    heart_rows = np.flatnonzero(masks[HEART].any(axis=1))
    return {
        "outer edge of the right lung": float(right_columns[0]) if right_columns.size else None,
        "outer edge of the left lung": float(left_columns[-1]) if left_columns.size else None,
        "lower edge of the heart": float(heart_rows[-1]) if heart_rows.size else None,
    }


def disagreement(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> tuple[float, str]:
    """Return the largest distance between the edges of two sets of masks, in frame widths, and the name of the edge.

    The distance is infinite if only one set has the edge; an edge that neither has is ignored.
    """
    width = first[HEART].shape[1]
    distances = [(0.0, "")]
    second_edges = outer_edges(second)
    for name, value in outer_edges(first).items():
        if (value is None) != (second_edges[name] is None):
            distances.append((math.inf, name))
        elif value is not None:
            distances.append((abs(value - second_edges[name]) / width, name))
    return max(distances, key=lambda pair: pair[0])
