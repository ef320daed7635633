"""Score each pair: overlap of its predicted mask with the reference, and correctness of its answer."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.hdf5 import Shards, pack
from cxr.base.jobs import progress
from cxr.geometry.masks import resize_mask
from cxr.ils.evaluation import answer_rules
from cxr.ils.evaluation.predictions import NOT_ASKED, Prediction, Predictions
from cxr.metrics.masks import lisa_iou, overlap_packed

COLUMNS = {
    "pair_id": Column(pl.String, "Pair."),
    "subject_id": Column(pl.String, "Its patient."),
    "target": Column(pl.String, "Lesion type; for a positive lesion inference, the inferred disease."),
    "type": Column(pl.String, "basic, global or lesion_inference."),
    "polarity": Column(pl.String, "positive or negative."),
    "intersection": Column(pl.Int64, "Area in both masks.", "pixels of the evaluation's square"),
    "union": Column(pl.Int64, "Area in either mask.", "pixels of the evaluation's square"),
    "iou": Column(pl.Float32, "Overlap; null where the pair is not scored for masks."),
    **{
        rule: Column(pl.Boolean, f"Whether the answer is right by the rule `{rule}`; null where it is not scored.")
        for rule in answer_rules.RULES
    },
    "reason": Column(pl.String, "Why the pair is not scored as it stands; null if it is."),
    "detail": Column(pl.String, "What exactly was wrong."),
}
SCHEMA = schema(COLUMNS)  # ``iou`` and the rules are null if the pair is not scored for masks or text
REQUIRED = ("pair_id", "subject_id", "target", "type", "instruction", "answer", "seg", "mask_id")


class References(Shards):
    """The masks of the dataset, resized to the evaluation's square. A context manager."""

    def __init__(self, masks: Sequence[str], size: int):
        super().__init__(masks, "mask_id")
        self.size = size
        # consecutive pairs belong to one study and share masks
        self._packed = lru_cache(maxsize=64)(lambda name: pack(resize_mask(self.get("mask", name), size)))

    def packed(self, line: Mapping) -> np.ndarray:
        """Return the reference mask of a pair, uint8 packed (size, size / 8), empty if negative."""
        return self._packed(line["mask_id"]) if line["seg"] else np.zeros((self.size, self.size // 8), np.uint8)


def score_pairs(
    lines: Sequence[Mapping], references: References, predictions: Predictions, reviewed: set[str]
) -> pl.DataFrame:
    """Return the rows of ``SCHEMA`` in the order of the lines.

    A pair with an unusable prediction is wrong in every score. If a run has any answer, a pair without one is wrong. A
    run without answers has no text scores.
    """
    has_answers = any(isinstance(entry.get("answer"), str) for entry in predictions.entry_by_pair.values())
    rows = _score_rows(lines, references, predictions, reviewed, has_answers)
    return pl.DataFrame(progress(rows, len(lines), "evaluation"), schema=SCHEMA, orient="row")


def _score_rows(
    lines: Sequence[Mapping], references: References, predictions: Predictions, reviewed: set[str], has_answers: bool
) -> Iterator[tuple]:
    for line in lines:
        polarity = "positive" if line["seg"] else "negative"
        pair_columns = (line["pair_id"], line["subject_id"], line["target"], line["type"], polarity)
        is_rejected = line["pair_id"] in reviewed
        prediction = Prediction(None, None, "reviewed") if is_rejected else predictions.get(line["pair_id"])
        if prediction.reason in ("reviewed", NOT_ASKED):
            yield (*pair_columns, None, None, None, *[None] * len(answer_rules.RULES), prediction.reason, "")
            continue
        reference = references.packed(line)
        if prediction.mask is None:  # an IoU of 0 for a negative, too: a failure does not count as "no lesion"
            areas = 0, overlap_packed(reference, reference).union, 0.0
        else:
            intersection, union = overlap_packed(prediction.mask, reference)
            areas = intersection, union, float(lisa_iou(intersection, union))
        if not has_answers:
            judged = dict.fromkeys(answer_rules.RULES)
        elif prediction.answer is None or prediction.reason == "duplicate":
            judged = dict.fromkeys(answer_rules.RULES, False)
        else:
            judged = answer_rules.judge_answer(line["type"], line["answer"], prediction.answer)
        judgements = (judged[rule] for rule in answer_rules.RULES)
        yield (*pair_columns, *areas, *judgements, prediction.reason, prediction.detail)
