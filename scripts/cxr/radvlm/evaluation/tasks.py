"""The measures of each task: of a model's answers, of answers about other pictures, and of answers that look at
nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cxr.metrics.written_boxes import written
from cxr.radvlm.evaluation import classification, detection, grounding, reports
from cxr.radvlm.evaluation.answered import Answered
from cxr.radvlm.evaluation.blind import slots
from cxr.radvlm.evaluation.conversations import BLIND, TASKS, TEST
from cxr.radvlm.evaluation.grammars import NONE, Found, grammar_of
from cxr.radvlm.evaluation.grounding import Ious, MeanBoxes
from cxr.radvlm.evaluation.label_names import LabelReader
from cxr.radvlm.evaluation.measures import ALL, Measure, ratio

GROUNDING = ("anatomical_grounding", "abnormality_grounding", "phrase_grounding", "ils_grounding")
NAMELESS = ("phrase_grounding",)
"""Tasks whose names are texts of their own: nothing is told by name."""
ABSENT = ("absent_grounding", "ils_grounding")
"""Tasks that ask for what is not there."""
MASKS = ("ils_segmentation",)
"""Tasks that the stage evaluation of ILS scores."""
WRONG = "wrong"


@dataclass(frozen=True)
class Tools:
    """What answers are scored with. said: {class: its words}; original: {(source, study): the report's own section};
    judged: {(answers, sample): score, None: unscored}; notes: annotations of reports; failed: wrong or leave_out.
    """

    ious: Ious
    labels: LabelReader
    match: str
    said: Mapping[str, str]
    mean_boxes: MeanBoxes
    metrics: Sequence[str]
    failed: str
    original: Mapping[tuple[str, str], str] = field(default_factory=dict)
    judged: Mapping[tuple[str, str], float | None] = field(default_factory=dict)
    notes: Mapping = field(default_factory=dict)


def measures_of(
    task: str, lines: Sequence[Mapping], said: Sequence[Answered], tools: Tools, *, which: str = TEST,
    reference: str = reports.FILTERED,
) -> list[Measure]:  # fmt: skip
    """Return the measures of the answers ``said`` to lines of one task and source, in an order that no answer
    changes.
    """
    if task == "report_generation":
        return _reports(lines, said, tools, which, reference)
    if task == "classification":
        read = tools.labels.asserted if tools.match == "asserted" else tools.labels.substring
        true = [tools.labels.truth(line["labels"] or ()) for line in lines]
        found = [None if _gone(one, tools) else read(one.text) for one in said]
        return classification.measures(found, true, tools.labels.names, tools.labels.nothing)
    if task == "abnormality_detection":
        return detection.measures(lines, classes(said, tools), tools.ious)
    if task in TASKS:
        return _conversations(task, lines, said, tools, which)
    if task in MASKS:
        return []
    failed = [which != BLIND and bool(one.failure) for one in said]
    return _boxes(task, lines, boxes(lines, said, tools, which), failed, tools)


def coco_of(task: str, lines: Sequence[Mapping], said: Sequence[Answered], tools: Tools) -> dict:
    """Return COCO's AP of the answers where the task has boxes."""
    if task == "abnormality_detection":
        return detection.coco(lines, classes(said, tools), tools.ious)
    if task not in GROUNDING:
        return {}
    held = [(line, one) for line, one in zip(lines, boxes(lines, said, tools, TEST), strict=True) if line["boxes"]]
    return grounding.coco(
        [line for line, _ in held], [one for _, one in held], tools.ious, by_name=task not in NAMELESS
    )


def classes(said: Sequence[Answered], tools: Tools) -> list[detection.Classes | None]:
    """Return the classes that answers name, with their boxes."""
    return [
        None if _gone(one, tools)
        else detection.classes_in(one.text, tools.said, grammar_of(one.convention or "unit", one.crop), one.seen)
        for one in said
    ]  # fmt: skip


def boxes(lines: Sequence[Mapping], said: Sequence[Answered], tools: Tools, which: str) -> list[Found | None]:
    """Return the boxes of answers; of blind ones the mean boxes. A failure is no box, or None where it is left out."""
    if which == BLIND:
        return [Found(tools.mean_boxes.answer(line)) for line in lines]
    return [None if _gone(one, tools) else NONE if one.failure else one.boxes() for one in said]


def _gone(one: Answered, tools: Tools) -> bool:
    return bool(one.failure) and tools.failed != WRONG


def _boxes(
    task: str, lines: Sequence[Mapping], found: Sequence[Found | None], failed: Sequence[bool], tools: Tools
) -> list[Measure]:
    """Return the measures of what is there, and the rate of boxes for what is not, where a failure counts as a box."""
    held: list[Measure] = []
    if task in GROUNDING:
        there = [one if line["boxes"] else None for line, one in zip(lines, found, strict=True)]
        held += grounding.measures(lines, there, tools.ious, by_name=task not in NAMELESS)
    if task in ABSENT:
        nothing = [None if line["boxes"] else one for line, one in zip(lines, found, strict=True)]
        held += grounding.box_rate(nothing, failed)
    return held


def _reports(
    lines: Sequence[Mapping], said: Sequence[Answered], tools: Tools, which: str, reference: str
) -> list[Measure]:
    texts = [None if _gone(one, tools) else one.text for one in said]
    wanted = [line["turns"][0]["answer"] for line in lines]
    if reference == reports.ORIGINAL:
        wanted = [tools.original[line["source"], line["study_id"]] for line in lines]
    held = reports.measures(texts, wanted, tools.metrics)
    if which == TEST:
        failed = [None if _gone(one, tools) else bool(one.failure) for one in said]
        names = [line["sample_id"] for line in lines]
        of, out = (reference, tools.notes, tools.metrics, tools.labels.names), tools.failed != WRONG
        held += reports.annotated(names, failed, *of, leave_out=out)
    return held


def _conversations(
    task: str, lines: Sequence[Mapping], said: Sequence[Answered], tools: Tools, which: str
) -> list[Measure]:
    """Return the judge's mean score, and of grounded conversations the mAP over the turns whose answer has boxes."""
    rows = []
    for line, one in zip(lines, said, strict=True):
        score = None if one.failure else tools.judged.get((which, line["sample_id"]))
        left = score is None and tools.failed != WRONG
        rows.append([0.0, 0.0] if left else [score or 0.0, 1.0])
    held = [Measure("judge", ALL, np.array(rows, np.float64).reshape(-1, 2), ratio, 1.0)]
    if task == "conversation_grounded":
        name = f"map{round(100 * tools.ious.hit)}"
        worth = [_worth(line, one, tools) for line, one in zip(lines, said, strict=True)]
        held.append(Measure(name, ALL, np.array(worth, np.float64).reshape(-1, 2), ratio))
    return held


def _worth(line: Mapping, one: Answered, tools: Tools) -> tuple[float, float]:
    """Return the sum of the AP of a conversation's turns with boxes, and their number."""
    if _gone(one, tools):
        return 0.0, 0.0
    total, number = 0.0, 0
    for turn, told in enumerate(line["turns"]):
        true = [box for slot in slots(told["answer"]) for box in line["boxes"][slot]]
        if true:
            found = NONE if one.failure else one.boxes(turn)
            total += written(found.boxes, np.array(true, np.float64), tools.ious.hit).precision
            number += 1
    return total, float(number)
