"""The JSON line of a sample, written by the instructions stage and read by tuning, inference and evaluation.

An answer contains placeholders ``<box:name>``, called slots. The field ``boxes`` has the boxes of each slot, as
fractions of the image. Each tuning run replaces the slots by boxes in its own coordinate format.
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
    """Return boxes (N, 4) in px as fractions of the image, clipped to 0–1. ``rows``, ``columns``: image size in px, as
    a number or per box (N,)."""
    sides = np.stack([columns, rows, columns, rows], axis=-1).astype(np.float64)
    return np.clip(np.asarray(boxes, np.float64).reshape(-1, 4) / sides, 0.0, 1.0)


def round_coordinate(value: float) -> float:
    """Round a fraction to the two decimals of a written coordinate. Exact halves round to even."""
    return float(f"{value:.{DECIMALS}f}")


def survive_rounding(boxes: np.ndarray) -> np.ndarray:
    """Return whether each box (N, 4), in fractions, still has an area when its coordinates are rounded, bool (N,)."""
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    sides = boxes[:, 2:] - boxes[:, :2]
    has_area = (sides > 1.01 * 10.0**-DECIMALS).all(axis=1)  # such corners always round to different values
    for at in np.flatnonzero(~has_area & (sides > 0).all(axis=1)):
        x1, y1, x2, y2 = map(round_coordinate, boxes[at])
        has_area[at] = x1 < x2 and y1 < y2
    return has_area


def sort_by_area(boxes: np.ndarray) -> tuple[tuple[float, float, float, float], ...]:
    """Return boxes (N, 4) sorted by area, the largest first. Ties go to the upper, then to the left box."""
    box_tuples = [tuple(map(float, box)) for box in np.asarray(boxes, np.float64).reshape(-1, 4)]
    return tuple(sorted(box_tuples, key=lambda box: (-(box[2] - box[0]) * (box[3] - box[1]), box[1], box[0], box)))


@dataclass(frozen=True)
class NamedBoxes:
    """The boxes of one finding, region or phrase in an image."""

    image_id: str
    key: str  # seed for choosing its wordings
    name: str  # name of the finding or region, or text of the phrase
    boxes: tuple  # fractions of the image, the largest box first
    facts: tuple[str, ...]  # fact ids of these boxes
    flat: tuple[str, ...] = ()  # fact ids of further boxes, which have no area after rounding


def group_boxes(facts: pl.DataFrame, sizes: Mapping[str, tuple[int, int]], kind: str) -> Iterator[NamedBoxes]:
    """Yield the boxes of facts of ``kind``, grouped by image and name. ``sizes``: {image_id: (rows, columns)}. Boxes of
    single annotators (column ``reader``) and boxes of images that are not in ``sizes`` are skipped."""
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
"""All tasks, in the order in which a mix lists them."""
CONVERSATION_TASKS = ("conversation", "conversation_grounded")
TEXT_TASKS = ("report_generation", "phrase_grounding", *CONVERSATION_TASKS)
"""Tasks whose turns contain report text or text derived from it."""
SEG = "[SEG]"  # token of an answer that stands for a mask


def box_slot(name: str) -> str:
    """Return ``<box:name>``, which stands for boxes in a text. Raises ValueError if the name is empty or has < or >."""
    if not name or set(name) & set("<>"):
        raise ValueError(f"{name!r} is not a valid name of boxes: it must not be empty or contain < or >")
    return f"<box:{name}>"


_SLOT = re.compile(r"<box:([^<>]+)>")


def slot_names(text: str) -> list[str]:
    """Return the names of the slots ``<box:name>`` in a text, each once, in order."""
    return list(dict.fromkeys(_SLOT.findall(text)))


def format_boxes(boxes: Sequence[Sequence[float]]) -> str:
    """Return boxes as text, such as "[0.10, 0.20, 0.30, 0.40] and [...]". No boxes give ""."""
    return join_in_words([f"[{', '.join(f'{value:.{DECIMALS}f}' for value in box)}]" for box in boxes])


def write_slots(text: str, boxes: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Return a text with each slot replaced by its boxes (:func:`format_boxes`). ``boxes``: {slot name: boxes}."""
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
    """Return the JSON line of a sample. ``image``: row with the image's ids and split; ``boxes``: {slot name: boxes};
    ``labels``: labels present in the image, None if unknown; ``facts``: ids of the facts used; ``engine``: engine that
    wrote the text; ``number``: number of the pass over the questions, from 0; ``target``: region, finding or phrase
    that is asked about."""
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
