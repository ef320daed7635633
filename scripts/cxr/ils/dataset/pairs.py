"""The record of one instruction-answer pair (ils.md section 8): its fields, their order, its id."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cxr.base.vocabulary import HEART
from cxr.ils import templates
from cxr.instructions.record import Record, Turn

FIELDS = (
    "pair_id",
    "subject_id",
    "study_id",
    "image_id",
    "split",
    "section_name",
    "section_content",
    "sentence_index",
    "type",
    "target",
    "certainty",
    "instruction",
    "answer",
    "location",
    "grounded_location",
    "reported_location",
    "seg",
    "mask_id",
)
POLARITIES = ("positive", "negative")
SOURCE = "ils"


@dataclass(frozen=True)
class Pair:
    """The content of a pair, before it gets an id and its study's fields."""

    type: str
    target: str
    instruction: str
    answer: str
    location: tuple[str, ...]
    seg: bool
    certainty: str | None = None
    sentence_index: int | None = None
    grounded_location: tuple[str, ...] = ()
    reported_location: tuple[str, ...] = ()
    mask_id: str | None = None


def make_positive(
    kind: str,
    target: str,
    word: str,
    location: Iterable[str],
    *,
    certainty: str | None,
    sentence_index: int | None,
    grounded: Iterable[str],
    reported: Iterable[str],
    mask_id: str,
) -> Pair:
    """Return a positive pair. ``word`` is what the text calls the target (opacity for a tentative finding)."""
    location = tuple(location)
    heart = target == templates.CARDIOMEGALY
    return Pair(
        type=kind,
        target=target,
        instruction=templates.write_instruction(kind, word, location),
        answer=templates.write_positive_answer(kind, target, location, certainty),
        location=(HEART,) if heart else location,
        seg=True,
        certainty=None if heart else certainty,
        sentence_index=sentence_index,
        grounded_location=tuple(grounded),
        reported_location=tuple(reported),
        mask_id=mask_id,
    )


def make_negative(kind: str, lesion: str, location: Iterable[str] = ()) -> Pair:
    """Return a negative pair: nothing to segment, no mask. A global pair names no location."""
    location = tuple(location)
    return Pair(
        type=kind,
        target=lesion,
        instruction=templates.write_instruction(kind, lesion, location),
        answer=templates.write_negative_answer(kind, lesion, location),
        location=location,
        seg=False,
    )


def make_pair_id(study_id: str, seg: bool, number: int) -> str:
    """Return a pair's id in the released form, ``<study>_positive_<k>`` or ``<study>_negative_<k>``, k from 0."""
    return f"{study_id}_{POLARITIES[not seg]}_{number}"


def make_records(
    study: dict, section_name: str, section_content: str, pairs: Iterable[Pair], numbers: Counter | None = None
) -> Iterator[Record]:
    """Yield the records of one image, numbered within the study's positives and negatives.

    ``study`` gives study_id, image_id, subject_id and split. ``numbers`` counts on from a study's image to its next.
    """
    numbers = Counter() if numbers is None else numbers
    ids = {name: study[name] for name in ("subject_id", "study_id", "image_id", "split")}
    for pair in pairs:
        extra_fields = (
            "target",
            "certainty",
            "sentence_index",
            "location",
            "grounded_location",
            "reported_location",
            "seg",
        )
        section = {"section_name": section_name, "section_content": section_content}
        yield Record(
            sample_id=make_pair_id(study["study_id"], pair.seg, numbers[pair.seg]),
            task=pair.type,
            source=SOURCE,
            **ids,
            turns=(Turn(pair.instruction, pair.answer),),
            mask_ids=() if pair.mask_id is None else (pair.mask_id,),
            more=section | {name: getattr(pair, name) for name in extra_fields},
        )
        numbers[pair.seg] += 1


def make_line(record: Record) -> dict:
    """Return the line of one of our records: all ``FIELDS`` in order."""
    (turn,) = record.turns
    values = dict(record.more) | {
        "pair_id": record.sample_id,
        "subject_id": record.subject_id,
        "study_id": record.study_id,
        "image_id": record.image_id,
        "split": record.split,
        "type": record.task,
        "instruction": turn.question,
        "answer": turn.answer,
        "mask_id": next(iter(record.mask_ids), None),
    }
    return {name: list(value) if isinstance(value := values[name], tuple) else value for name in FIELDS}
