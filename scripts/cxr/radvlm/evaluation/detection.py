"""Detection scores: an answer names classes, each followed by its boxes."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from cxr.metrics import labels as label_scores
from cxr.metrics.answer_boxes import score_answer
from cxr.radvlm.evaluation.answers import NO_BOXES, AnswerBoxes, Grammar
from cxr.radvlm.evaluation.grounding import coco_ap
from cxr.radvlm.evaluation.measures import ALL, HIT_IOU, MAP, Measure, mean_measure, mean_ratio, ratio

Classes = Mapping[str, AnswerBoxes]  # {class: its boxes in an answer}
ClassPair = tuple[Mapping, Classes | None]  # a line and the classes in its answer


def find_classes(
    text: str, wording_by_class: Mapping[str, str], grammar: Grammar, image_size: tuple[int, int]
) -> dict[str, AnswerBoxes]:
    """Return the classes named in an answer (the longest wording wins) with their boxes up to the next name."""
    names = {wording.lower(): name for name, wording in wording_by_class.items()}
    ordered = sorted(names, key=lambda wording: (-len(wording), wording))
    if not ordered:
        return {}
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, ordered))})(?:s|es)?\b", re.IGNORECASE)
    matches = list(pattern.finditer(text))
    boxes_by_class: dict[str, AnswerBoxes] = {}
    ends = [*(match.start() for match in matches), len(text)][1:]
    for match, end in zip(matches, ends, strict=False):  # without a match there is no end
        answer_boxes, name = grammar(text[match.end() : end], image_size), names[match[1].lower()]
        before = boxes_by_class.get(name, NO_BOXES)
        boxes = np.concatenate([before.boxes, answer_boxes.boxes])
        boxes_by_class[name] = AnswerBoxes(boxes, before.malformed + answer_boxes.malformed)
    return boxes_by_class


def measures(pairs: Sequence[ClassPair]) -> list[Measure]:
    """Return the detection measures of lines with their predictions; None is an excluded failure.

    map: mean AP over (image, present class), by class, and the mean over classes; class_f1: micro F1 of the classes
    with a box; quiet: fraction of images without findings whose answer has no box.
    """
    kinds = sorted({name for line, _ in pairs for name in line["boxes"]})
    each = np.zeros((len(pairs), len(kinds), 2))
    counts = np.zeros((len(pairs), 3))
    quiet: list[float | None] = [None] * len(pairs)
    for place, (line, predicted) in enumerate(pairs):
        if predicted is None:
            continue
        true, boxed = set(line["boxes"]), {name for name, answer in predicted.items() if len(answer.boxes)}
        counts[place] = len(true & boxed), len(boxed - true), len(true - boxed)
        for name in true:
            worth = score_answer(predicted.get(name, NO_BOXES).boxes, _true_boxes(line, name), HIT_IOU)
            each[place, kinds.index(name)] = worth.precision, 1.0
        quiet[place] = None if true else float(not boxed)
    return [
        Measure(MAP, ALL, np.stack([each[..., 0].sum(axis=1), each[..., 1].sum(axis=1)], axis=1), ratio),
        Measure(f"{MAP}_mean_of_names", ALL, each.reshape(len(pairs), -1), mean_ratio),
        Measure("class_f1", ALL, counts, label_scores.f1),
        mean_measure("quiet", quiet),
        *(Measure(MAP, kind, each[:, number], ratio) for number, kind in enumerate(kinds)),
    ]


def coco(pairs: Sequence[ClassPair]) -> dict:
    """Return COCO's AP over images and classes, percent; boxes of absent classes are false positives."""
    scored = [(line, predicted) for line, predicted in pairs if predicted is not None]
    return coco_ap({
        name: [(predicted.get(name, NO_BOXES).boxes, _true_boxes(line, name)) for line, predicted in scored]
        for name in {name for line, _ in scored for name in line["boxes"]}
    })  # fmt: skip


def _true_boxes(line: Mapping, name: str) -> np.ndarray:
    return np.array(line["boxes"].get(name, ()), np.float64).reshape(-1, 4)
