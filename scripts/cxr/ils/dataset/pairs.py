"""Instruction-answer pairs with their fields and ids, and functions that make the positive pairs of an image."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cxr.base.vocabulary import HEART
from cxr.ils import templates
from cxr.instructions.record import Record, Turn

FIELDS = (
    "pair_id", "subject_id", "study_id", "image_id", "split", "section_name", "section_content", "sentence_index",
    "type", "target", "certainty", "instruction", "answer", "location", "grounded_location", "reported_location",
    "seg", "mask_id", "basis", "quote", "quote_section", "box_confidence", "anomalous_fraction", "reader",
)  # fmt: skip
PAIR_FIELDS = (
    "target", "certainty", "sentence_index", "location", "grounded_location", "reported_location", "seg",
    "basis", "quote", "quote_section", "box_confidence", "anomalous_fraction",
)  # fmt: skip
"""Fields of a dataset line that are also fields of :class:`Pair`, except instruction and answer."""
ID_FIELDS = ("subject_id", "study_id", "image_id", "split")
POLARITIES = ("positive", "negative")
SOURCE = "ils"


@dataclass(frozen=True)
class Pair:
    """The content of an instruction-answer pair, without its id and the fields of its study."""

    type: str  # basic, global or lesion_inference
    target: str  # Lesion type
    instruction: str
    answer: str
    location: tuple[str, ...]  # Valid locations; the heart for a positive cardiomegaly
    seg: bool  # Whether the pair is positive
    certainty: str | None = None  # definitive or tentative
    sentence_index: int | None = None
    grounded_location: tuple[str, ...] = ()
    reported_location: tuple[str, ...] = ()
    mask_id: str | None = None
    basis: str | None = None
    """Evidence of a negative, ``explicit``, ``silent`` or ``elsewhere`` (see :class:`AllowedDenials`)."""
    quote: str | None = None  # The sentence of an explicit denial
    quote_section: str | None = None  # The section of this sentence
    box_confidence: float | None = None  # Highest confidence of a box in a negative's location
    anomalous_fraction: float | None = None  # Fraction of anomalous pixels in a negative's location


def make_positive(unit: dict, kind: str) -> Pair:
    """Return the positive pair made from a row of the units table, with an instruction of type ``kind``."""
    target, location = unit["target"], tuple(unit["location"])
    heart = target == templates.CARDIOMEGALY
    return Pair(
        kind,
        target,
        templates.write_instruction(kind, unit["word"], location),
        templates.write_positive_answer(kind, target, location, unit["certainty"]),
        (HEART,) if heart else location,
        seg=True,
        certainty=None if heart else unit["certainty"],
        grounded_location=tuple(unit["grounded_location"]),
        reported_location=tuple(unit["reported_location"]),
        **{name: unit[name] for name in ("sentence_index", "mask_id")},
    )


def make_negative(kind: str, lesion: str, location: Iterable[str] = (), **provenance: object) -> Pair:
    """Return the pair that denies ``lesion`` with an instruction of type ``kind``; it has no mask.

    ``location``: empty for a global pair; ``provenance``: other fields of :class:`Pair`.
    """
    location = tuple(location)
    instruction = templates.write_instruction(kind, lesion, location)
    answer = templates.write_negative_answer(kind, lesion, location)
    return Pair(kind, lesion, instruction, answer, location, seg=False, **provenance)


def make_records(study: dict, report: dict, pairs: Iterable[Pair], numbers: Counter | None = None) -> Iterator[Record]:
    """Yield one record per pair of an image. Positives and negatives of a study are each numbered from 0.

    ``study``: ids and split; ``report``: fields of the report section; ``numbers``: {True for positives, False for
    negatives: number of pairs of the study's earlier images}, which is updated.
    """
    numbers = Counter() if numbers is None else numbers
    ids = {name: study[name] for name in ID_FIELDS}
    for pair in pairs:
        yield Record(
            sample_id=f"{study['study_id']}_{POLARITIES[not pair.seg]}_{numbers[pair.seg]}",
            task=pair.type,
            source=SOURCE,
            **ids,
            turns=(Turn(pair.instruction, pair.answer),),
            mask_ids=() if pair.mask_id is None else (pair.mask_id,),
            more=report | {name: getattr(pair, name) for name in PAIR_FIELDS},
        )
        numbers[pair.seg] += 1


def make_line(record: Record) -> dict:
    """Return the dataset line of a record, with all ``FIELDS`` in order."""
    (turn,) = record.turns
    values = dict(record.more) | {name: getattr(record, name) for name in ID_FIELDS}
    values |= {"pair_id": record.sample_id, "type": record.task, "instruction": turn.question, "answer": turn.answer}
    values["mask_id"] = next(iter(record.mask_ids), None)
    return {name: list(value) if isinstance(value := values[name], tuple) else value for name in FIELDS}


def make_positives(units: Iterable[dict], *, one_answer: str) -> tuple[list[Pair], list[dict]]:
    """Return (positive pairs of one image in the order of its units, a dict {type, target, reason} per dropped pair).

    A unit is a row of the units table. If its column ``inference`` is true, it makes two pairs, basic and inference.
    If ``one_answer`` is "strict", all pairs with one instruction but different answers or masks are dropped.
    """
    positive_pairs: list[Pair] = []
    dropped: list[dict] = []
    for unit in units:
        if unit["dropped"] is not None:
            dropped.append(_make_drop(unit["kind"], unit["target"], unit["dropped"]))
            continue
        positive_pairs.append(make_positive(unit, unit["kind"]))
        if unit["inference_dropped"] is not None:
            dropped.append(_make_drop(templates.INFERENCE, unit["target"], unit["inference_dropped"]))
        elif unit["inference"]:
            positive_pairs.append(make_positive(unit, templates.INFERENCE))
    if one_answer == "strict":
        positive_pairs, conflicts = _drop_conflicts(positive_pairs)
        dropped += conflicts
    return positive_pairs, dropped


def _make_drop(kind: str, target: str, reason: str) -> dict:
    return {"type": kind, "target": target, "reason": reason}


def _drop_conflicts(candidate_pairs: list[Pair]) -> tuple[list[Pair], list[dict]]:
    answers: dict[str, set[tuple[str, str | None]]] = {}
    for pair in candidate_pairs:
        answers.setdefault(pair.instruction, set()).add((pair.answer, pair.mask_id))
    pair_by_instruction: dict[str, Pair] = {}
    conflicts = []
    for pair in candidate_pairs:
        if len(answers[pair.instruction]) == 1:
            pair_by_instruction.setdefault(pair.instruction, pair)
        else:
            conflicts.append(_make_drop(pair.type, pair.target, "conflicting_answer"))
    return list(pair_by_instruction.values()), conflicts
