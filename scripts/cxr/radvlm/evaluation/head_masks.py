"""Masks of a model's own head for ILS pairs, in the prediction format of the ILS evaluation."""

from collections.abc import Iterator, Mapping
from itertools import count

import numpy as np

from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_lines, write_lines
from cxr.radvlm.evaluation.segmenter import mask_key

NO_SEG, SEVERAL_SEG = "no_seg", "several_seg"
"""Notes on answers: without [SEG], so without a mask; with several [SEG], whose masks are united."""


def run(*, lines: str, answers: str, masks: str, predictions: str, prediction_masks: str, attrs: dict) -> None:
    """Write a run's answers to the pairs ``lines``, in order, and one mask per answer with a [SEG] token.

    ``masks``: one per [SEG] token, key mask_key, bool (H, W) in the frame. [SEG] spelled with other tokens is text and
    has no mask. Pairs without an answer are skipped.
    """
    answer_by_sample = {answer["sample_id"]: answer for answer in read_lines(answers) if answer["turn"] == 0}
    with Shard(masks, key="mask_key") as mask_shard:
        empty = {"mask": (mask_shard.shape("mask"), bool)}
        with ShardWriter(prediction_masks, key="pair_id", attrs=attrs, empty=empty) as writer:
            answered_lines = (line for line in read_lines(lines) if line["sample_id"] in answer_by_sample)
            write_lines(
                predictions,
                (
                    _prediction_line(line, answer_by_sample[line["sample_id"]], mask_shard, writer)
                    for line in answered_lines
                ),
            )


def _prediction_line(line: Mapping, answer: Mapping, mask_shard: Shard, writer: ShardWriter) -> dict:
    pair_id = line["facts"][0]
    if answer["failure"]:
        return {"pair_id": pair_id, "answer": None, "mask": None, "failure": "failed", "detail": answer["failure"]}
    masks = list(_read_masks(line["sample_id"], mask_shard))
    if masks:
        writer.append(pair_id, mask=np.logical_or.reduce(masks))
    note = "" if len(masks) == 1 else SEVERAL_SEG if masks else NO_SEG
    entry = {"pair_id": pair_id, "answer": answer["text"], "mask": pair_id if masks else None}
    return entry | ({"note": note} if note else {})


def _read_masks(sample_id: str, mask_shard: Shard) -> Iterator[np.ndarray]:
    for number in count():
        key = mask_key(sample_id, 0, number)
        if key not in mask_shard:
            return
        yield mask_shard.get("mask", key)
