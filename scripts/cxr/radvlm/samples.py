"""The JSON line of a sample, written by the instructions stage and read by tuning, inference and evaluation.

An answer refers to boxes by ``<box:name>``; ``boxes`` has them as fractions, which a run writes in its convention.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from cxr.geometry.boxes import CORNERS
from cxr.instructions.record import Box, Turn

DECIMALS = 2  # decimals of a written coordinate (paper)


def unit_boxes(boxes: np.ndarray, rows: ArrayLike, columns: ArrayLike) -> np.ndarray:
    """Convert pixel boxes (N, 4) to fractions of ``rows`` and ``columns`` (scalars or (N,)), clipped to 0–1."""
    sides = np.stack([columns, rows, columns, rows], axis=-1).astype(np.float64)
    return np.clip(np.asarray(boxes, np.float64).reshape(-1, 4) / sides, 0.0, 1.0)


def round_coordinate(value: float) -> float:
    """Round a fraction to the two decimals of a written coordinate; exact halves round to even."""
    return float(f"{value:.{DECIMALS}f}")


def survive_rounding(boxes: np.ndarray) -> np.ndarray:
    """Return a mask, bool (N,), of the boxes (N, 4) that keep a positive area after rounding."""
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    sides = boxes[:, 2:] - boxes[:, :2]
    has_area = (sides > 1.01 * 10.0**-DECIMALS).all(axis=1)  # corners that are this far apart round to different values
    for at in np.flatnonzero(~has_area & (sides > 0).all(axis=1)):
        x1, y1, x2, y2 = map(round_coordinate, boxes[at])
        has_area[at] = x1 < x2 and y1 < y2
    return has_area


def sort_by_area(boxes: np.ndarray) -> tuple[tuple[float, float, float, float], ...]:
    """Return boxes (N, 4) sorted by area, largest first; ties go to the upper, then the left box."""
    box_tuples = [tuple(map(float, box)) for box in np.asarray(boxes, np.float64).reshape(-1, 4)]
    return tuple(sorted(box_tuples, key=lambda box: (-(box[2] - box[0]) * (box[3] - box[1]), box[1], box[0], box)))


@dataclass(frozen=True)
class NamedBoxes:
    """The boxes of one name or phrase in an image. key: seed of its wordings; name: name or phrase text; boxes:
    fractions of the image, largest first; facts: fact ids; flat: fact ids of boxes without an area after rounding.
    """

    image_id: str
    key: str
    name: str
    boxes: tuple
    facts: tuple[str, ...]
    flat: tuple[str, ...] = ()


def group_boxes(facts: pl.DataFrame, sizes: Mapping[str, tuple[int, int]], kind: str) -> Iterator[NamedBoxes]:
    """Yield the boxes of a kind, by image and name, except single readers'. ``sizes``: {image_id: (rows, columns)}."""
    fact_table = facts.filter(pl.col("reader").is_null(), pl.col("image_id").is_in(list(sizes)), kind=kind)
    fact_table = fact_table.sort("image_id", "name", "group", "fact_id")
    shapes = np.array([sizes[image_id] for image_id in fact_table["image_id"]]).reshape(-1, 2)
    boxes = unit_boxes(fact_table.select(CORNERS).to_numpy(), shapes[:, 0], shapes[:, 1])
    keys = fact_table.select("image_id", "name", "group", "fact_id").iter_rows()
    rows = zip(keys, boxes, survive_rounding(boxes), strict=True)
    for (image_id, name, group), part in groupby(rows, key=lambda row: row[0][:3]):
        name_rows = list(part)
        fact_ids = tuple(row[3] for row, _, has_area in name_rows if has_area)
        flat = tuple(row[3] for row, _, has_area in name_rows if not has_area)
        placed = sort_by_area(np.array([box for _, box, has_area in name_rows if has_area]))
        yield NamedBoxes(image_id, group or f"{image_id}/{name}", name, placed, fact_ids, flat)


TASKS = (
    "report_generation", "classification", "anatomical_grounding", "abnormality_grounding", "abnormality_detection",
    "phrase_grounding", "conversation", "conversation_grounded", "absent_grounding", "ils_grounding",
    "ils_segmentation",
)  # fmt: skip
"""All tasks, in the order of a mix."""
TEXT_TASKS = ("report_generation", "phrase_grounding", "conversation", "conversation_grounded")
"""Tasks whose turns contain report text or text derived from it."""
SEG = "[SEG]"  # token of an answer that stands for a mask


def box_slot(name: str) -> str:
    """Return the slot for the boxes ``name``. Raises ValueError if the name is empty or contains < or >."""
    if not name or set(name) & set("<>"):
        raise ValueError(f"{name!r} is not a valid name for boxes")
    return f"<box:{name}>"


_SLOT = re.compile(r"<box:([^<>]+)>")


def slot_names(text: str) -> list[str]:
    """Return the slot names in a text, each once, in order."""
    return list(dict.fromkeys(_SLOT.findall(text)))


def format_boxes(boxes: Sequence[Sequence[float]]) -> str:
    """Format boxes as text: "[0.10, 0.20, 0.30, 0.40] and [...]"; no boxes give ""."""
    return join_in_words([f"[{', '.join(f'{value:.{DECIMALS}f}' for value in box)}]" for box in boxes])


def write_slots(text: str, boxes: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Replace each slot in a text by its boxes (:func:`format_boxes`)."""
    return _SLOT.sub(lambda slot: format_boxes(boxes.get(slot[1], ())), text)


def join_in_words(texts: Iterable[str], last_word: str = "and") -> str:
    """Join texts with commas and a word before the last: "a, b and c"."""
    *first, last = list(texts) or [""]
    return f"{', '.join(first)} {last_word} {last}" if first else last


def make_line(
    sample_id: str, task: str, image: Mapping, turns: Sequence[Turn], *, boxes: Mapping[str, Sequence[Box]],
    labels: Sequence[str] | None = None, mask_ids: Sequence[str] = (), facts: Sequence[str] = (), engine: str = "",
    number: int = 0, target: str | None = None,
) -> dict:  # fmt: skip
    """Return a sample's JSON line. ``image``: row with the image's ids; ``labels``: None if the source has none."""
    return {
        "sample_id": sample_id,
        "task": task,
        **{name: image[name] for name in ("source", "subject_id", "study_id", "image_id", "split")},
        "pass": number,
        "asked": target,
        "turns": [dict(vars(turn)) for turn in turns],
        "boxes": {name: [list(box) for box in slot_boxes] for name, slot_boxes in boxes.items()},
        "labels": labels,
        "mask_ids": list(mask_ids),
        "facts": list(facts),
        "engine": engine,
    }
