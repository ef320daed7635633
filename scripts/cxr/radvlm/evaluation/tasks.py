"""The measures of each task, for a model's answers, answers about exchanged images, and blind answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cxr.metrics.answer_boxes import score_answer
from cxr.radvlm.evaluation import classification, detection, grounding, reports
from cxr.radvlm.evaluation.answers import NO_BOXES, AnswerBoxes, SampleAnswer, load_grammar, turn_boxes
from cxr.radvlm.evaluation.classification import LabelReader
from cxr.radvlm.evaluation.conversations import BLIND, TASKS, TEST
from cxr.radvlm.evaluation.grounding import MeanBoxes
from cxr.radvlm.evaluation.measures import ALL, HIT_IOU, MAP, Measure, ratio
from cxr.radvlm.evaluation.settings import ScoreOptions

GROUNDING_TASKS = ("anatomical_grounding", "abnormality_grounding", "phrase_grounding", "ils_grounding")
UNNAMED_TASKS = ("phrase_grounding",)
"""Tasks whose names are free text; they have no scores by name."""
ABSENCE_TASKS = ("absent_grounding", "ils_grounding")
"""Tasks with questions about absent findings."""
MASK_TASKS = ("ils_segmentation",)
"""Tasks scored by the ILS evaluation."""
WRONG = "wrong"


@dataclass(frozen=True)
class ScoringTools:
    """Settings and references of scoring. wording_by_class: {class: wording}; original: {(source, study): section};
    judged: {(answers, sample): score, None: unscored}; notes: report annotations.
    """

    options: ScoreOptions
    labels: LabelReader
    wording_by_class: Mapping[str, str]
    mean_boxes: MeanBoxes
    original: Mapping[tuple[str, str], str] = field(default_factory=dict)
    judged: Mapping[tuple[str, str], float | None] = field(default_factory=dict)
    notes: Mapping = field(default_factory=dict)


def measure_task(
    task: str, lines: Sequence[Mapping], answers: Sequence[SampleAnswer], tools: ScoringTools, *, which: str = TEST,
    reference: str = reports.FILTERED,
) -> list[Measure]:  # fmt: skip
    """Return the measures of answers to the lines of one task and source, in a fixed order."""
    if task == "report_generation":
        return _report_measures(lines, answers, tools, which, reference)
    if task == "classification":
        read_labels = tools.labels.asserted if tools.options.label_match == "asserted" else tools.labels.substring
        true_labels = (tools.labels.truth(line["labels"] or ()) for line in lines)
        pairs = [
            None if _is_excluded(answer, tools) else (read_labels(answer.text), labels)
            for answer, labels in zip(answers, true_labels, strict=True)
        ]
        return classification.measures(pairs, tools.labels.names, tools.labels.nothing)
    if task == "abnormality_detection":
        return detection.measures(lines, read_classes(answers, tools))
    if task in TASKS:
        return _conversation_measures(task, lines, answers, tools, which)
    if task in MASK_TASKS:
        return []
    failed = [which != BLIND and bool(answer.failure) for answer in answers]
    return _box_measures(task, lines, read_boxes(lines, answers, tools, which), failed)


def coco_scores(task: str, lines: Sequence[Mapping], answers: Sequence[SampleAnswer], tools: ScoringTools) -> dict:
    """Return COCO's AP of the answers; empty for tasks without boxes."""
    if task == "abnormality_detection":
        return detection.coco(lines, read_classes(answers, tools))
    if task not in GROUNDING_TASKS:
        return {}
    answer_boxes = [
        boxes if line["boxes"] else None
        for line, boxes in zip(lines, read_boxes(lines, answers, tools, TEST), strict=True)
    ]
    return grounding.coco(lines, answer_boxes, by_name=task not in UNNAMED_TASKS)


def read_classes(answers: Sequence[SampleAnswer], tools: ScoringTools) -> list[detection.Classes | None]:
    """Return the classes in answers with their boxes; None for excluded failures."""
    return [
        None if _is_excluded(answer, tools)
        else detection.find_classes(
            answer.text, tools.wording_by_class, load_grammar(answer.convention or "unit", answer.crop), answer.seen
        )
        for answer in answers
    ]  # fmt: skip


def read_boxes(
    lines: Sequence[Mapping], answers: Sequence[SampleAnswer], tools: ScoringTools, which: str
) -> list[AnswerBoxes | None]:
    """Return the boxes of answers, or mean boxes for blind answers; a failure has no boxes, None if excluded."""
    if which == BLIND:
        return [AnswerBoxes(grounding.blind_boxes(tools.mean_boxes, line)) for line in lines]
    return [
        None if _is_excluded(answer, tools) else NO_BOXES if answer.failure else answer.boxes() for answer in answers
    ]


def _is_excluded(answer: SampleAnswer, tools: ScoringTools) -> bool:
    return bool(answer.failure) and tools.options.failed != WRONG


def _box_measures(
    task: str, lines: Sequence[Mapping], predictions: Sequence[AnswerBoxes | None], failed: Sequence[bool]
) -> list[Measure]:
    """Return the box measures of present findings, and the box rate of absent ones."""
    measures: list[Measure] = []
    if task in GROUNDING_TASKS:
        positive = [answer if line["boxes"] else None for line, answer in zip(lines, predictions, strict=True)]
        measures += grounding.measures(lines, positive, by_name=task not in UNNAMED_TASKS)
    if task in ABSENCE_TASKS:
        negative = [None if line["boxes"] else answer for line, answer in zip(lines, predictions, strict=True)]
        measures += grounding.box_rate(negative, failed)
    return measures


def _report_measures(
    lines: Sequence[Mapping], answers: Sequence[SampleAnswer], tools: ScoringTools, which: str, reference: str
) -> list[Measure]:
    texts = [None if _is_excluded(answer, tools) else answer.text for answer in answers]
    references = [line["turns"][0]["answer"] for line in lines]
    if reference == reports.ORIGINAL:
        references = [tools.original[line["source"], line["study_id"]] for line in lines]
    measures = reports.text_measures(texts, references, tools.options.report_metrics)
    if which == TEST:
        failed = [None if _is_excluded(answer, tools) else bool(answer.failure) for answer in answers]
        names = [line["sample_id"] for line in lines]
        measures += reports.annotation_measures(
            names, failed, reference, tools.notes, tools.options.report_metrics, tools.labels.names,
            leave_out=tools.options.failed != WRONG,
        )  # fmt: skip
    return measures


def _conversation_measures(
    task: str, lines: Sequence[Mapping], answers: Sequence[SampleAnswer], tools: ScoringTools, which: str
) -> list[Measure]:
    """Return the mean judge score and, for grounded conversations, the mAP over turns with reference boxes."""
    rows = []
    for line, answer in zip(lines, answers, strict=True):
        score = None if answer.failure else tools.judged.get((which, line["sample_id"]))
        is_excluded = score is None and tools.options.failed != WRONG
        rows.append([0.0, 0.0] if is_excluded else [score or 0.0, 1.0])
    measures = [Measure("judge", ALL, np.array(rows, np.float64).reshape(-1, 2), ratio, 1.0)]
    if task == "conversation_grounded":
        worth = [_sum_precisions(line, answer, tools) for line, answer in zip(lines, answers, strict=True)]
        measures.append(Measure(MAP, ALL, np.array(worth, np.float64).reshape(-1, 2), ratio))
    return measures


def _sum_precisions(line: Mapping, answer: SampleAnswer, tools: ScoringTools) -> tuple[float, float]:
    """Return the summed AP and the number of a conversation's turns with reference boxes."""
    if _is_excluded(answer, tools):
        return 0.0, 0.0
    total, number = 0.0, 0
    for turn in range(len(line["turns"])):
        true_boxes = turn_boxes(line, turn)
        if len(true_boxes):
            answer_boxes = NO_BOXES if answer.failure else answer.boxes(turn)
            total += score_answer(answer_boxes.boxes, true_boxes, HIT_IOU).precision
            number += 1
    return total, float(number)
