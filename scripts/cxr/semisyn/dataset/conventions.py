"""Box conventions of reader groups: the height they draw for a box of a given width."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import yaml

from cxr.base.hdf5 import FRAME_SIZE
from cxr.base.paths import RESOURCES
from cxr.geometry.affine import boxes_to_frame, frame_scales

RESOURCE_FILES = ("semisyn/conventions.yaml",)
SOURCE_CONVENTION = "source"


@cache
def read_conventions() -> dict[str, dict[str, dict[str, float]]]:
    """Return {target: {finding: {height_over_width, anchor, at}}}; the target ``source`` changes nothing."""
    conventions_by_target = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    return {SOURCE_CONVENTION: {}} | conventions_by_target


def image_box_in_frame(affine: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return the part of the frame that the image covers, float64 (4: x1, y1, x2, y2).

    ``affine``: from frame to original pixels (2, 3); ``shape``: (rows, columns) of the original.
    """
    return boxes_to_frame(np.array([0.0, 0.0, shape[1], shape[0]]), affine).ravel().clip(0.0, FRAME_SIZE)


def rescale_box(box: np.ndarray, finding: str, target: str, affine: np.ndarray, picture: np.ndarray) -> np.ndarray:
    """Return a box (4,) in frame pixels as the readers of ``target`` would draw it, float64 (4,).

    The width stays; the height becomes the width times the readers' mean height-to-width ratio in original pixels.
    ``anchor``: ``bottom`` keeps the lower edge; else the point at ``at`` of the old height becomes the centre. The
    result is clipped to the ``picture``.
    """
    convention: Mapping = read_conventions()[target].get(finding, {})
    x1, y1, x2, y2 = (float(edge) for edge in box)
    if not convention:
        return np.array([x1, y1, x2, y2])
    across, down = frame_scales(affine)
    height = (x2 - x1) * convention["height_over_width"] * across / down
    if convention["anchor"] == "bottom":
        y1 = y2 - height
    else:
        centre = y1 + convention["at"] * (y2 - y1)
        y1, y2 = centre - height / 2, centre + height / 2
    return np.clip([x1, y1, x2, y2], np.tile(picture[:2], 2), np.tile(picture[2:], 2))
