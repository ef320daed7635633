"""Views of an image for a model: boxes drawn on it, and the measurements of each box as a table.

A box's number is its region's number plus 1 in images, tables, answers and pages.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from cxr.geometry.boxes import CORNERS
from cxr.llm.guards import neutralize
from cxr.llm.images import PromptImage
from cxr.medground.logic.atoms import DOMAINS_WITHOUT_APPEARANCE
from cxr.medground.logic.scene import parse_class_words
from cxr.plotting.numbered_boxes import draw_numbered_boxes

SIDE = 512
"""Smallest side of an image with boxes, px: on a smaller one, numbers would hide the regions."""
MARKED = (230, 159, 0)
"""RGB colour of an answer's outline."""


def box_number(region: int) -> int:
    """Return the number of a region's box."""
    return region + 1


def draw_numbered(picture: np.ndarray, rows: Sequence[Mapping]) -> PromptImage:
    """Return an image uint8 (S, S, 3) with the numbered boxes of some regions; none is highlighted."""
    boxes = {box_number(row["region"]): [row[side] for side in CORNERS] for row in rows}
    return PromptImage(draw_numbered_boxes(picture, boxes, {}, _side(picture), show_numbers=True))


def draw_outlined(picture: np.ndarray, rows: Sequence[Mapping]) -> PromptImage:
    """Return an image with the boxes of some regions outlined, without numbers."""
    boxes = {box_number(row["region"]): [row[side] for side in CORNERS] for row in rows}
    return PromptImage(
        draw_numbered_boxes(picture, boxes, dict.fromkeys(boxes, MARKED), _side(picture), show_numbers=False)
    )


def _side(picture: np.ndarray) -> int:
    return max(SIDE, *picture.shape[:2])


def measurement_table(rows: Sequence[Mapping], classes: Mapping[str, Mapping], domain: str) -> str:
    """Return the measurements of regions as text, one line per box."""
    words = parse_class_words(classes)
    appearance_known = domain not in DOMAINS_WITHOUT_APPEARANCE
    return "".join(f"\n{_line(row, words[row['label']].one, appearance_known)}" for row in rows)


def _line(row: Mapping, word: str, appearance: bool) -> str:
    parts = [
        f"{box_number(row['region'])}: {neutralize(word)}",
        f"area {100 * row['area_ratio']:.2f} % of the picture",
        f"centre {100 * row['cx']:.0f} % from the left and {100 * row['cy']:.0f} % from the top",
    ]
    parts += [f"elongation {row['elongation']:.2f}"] if row["elongation"] is not None else []
    parts += [f"solidity {row['solidity']:.2f}"] if row["solidity"] is not None else []
    if appearance:
        parts += [f"contrast {row['contrast']:+.1f}"] if row["contrast"] is not None else []
        parts += [f"texture {row['texture']:.2f}"] if row["texture"] is not None else []
    return ", ".join(parts)
