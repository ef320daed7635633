"""Joins a model's answers with the samples, and parses their boxes.

Each model declares its grammar, which is the form in which it writes boxes. Malformed boxes are counted but not used. A
box is malformed if it has swapped corners, no brackets, other than four numbers, no area, or a centre outside the
image. Such a centre suggests another unit: clipping would turn ``[0, 0, 500, 500]`` into the whole image.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cxr.radvlm.samples import slot_names
from cxr.vlm.conventions import CONVENTIONS, Convention, InputSize
from cxr.vlm.reading import MOST_BOXES, read_boxes

BINS = 100  # bins per side in the grammar bins
_BIN = re.compile(r"<x(\d{1,3})>\s*<y(\d{1,3})>\s*<x(\d{1,3})>\s*<y(\d{1,3})>")
_ANY_BIN = re.compile(r"<[xy]\d{1,3}>")
Crop = tuple[float, float, float, float]  # x1, y1, x2, y2 as fractions of the image
WHOLE_IMAGE: Crop = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class AnswerBoxes:
    """The boxes of an answer."""

    boxes: np.ndarray  # fractions of the image, float64 (N, 4), in order
    malformed: int = 0  # number of malformed boxes


NO_BOXES = AnswerBoxes(np.zeros((0, 4)))
Grammar = Callable[[str, tuple[int, int]], AnswerBoxes]  # parses a text about an image of (width, height) px


def load_grammar(name: str, crop: Crop = WHOLE_IMAGE) -> Grammar:
    """Return a parser of boxes in the form ``name``, a key of GRAMMARS. It maps boxes in a ``crop`` to the image."""
    convention = GRAMMARS[name]
    start, sides = np.tile(crop[:2], 2), np.tile(np.subtract(crop[2:], crop[:2]), 2)

    def read(text: str, image_size: tuple[int, int]) -> AnswerBoxes:
        in_crop = _read_bins(text) if convention is None else _read_lists(text, convention, image_size)
        return in_crop if crop == WHOLE_IMAGE else AnswerBoxes(in_crop.boxes * sides + start, in_crop.malformed)

    return read


GRAMMARS: dict[str, Convention | None] = CONVENTIONS | {
    "percent": Convention("percent", 100, decimals=1),
    "hundred": Convention("hundred", 100),
    "pixels": Convention("pixels", None),
    "bins": None,
}
"""{name of a form of written boxes: its coordinates}. None: boxes are written as bin tokens, such as ``<x12>``."""


def _read_lists(text: str, convention: Convention, image_size: tuple[int, int]) -> AnswerBoxes:
    reading = read_boxes(text, convention, InputSize(*image_size))
    lost = sum(note.startswith("left_out:") for note in reading.notes)
    if reading.outcome != "boxes":
        return AnswerBoxes(NO_BOXES.boxes, int(reading.outcome == "unreadable" and reading.reason != "nothing"))
    if "bare" in reading.notes:
        return AnswerBoxes(NO_BOXES.boxes, len(reading.boxes) + lost)
    good = ~(np.array(reading.swapped, bool) | np.array(reading.beyond, bool))
    return AnswerBoxes(reading.boxes[good], int((~good).sum()) + lost)


def _read_bins(text: str) -> AnswerBoxes:
    """Return the boxes written as ``<x12><y34><x56><y78>``. A bin stands for its centre."""
    boxes = (np.array(_BIN.findall(text), np.float64).reshape(-1, 4) + 0.5) / BINS
    is_good = (boxes <= 1).all(axis=1) & (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    num_bad = int((~is_good).sum()) + bool(len(_ANY_BIN.findall(text)) % 4)
    boxes = boxes[is_good]
    if len(boxes) > MOST_BOXES:
        boxes = np.unique(boxes, axis=0)  # endless answers repeat one box
    return AnswerBoxes(NO_BOXES.boxes, 1) if len(boxes) > MOST_BOXES else AnswerBoxes(boxes, num_bad)


ANSWER, FILTERED, ORIGINAL = "answer", "filtered", "original"  # kinds of text; original: the report section
Annotate = Callable[[Sequence[tuple]], list[dict]]  # annotates texts, or pairs of answer and reference, in order
NO_PREDICTION, DUPLICATE, UNKNOWN = "no_prediction", "duplicate", "unknown"


@dataclass(frozen=True)
class SampleAnswer:
    """A model's answers to the turns of a sample."""

    texts: tuple[str, ...] = ()  # one per turn
    convention: str = ""  # grammar of the boxes
    input_size: tuple[int, int] = (1, 1)  # (width, height) to which pixel boxes refer
    failure: str = ""  # reason why an answer is missing, or ""
    crop: Crop = WHOLE_IMAGE  # part of the image that the model saw

    @property
    def text(self) -> str:
        """The answer to the first turn, or "" without answers."""
        return self.texts[0] if self.texts else ""

    @property
    def grammar(self) -> Grammar:
        return load_grammar(self.convention or "unit", self.crop)

    def boxes(self, turn: int = 0) -> AnswerBoxes:
        """Return the boxes in the answer to a turn."""
        return self.grammar(self.texts[turn], self.input_size)


Pair = tuple[Mapping, SampleAnswer]  # a line and its answer


def join_answers(lines: Sequence[Mapping], answers: Iterable[Mapping]) -> tuple[dict[str, SampleAnswer], Counter]:
    """Return ({sample_id: answer}, counts of failures). A sample fails unless each turn has exactly one answer."""
    turns = {line["sample_id"]: len(line["turns"]) for line in lines}
    answers_by_turn: dict[tuple[str, int], list[Mapping]] = {}
    counts: Counter = Counter()
    for answer in answers:
        key = answer["sample_id"], int(answer.get("turn", 0))
        if answer["sample_id"] not in turns or not 0 <= key[1] < turns[answer["sample_id"]]:
            counts[UNKNOWN] += 1
        else:
            answers_by_turn.setdefault(key, []).append(answer)
    answer_by_sample = {
        name: _join_turns([answers_by_turn.get((name, turn), []) for turn in range(number)])
        for name, number in turns.items()
    }
    counts.update(answer.failure for answer in answer_by_sample.values() if answer.failure)
    return answer_by_sample, counts


def _join_turns(turns: Sequence[Sequence[Mapping]]) -> SampleAnswer:
    for turn_answers in turns:
        if not turn_answers:
            return SampleAnswer(failure=NO_PREDICTION)
        if len(turn_answers) > 1:
            return SampleAnswer(failure=DUPLICATE)
        if turn_answers[0].get("failure"):
            return SampleAnswer(failure=str(turn_answers[0]["failure"]))
    first = turns[0][0]
    texts = tuple(str(turn_answers[0].get("text", "")) for turn_answers in turns)
    image_size, crop = tuple(first.get("seen") or (1, 1)), tuple(first.get("crop") or WHOLE_IMAGE)
    return SampleAnswer(texts, first.get("convention", ""), image_size, crop=crop)


def turn_boxes(line: Mapping, turn: int) -> np.ndarray:
    """Return the reference boxes of a turn, float64 (N, 4), in the order of ``<box:name>`` in its answer."""
    boxes = [box for name in slot_names(line["turns"][turn]["answer"]) for box in line["boxes"][name]]
    return np.array(boxes, np.float64).reshape(-1, 4)
