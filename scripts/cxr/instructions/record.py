"""The record of a sample (questions and answers about one image, with boxes or masks), and writing it to JSON Lines."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cxr.base.atomic import atomic_file
from cxr.base.vocabulary import SPLITS

Box = tuple[float, float, float, float]
"""x1, y1, x2, y2 as fractions of the image's width and height; (0, 0) is the upper left corner."""


@dataclass(frozen=True)
class Turn:
    """A question and its answer. ``wording`` gives the ids of the templates from which they were made."""

    question: str
    answer: str
    wording: str = ""


@dataclass(frozen=True)
class Record:
    """A sample: one image, with questions and answers about it.

    Raises ValueError if there is no turn, the split is unknown, or a box is empty or extends beyond the image."""

    sample_id: str  # unique among the samples of a system, such as ILS or RadVLM
    task: str  # kind of sample, such as report generation
    source: str  # origin of the facts in the answers, such as a dataset
    split: str
    subject_id: str
    study_id: str
    image_id: str
    turns: tuple[Turn, ...]
    boxes: Mapping[str, tuple[Box, ...]] = field(default_factory=dict)  # boxes in the answers, {name: boxes}, in order
    mask_ids: tuple[str, ...] = ()  # masks in the answers, in order
    more: Mapping[str, object] = field(default_factory=dict)  # further fields, which each system chooses

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError(f"{self.sample_id} has no turn: a record needs a question and its answer")
        if self.split not in SPLITS:
            raise ValueError(f"{self.sample_id} has the split {self.split!r}: use one of {', '.join(SPLITS)}")
        for name, boxes in self.boxes.items():
            for x1, y1, x2, y2 in boxes:
                if not (0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1):
                    raise ValueError(f"{self.sample_id} has a box of {name!r} that is empty or exceeds the image")


@contextmanager
def open_split_files(
    paths: Mapping[str, str | Path], line_of: Callable[[Record], dict]
) -> Iterator[Callable[[Record], None]]:
    """Yield a function that writes a record, as the dictionary ``line_of(record)``, to the file of the record's split.
    ``paths``: {split: path}. The files appear when complete."""
    with ExitStack() as stack:
        temporaries = {split: stack.enter_context(atomic_file(path)) for split, path in paths.items()}
        files = {
            split: stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n"))
            for split, temporary in temporaries.items()
        }

        def write(record: Record) -> None:
            files[record.split].write(json.dumps(line_of(record), ensure_ascii=False) + "\n")

        yield write
