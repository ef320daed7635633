"""Box scores of grounding and detection (RadVLM's mAP without confidences, COCO's AP), and the mean training boxes."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cxr.metrics import labels as label_scores
from cxr.metrics.answer_boxes import score_answer, score_answers
from cxr.metrics.average_precision import average_precision, match_predictions
from cxr.metrics.matching import Boxes
from cxr.radvlm.evaluation.answers import NO_BOXES, AnswerBoxes, Grammar
from cxr.radvlm.evaluation.measures import ALL, HIT_IOU, MAP, Measure, mean_measure, mean_ratio, ratio

STRICT_MAP, STRICT_IOU = "map75", 0.75
COCO_IOUS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)  # IoUs that COCO's AP averages


def reference_boxes(line: Mapping) -> np.ndarray:
    """Return all reference boxes of a line, float64 (M, 4), in the order of its field ``boxes``."""
    return np.array([box for boxes in line["boxes"].values() for box in boxes], np.float64).reshape(-1, 4)


BoxPair = tuple[Mapping, AnswerBoxes | None]  # a line and the boxes of its answer
MeanBoxes = Mapping[tuple[str, ...], np.ndarray]  # {(task, source, name) and (task, source): mean training box (4,)}


def compute_mean_boxes(train: Iterable[Mapping]) -> MeanBoxes:
    """Return the mean training box of each name and each task. Repeated questions about the same fact count once."""
    boxes_by_key, seen_facts = defaultdict(list), set()
    for line in train:
        boxes, key = reference_boxes(line), (line["task"], line["source"])
        name_key = (*key, line.get("asked") or "")
        if len(boxes) and (*name_key, line["image_id"]) not in seen_facts:
            seen_facts.add((*name_key, line["image_id"]))
            boxes_by_key[name_key].append(boxes)
            boxes_by_key[key].append(boxes)
    return {key: np.concatenate(box_arrays).mean(axis=0) for key, box_arrays in boxes_by_key.items()}


def blind_boxes(mean_boxes: MeanBoxes, line: Mapping) -> np.ndarray:
    """Return the mean training box (1, 4) of the name that a line asks about or, without such a box, of its task and
    source. Return no box, (0, 4), if the task and source have none."""
    key = line["task"], line["source"]
    box = mean_boxes.get((*key, line.get("asked") or ""), mean_boxes.get(key))
    return np.zeros((0, 4)) if box is None else box[None]


def measures(pairs: Sequence[BoxPair], *, by_name: bool = True) -> list[Measure]:
    """Return the measures of answers to samples with reference boxes. An answer that is None is excluded.

    map50, map75: mean over answers of the AP at IoU 0.5 and 0.75 (``score_answer``), in total and per name (region or
    finding asked about); map50_mean_of_names: mean of the values per name; precision, recall: over all boxes; iou: mean
    of the best IoU of a reference box; no_box, malformed: fractions of answers without a box, with a malformed box.
    """
    places = [place for place, (_, answer) in enumerate(pairs) if answer is not None]
    scored = [(answer, reference_boxes(line)) for line, answer in pairs if answer is not None]
    answer_boxes, true_boxes = [answer.boxes for answer, _ in scored], [true for _, true in scored]
    worths = zip(*score_answers(answer_boxes, true_boxes, (HIT_IOU, STRICT_IOU)), strict=True)
    table = np.zeros((len(pairs), 9))
    for place, (answer, true), (worth, strict) in zip(places, scored, worths, strict=True):
        table[place] = (
            1.0, worth.precision, strict.precision, worth.hits, len(answer.boxes), len(true), worth.best,
            not len(answer.boxes), answer.malformed > 0,
        )  # fmt: skip
    columns_by_measure = {
        MAP: [1, 0], STRICT_MAP: [2, 0], "precision": [3, 4], "recall": [3, 5], "iou": [6, 0], "no_box": [7, 0],
        "malformed": [8, 0],
    }  # fmt: skip
    measures = [Measure(name, ALL, table[:, columns], ratio) for name, columns in columns_by_measure.items()]
    asked_names = np.array([line.get("asked") or "" for line, _ in pairs], str)
    kinds = sorted(set(asked_names.tolist())) if by_name else []
    tables = {name: table * (asked_names == name)[:, None] for name in kinds}
    if len(kinds) > 1:
        sums = np.concatenate([name_table[:, [1, 0]] for name_table in tables.values()], axis=1)
        measures.append(Measure(f"{MAP}_mean_of_names", ALL, sums, mean_ratio))
    return measures + [
        Measure(measure_name, name, name_table[:, columns_by_measure[measure_name]], ratio)
        for name, name_table in tables.items()
        for measure_name in (MAP, STRICT_MAP, "iou")
    ]


def coco(pairs: Sequence[BoxPair], *, by_name: bool = True) -> dict:
    """Return {coco_ap50, coco_ap} in percent or None, as means over the names asked about (``by_name``) or over all
    answers at once. The nth box of an answer has the confidence 1 / n."""
    groups: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
    for line, answer in pairs:
        if answer is not None:
            groups[(line.get("asked") or "") if by_name else ""].append((answer.boxes, reference_boxes(line)))
    return coco_ap(groups)


def coco_ap(groups: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]]) -> dict:
    """Return {coco_ap50, coco_ap} in percent, as means over the classes that have reference boxes. ``groups``: {class:
    [(predicted boxes, reference boxes) of each image]}."""
    rows = []
    for _, pairs in sorted(groups.items()):
        sides = []
        for image_boxes in zip(*pairs, strict=True):
            image = np.repeat(np.arange(len(pairs)), [len(boxes) for boxes in image_boxes])
            sides.append(Boxes(image, np.concatenate(image_boxes)))
        if not len(sides[1].image):
            continue
        ranks = np.concatenate([1.0 / np.arange(1, len(pair[0]) + 1) for pair in pairs])
        rows.append(average_precision(match_predictions(sides[0], ranks, sides[1], len(pairs), COCO_IOUS))[0])
    if not rows:
        return {"coco_ap50": None, "coco_ap": None}
    mean = np.mean(rows, axis=0)
    return {"coco_ap50": float(mean[COCO_IOUS.index(HIT_IOU)]) * 100, "coco_ap": float(mean.mean()) * 100}


def box_rate(predictions: Sequence[AnswerBoxes | None], failed: Sequence[bool]) -> list[Measure]:
    """Return the measures of answers about absent findings: ``box_rate``, the fraction of answers that ``failed`` or
    have a box, and ``malformed``, the fraction that have a malformed box. An answer that is None is excluded."""
    pairs = zip(predictions, failed, strict=True)
    values = [None if answer is None else float(bad or len(answer.boxes) > 0) for answer, bad in pairs]
    malformed = [None if answer is None else float(answer.malformed > 0) for answer in predictions]
    return [mean_measure("box_rate", values), mean_measure("malformed", malformed)]


Classes = Mapping[str, AnswerBoxes]  # {class: its boxes in an answer}
ClassPair = tuple[Mapping, Classes | None]  # a line and the classes in its answer


def find_classes(
    text: str, wording_by_class: Mapping[str, str], grammar: Grammar, image_size: tuple[int, int]
) -> dict[str, AnswerBoxes]:
    """Return {class named in an answer: boxes between this and the next name}. The longest of overlapping names counts.

    ``wording_by_class``: {class: its name in answers}; ``image_size``: (width, height) in px.
    """
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


def class_measures(pairs: Sequence[ClassPair]) -> list[Measure]:
    """Return the detection measures of samples with their predictions. A prediction that is None is excluded.

    map50: mean AP over pairs of image and present class, in total and by class; map50_mean_of_names: mean of the values
    by class; class_f1: micro F1 of classes with a box; quiet: fraction of images without findings that get no box.
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


def class_coco(pairs: Sequence[ClassPair]) -> dict:
    """Return COCO's AP over images and classes, in percent. Boxes of absent classes are false positives."""
    scored = [(line, predicted) for line, predicted in pairs if predicted is not None]
    return coco_ap({
        name: [(predicted.get(name, NO_BOXES).boxes, _true_boxes(line, name)) for line, predicted in scored]
        for name in {name for line, _ in scored for name in line["boxes"]}
    })  # fmt: skip


def _true_boxes(line: Mapping, name: str) -> np.ndarray:
    return np.array(line["boxes"].get(name, ()), np.float64).reshape(-1, 4)
