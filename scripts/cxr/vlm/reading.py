"""Parsing the boxes in a model's answer, in any common form. The text is searched, never evaluated as code.

The outcome is ``boxes``, ``none`` (the answer says that there is no box), or ``unreadable`` with a reason.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cxr.geometry.unions import union_iou
from cxr.llm.replies import without_reasoning
from cxr.vlm.conventions import GRID, PALIGEMMA, Convention, InputSize, find_convention

MOST_BOXES = 100  # maximum number of boxes of an answer
MOST_CHARACTERS = 100_000  # longer answers are truncated before parsing
NUMBER = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?"
WORD = r"[-+]?(?:nan|inf(?:inity)?)\b|null\b"
_VALUE = re.compile(rf"({NUMBER}|{WORD})(\s*%)?", re.IGNORECASE)
_LIST = re.compile(r"[\[(<]([^\[\](){}<>]*)[\])>](\s*%)?")
_KEY = re.compile(r"[\"']?\b(?:bbox_2d|box_2d|bboxes|bbox|boxes|box)\b[\"']?\s*[:=]\s*", re.IGNORECASE)
_ROLES = {
    "x1": ("x", "x1", "x_1", "xmin", "x_min", "left"), "y1": ("y", "y1", "y_1", "ymin", "y_min", "top"),
    "x2": ("x2", "x_2", "xmax", "x_max", "right"), "y2": ("y2", "y_2", "ymax", "y_max", "bottom"),
    "width": ("w", "width"), "height": ("h", "height"),
    "cx": ("cx", "xc", "x_center", "center_x"), "cy": ("cy", "yc", "y_center", "center_y"),
}  # fmt: skip
"""{role of a number in a box: names that answers use for it}."""
_ROLE = {name: role for role, names in _ROLES.items() for name in names}
_PAIR = re.compile(
    rf"[\"']?\b({'|'.join(sorted(_ROLE, key=len, reverse=True))})\b[\"']?\s*[:=]\s*[\"']?({NUMBER})(\s*%)?",
    re.IGNORECASE,
)
"""A named number, such as ``"width": 12.5%``."""
_CORNERS, _SIZES = {"x1", "y1", "x2", "y2"}, {"x1", "y1", "width", "height"}
_CENTRES = {"cx", "cy", "width", "height"}
_MAX_GAP = 80  # maximum characters between two named numbers of one box, such as its label
_LOC = re.compile(r"<loc(\d{4})>")
_SPAN = re.compile(r"<\|box_start\|>(.*?)(?:<\|box_end\|>|$)", re.DOTALL)
_ANSWER = re.compile(r"\b(?:final\s+)?answer\b\s*(?:is\s*)?[:=]", re.IGNORECASE)
_NOTHING = re.compile(
    r"[\s`'\"]*(?:json)?[\s`'\"]*(?:\[\s*(?:\[\s*\]|\{\s*\})?\s*\]|\{\s*\}|null|none)[\s`'\".]*", re.IGNORECASE
)
_NEXT_BOX = re.compile(r"\s*(?:,\s*)?(?:and\s*)?[\[(]")  # separator and opening bracket of the next box
_NO_BOX = re.compile(r"\s*(?:\[\s*(?:\[\s*\])?\s*\]|null\b|none\b)", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """The boxes of an answer. ``outcome`` is ``boxes``, ``none`` or ``unreadable``. ``reason`` explains a missing box.

    ``boxes`` are clipped fractions of the image, float64 (N, 4: x1, y1, x2, y2). ``notes`` are codes of the repairs,
    sorted. ``swapped`` (N,) says whether corners were in the wrong order. ``beyond`` (N,) says whether the centre was
    outside the image before clipping, which suggests coordinates on a larger grid.
    """

    outcome: str
    boxes: np.ndarray
    reason: str = ""
    notes: tuple[str, ...] = ()
    swapped: tuple[bool, ...] = ()
    beyond: tuple[bool, ...] = ()


def read_boxes(text: str, convention: Convention, size: InputSize) -> Reading:
    """Return the boxes in a text, or why it has none: ``nothing`` (no numbers), ``count`` (not four numbers in a box),
    ``non_finite``, ``zero_area`` or ``too_many``."""
    notes: set[str] = set()
    if len(text) > MOST_CHARACTERS:
        text, _ = text[:MOST_CHARACTERS], notes.add("cut")
    box_convention, number_lists, empty = _find_numbers(without_reasoning(text), convention, size, notes)
    if len(number_lists) > MOST_BOXES:
        # an endless answer repeats one box
        number_lists = [list(numbers) for numbers in dict.fromkeys(map(tuple, number_lists))]
        notes.add("repeated")
    if len(number_lists) > MOST_BOXES:
        return _unreadable("too_many", notes)
    candidates = [_parse_box(numbers, box_convention, size, notes) for numbers in number_lists]
    reasons = {box.reason for box in candidates if box.reason}
    if good := [box for box in candidates if not box.reason]:
        notes |= {f"left_out:{reason}" for reason in reasons}
        boxes, swapped, beyond = (tuple(getattr(box, name) for box in good) for name in ("box", "swapped", "beyond"))
        return Reading("boxes", np.array(boxes), "", tuple(sorted(notes)), swapped, beyond)
    if not number_lists and empty:
        return Reading("none", np.zeros((0, 4)), "none", tuple(sorted(notes)))
    return _unreadable(min(reasons, default="nothing"), notes)


def _unreadable(reason: str, notes: set[str]) -> Reading:
    return Reading("unreadable", np.zeros((0, 4)), reason, tuple(sorted(notes)))


class _Box(NamedTuple):
    """A parsed box, with fields as in :class:`Reading`. ``reason`` says why the box is invalid, "" if it is valid."""

    box: np.ndarray
    swapped: bool
    beyond: bool
    reason: str


def _parse_box(numbers: list[float], convention: Convention, size: InputSize, notes: set[str]) -> _Box:
    if len(numbers) != 4:
        return _Box(np.zeros(4), False, False, "count")
    if not all(map(math.isfinite, numbers)):
        return _Box(np.zeros(4), False, False, "non_finite")
    box = convention.read(_to_units(numbers, convention, size), size)
    if (box < 0).any() or (box > 1).any():
        notes.add("clipped")
    low, high = np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])
    fallen = bool((low != box[:2]).any())
    if fallen:
        notes.add("swapped")
    middle = (low + high) / 2
    beyond = bool((middle < 0).any() or (middle > 1).any())
    box = np.clip(np.concatenate([low, high]), 0.0, 1.0)
    return _Box(box, fallen, beyond, "" if (box[2:] > box[:2]).all() else "zero_area")


def _to_units(numbers: list[float], convention: Convention, size: InputSize) -> list[float]:
    """Convert the percentages among the numbers of a box to the convention's units. Other numbers stay."""
    width, height = convention.sides(size)[:2]
    sides = (height, width) * 2 if convention.y_first else (width, height) * 2
    number_sides = zip(numbers, sides, strict=True)
    return [number / 100 * side if isinstance(number, Percentage) else number for number, side in number_sides]


def _find_numbers(
    text: str, convention: Convention, size: InputSize, notes: set[str]
) -> tuple[Convention, list[list[float]], bool]:
    """Return (convention of the numbers, numbers of each box, whether the text says that there is no box)."""
    if tokens := _LOC.findall(text):
        values = [float(token) for token in tokens]
        if len(values) % 4:
            notes.add("cut")
        return PALIGEMMA, [values[at : at + 4] for at in range(0, len(values) - len(values) % 4, 4)], False
    if spans := _SPAN.findall(text):
        return convention, [_parse_numbers(span) for span in spans], False
    x_first = replace(convention, y_first=False)
    if named_boxes := list(_named_boxes(text, x_first, size)):  # names make the order explicit
        return x_first, named_boxes, False
    starts = [match.end() for match in _KEY.finditer(text)]
    if starts:
        ends = [*(match.start() for match in _KEY.finditer(text)), len(text)][1:]
        parts = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        lists = [numbers for part in parts for numbers in _boxes_after_key(part, notes)]
        return convention, lists, not lists and all(map(_NO_BOX.match, parts))
    answers = list(_ANSWER.finditer(text))
    answer_text = text[answers[-1].end() :] if answers else text
    lists = list(_bracketed_numbers(answer_text))
    if not lists:
        values = _parse_numbers(answer_text)
        lists = [values[at : at + 4] for at in range(0, len(values), 4)] if values and len(values) % 4 == 0 else []
        if lists:
            notes.add("bare")
        elif values:
            lists = [values]
    return convention, lists, bool(_NOTHING.fullmatch(answer_text))


def _named_boxes(text: str, convention: Convention, size: InputSize) -> Iterator[list[float]]:
    """Yield [x1, y1, x2, y2] of each box with named numbers: two corners, or a corner or the centre with the size."""
    box: dict[str, float] = {}
    end = 0
    for pair in _PAIR.finditer(text):
        role, between = _ROLE[pair[1].lower()], text[end : pair.start()]
        if role in box or len(between) > _MAX_GAP or set(between) & set("{}[]"):
            box = {}
        box[role], end = _parse_number(pair[2], bool(pair[3])), pair.end()
        if box.keys() == _CORNERS:
            yield _to_units([box[name] for name in ("x1", "y1", "x2", "y2")], convention, size)
        elif box.keys() in (_SIZES, _CENTRES):
            start = ("x1", "y1") if "x1" in box else ("cx", "cy")
            x, y, width, height = _to_units([box[name] for name in (*start, "width", "height")], convention, size)
            if "cx" in box:
                x, y = x - width / 2, y - height / 2
            yield [x, y, x + width, y + height]


def _boxes_after_key(part: str, notes: set[str]) -> list[list[float]]:
    """Return the boxes after a key such as "bbox": in the brackets that follow it, or in the rest of the line."""
    opened = part.lstrip()[:1]
    if opened not in ("[", "("):
        line = part.split("\n")[0]
        if opened.isalpha() and (lists := list(_bracketed_numbers(line))):
            return lists
        values = _parse_numbers(line)
        return [values[:4]] if len(values) >= 4 else []
    depth, end = 0, len(part)
    for at, sign in enumerate(part):
        depth += (sign in "[(") - (sign in "])")
        if depth == 0 and sign in "])" and not _NEXT_BOX.match(part, at + 1):
            end = at + 1
            break
    else:
        notes.add("cut")
    return list(_bracketed_numbers(part[:end]))


def _bracketed_numbers(text: str) -> Iterator[list[float]]:
    """Yield the numbers in each innermost bracket. Two consecutive pairs are one box, eight numbers are two boxes."""
    corner: list[float] = []
    for match in _LIST.finditer(text):
        values = [Percentage(value) for value in _parse_numbers(match[1])] if match[2] else _parse_numbers(match[1])
        if len(values) == 2:
            corner = [*corner, *values]
            if len(corner) == 4:
                yield corner
                corner = []
            continue
        if values and len(values) % 4 == 0:
            yield from (values[at : at + 4] for at in range(0, len(values), 4))
        elif values:
            yield values


class Percentage(float):
    """A number with a percent sign, relative to the image's side in any convention."""


def _parse_numbers(text: str) -> list[float]:
    return [_parse_number(number, bool(sign)) for number, sign in _VALUE.findall(text)]


def _parse_number(number: str, is_percentage: bool = False) -> float:
    try:
        return Percentage(number) if is_percentage else float(number)
    except ValueError:  # null
        return math.nan


def to_grid(boxes: np.ndarray) -> np.ndarray:
    """Convert boxes in fractions (N, 4) to cells of a 1000 × 1000 grid, int64. A box has at least one cell per side."""
    grid = np.floor(np.asarray(boxes, np.float64).reshape(-1, 4) * GRID + 0.5).astype(np.int64)
    grid[:, :2] = np.minimum(grid[:, :2], GRID - 1)
    grid[:, 2:] = np.maximum(grid[:, 2:], grid[:, :2] + 1)
    return grid


def read_answer(text: str, convention: str, size: tuple[int, int]) -> tuple[Reading, np.ndarray]:
    """Return (reading of an answer, its boxes (N, 4) as in :func:`to_grid`). ``size``: (width, height) of the image."""
    reading = read_boxes(text, find_convention(convention), InputSize(*size))
    return reading, to_grid(reading.boxes)


def answer_iou(text: str, convention: str, size: tuple[int, int], true: np.ndarray) -> float:
    """Return the IoU between the union of an answer's boxes and the union of ``true``, int (M, 4) on the grid."""
    return union_iou(read_answer(text, convention, size)[1], true)
