"""The measures of each task: for a model's answers, answers about another patient's image (exchanged), and answers
without the image (blind)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cxr.metrics.answer_boxes import score_answer
from cxr.radvlm.evaluation import classification, grounding, reports
from cxr.radvlm.evaluation.answers import NO_BOXES, AnswerBoxes, Pair, SampleAnswer, turn_boxes
from cxr.radvlm.evaluation.classification import LabelReader
from cxr.radvlm.evaluation.conversations import BLIND, TEST
from cxr.radvlm.evaluation.grounding import MeanBoxes
from cxr.radvlm.evaluation.measures import ALL, HIT_IOU, MAP, Measure, ratio
from cxr.radvlm.labels import load_label_names
from cxr.radvlm.samples import CONVERSATION_TASKS
from cxr.radvlm.settings import ScoreOptions

GROUNDING_TASKS = ("anatomical_grounding", "abnormality_grounding", "phrase_grounding", "ils_grounding")
UNNAMED_TASKS = ("phrase_grounding",)  # tasks whose names are free text; they have no scores by name
ABSENCE_TASKS = ("absent_grounding", "ils_grounding")  # tasks with questions about absent findings
MASK_TASKS = ("ils_segmentation",)  # tasks scored by the ILS evaluation
WRONG = "wrong"


@dataclass(frozen=True)
class ScoringTools:
    """The settings and data from which the scores of a run are computed."""

    options: ScoreOptions
    labels: LabelReader  # reads labels from answers
    wording_by_class: Mapping[str, str]  # {class: its name in answers}
    mean_boxes: MeanBoxes
    original: Mapping[tuple[str, str], str] = field(default_factory=dict)  # {(source, study): report section}
    judged: Mapping[tuple[str, str], float | None] = field(default_factory=dict)  # {(answers, sample): score}
    notes: Mapping = field(default_factory=dict)  # annotations of reports

    def excludes(self, answer: SampleAnswer) -> bool:
        """Return whether an answer is a failure that is excluded instead of counted as wrong."""
        return bool(answer.failure) and self.options.failed != WRONG


def measure_task(
    task: str, pairs: Sequence[Pair], tools: ScoringTools, *, which: str = TEST, reference: str = reports.FILTERED
) -> list[Measure]:
    """Return the measures of answers to the lines of one task and source, in a fixed order.

    ``which``: ``test``, ``exchanged`` or ``blind``; ``reference``: ``filtered`` or ``original`` reference reports.
    """
    if task == "report_generation":
        return _report_measures(pairs, tools, which, reference)
    if task == "classification":
        read_labels = tools.labels.asserted if tools.options.label_match == "asserted" else tools.labels.substring
        label_pairs = [
            None if tools.excludes(answer) else (read_labels(answer.text), tools.labels.truth(line["labels"] or ()))
            for line, answer in pairs
        ]
        return classification.measures(label_pairs, load_label_names().names, load_label_names().no_finding)
    if task == "abnormality_detection":
        return grounding.class_measures(read_classes(pairs, tools))
    if task in CONVERSATION_TASKS:
        return _conversation_measures(task, pairs, tools, which)
    if task in MASK_TASKS:
        return []
    answer_boxes, measures = read_boxes(pairs, tools, which), []
    if task in GROUNDING_TASKS:
        measures += grounding.measures(_of_present_findings(answer_boxes), by_name=task not in UNNAMED_TASKS)
    if task in ABSENCE_TASKS:
        absent = [None if line["boxes"] else boxes for line, boxes in answer_boxes]
        measures += grounding.box_rate(absent, [which != BLIND and bool(answer.failure) for _, answer in pairs])
    return measures


def coco_scores(task: str, pairs: Sequence[Pair], tools: ScoringTools) -> dict:
    """Return {coco_ap50, coco_ap} of the answers, {} for tasks without boxes."""
    if task == "abnormality_detection":
        return grounding.class_coco(read_classes(pairs, tools))
    if task not in GROUNDING_TASKS:
        return {}
    answer_boxes = _of_present_findings(read_boxes(pairs, tools, TEST))
    return grounding.coco(answer_boxes, by_name=task not in UNNAMED_TASKS)


def read_classes(pairs: Sequence[Pair], tools: ScoringTools) -> list[tuple[Mapping, grounding.Classes | None]]:
    """Return (line, {class named in the answer: boxes}) of each pair, with None instead if the answer is excluded."""
    return [
        (line, None if tools.excludes(answer)
         else grounding.find_classes(answer.text, tools.wording_by_class, answer.grammar, answer.input_size))
        for line, answer in pairs
    ]  # fmt: skip


def read_boxes(pairs: Sequence[Pair], tools: ScoringTools, which: str) -> list[grounding.BoxPair]:
    """Return (line, boxes) of each pair: mean training boxes if ``which`` is ``blind``, None for excluded answers."""
    if which == BLIND:
        return [(line, AnswerBoxes(grounding.blind_boxes(tools.mean_boxes, line))) for line, _ in pairs]
    return [
        (line, None if tools.excludes(answer) else NO_BOXES if answer.failure else answer.boxes())
        for line, answer in pairs
    ]


def _of_present_findings(answer_boxes: Sequence[grounding.BoxPair]) -> list[grounding.BoxPair]:
    return [(line, boxes if line["boxes"] else None) for line, boxes in answer_boxes]


def _report_measures(pairs: Sequence[Pair], tools: ScoringTools, which: str, reference: str) -> list[Measure]:
    texts = [None if tools.excludes(answer) else answer.text for _, answer in pairs]
    references = [
        tools.original[line["source"], line["study_id"]] if reference == reports.ORIGINAL
        else line["turns"][0]["answer"]
        for line, _ in pairs
    ]  # fmt: skip
    measures = reports.text_measures(texts, references, tools.options.report_metrics)
    if which == TEST:
        failed = [None if tools.excludes(answer) else bool(answer.failure) for _, answer in pairs]
        measures += reports.annotation_measures(
            [line["sample_id"] for line, _ in pairs], failed, reference, tools.notes, tools.options.report_metrics,
            load_label_names().names, leave_out=tools.options.failed != WRONG,
        )  # fmt: skip
    return measures


def _conversation_measures(task: str, pairs: Sequence[Pair], tools: ScoringTools, which: str) -> list[Measure]:
    rows = []
    for line, answer in pairs:
        score = None if answer.failure else tools.judged.get((which, line["sample_id"]))
        is_excluded = score is None and tools.options.failed != WRONG
        rows.append([0.0, 0.0] if is_excluded else [score or 0.0, 1.0])
    measures = [Measure("judge", ALL, np.array(rows, np.float64).reshape(-1, 2), ratio, 1.0)]
    if task == "conversation_grounded":
        worths = [_sum_precisions(line, answer, tools) for line, answer in pairs]
        measures.append(Measure(MAP, ALL, np.array(worths, np.float64).reshape(-1, 2), ratio))
    return measures


def _sum_precisions(line: Mapping, answer: SampleAnswer, tools: ScoringTools) -> tuple[float, float]:
    """Return (sum of the AP, number of turns) over the turns of a conversation that have reference boxes."""
    total, number = 0.0, 0
    for turn in range(0 if tools.excludes(answer) else len(line["turns"])):
        if len(true_boxes := turn_boxes(line, turn)):
            answer_boxes = NO_BOXES if answer.failure else answer.boxes(turn)
            total += score_answer(answer_boxes.boxes, true_boxes, HIT_IOU).precision
            number += 1
    return total, float(number)
