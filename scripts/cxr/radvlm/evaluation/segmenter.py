"""ROSALIA as a tool of a run without a mask head: it makes a mask for each [SEG] token in the run's answers.

Requests have the format of the ILS dataset's lines. Masks and texts have the format of ROSALIA's inference.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile
from pathlib import Path

import numpy as np

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.jobs import log
from cxr.base.tables import read_lines, write_lines
from cxr.instructions.record import Turn
from cxr.radvlm.samples import SEG, make_line
from cxr.radvlm.statements import read_statements, split_sentences

COHORT, ILS = "own", "ils_segmentation"
INSTRUCTION = "Segment the {}."  # instruction to ROSALIA for a lesion type


def run_ils(*, pairs: str, lines: str) -> None:
    """Write all ILS questions of a split as samples, in the same order. The sample id is the question's ``pair_id``."""

    def to_line(pair: Mapping) -> dict:
        turns = (Turn(pair["instruction"], pair["answer"], f"ils:{pair['type']}"),)
        fields = {"mask_ids": (pair["mask_id"] or "",), "facts": (pair["pair_id"],), "target": pair["target"]}
        return make_line(pair["pair_id"], ILS, dict(pair) | {"source": COHORT}, turns, boxes={}, **fields)

    write_lines(lines, map(to_line, read_lines(pairs)))


def run_asked(*, lines: str, answers: str, asked: str, source: str) -> None:
    """Write a request to ROSALIA for each [SEG] in the answers about images of a source, sorted by image. A request has
    the sample, the turn, and the number of the [SEG] in it."""
    texts_by_sample: dict[str, dict[int, str]] = {}
    for answer in read_lines(answers):
        text = "" if answer["failure"] else answer["text"]
        texts_by_sample.setdefault(answer["sample_id"], {})[answer["turn"]] = text
    source_lines = [line for line in read_lines(lines) if line["source"] == source]
    pairs = [pair for line in source_lines for pair in build_pairs(line, texts_by_sample.get(line["sample_id"], {}))]
    order = {image_id: place for place, image_id in reversed(list(enumerate(pair["image_id"] for pair in pairs)))}
    write_lines(asked, sorted(pairs, key=lambda pair: order[pair["image_id"]]))
    log.info("%d masks of %d samples are requested from ROSALIA", len(pairs), len(source_lines))


def build_pairs(line: Mapping, text_by_turn: Mapping[int, str]) -> Iterator[dict]:
    """Yield the requests to ROSALIA about one sample. ``text_by_turn``: {turn: the model's answer}."""
    texts = [(turn["question"], text_by_turn.get(number, "")) for number, turn in enumerate(line["turns"])]
    # an ILS pair is requested with its own instruction, whatever the model answered
    is_pair = line["task"] == ILS
    for turn, number, instruction in [(0, 0, texts[0][0])] if is_pair else build_instructions(texts):
        pair_id = line["facts"][0] if is_pair else mask_key(line["sample_id"], turn, number)
        fields = {"pair_id": pair_id, "image_id": line["image_id"], "instruction": instruction}
        fields |= {"answer": "", "seg": False, "mask_id": None}
        yield fields | {"sample_id": line["sample_id"], "turn": turn, "number": number}


def mask_key(sample_id: str, turn: int, number: int) -> str:
    """Return the id of the mask for the [SEG] with this number, from 0, in a turn."""
    return f"{sample_id}/{turn}/{number}"


def build_instructions(turns: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield (turn, number, instruction) for each [SEG] in the answers of ``turns`` (question, answer).

    The instruction names the last finding before the [SEG]. If an answer has one [SEG] and no finding before it, the
    finding after it counts. Without a finding, or if the finding has no lesion type, the instruction is the question.
    """
    last: str | None = None
    for turn, (question, answer) in enumerate(turns):
        last = _last_lesion(question, last)
        *before, remainder = answer.split(SEG)
        for number, text in enumerate(before):
            last = _last_lesion(text, _last_lesion(remainder, last) if len(before) == 1 else last)
            yield turn, number, INSTRUCTION.format(last) if last else question
        last = _last_lesion(remainder, last)


def _last_lesion(text: str, before: str | None) -> str | None:
    """Return the lesion type of the last finding in a text, None if it has none, ``before`` if there is no finding."""
    statements = read_statements(split_sentences(text))
    return statements[-1].lesion if statements else before


def run_asked_image(*, conversation: str, asked: str) -> None:
    """Write a request {instruction, turn, number} for each [SEG] in the answers about one image."""
    about = json.loads(Path(conversation, "answers.json").read_text(encoding="utf-8"))
    turns = [(turn["question"], turn["answer"]) for turn in about["turns"]]
    instructions = build_instructions(turns)
    write_lines(asked, ({"instruction": text, "turn": turn, "number": number} for turn, number, text in instructions))


def run_beside(*, asked: list[str], predictions: list[str], segmented: str) -> None:
    """Join ROSALIA's answers to the turns that requested them. Raises UserError if an answer is missing.

    The output field ``mask`` is an id in the source's HDF5 file of masks, or null.
    """

    def joined_lines() -> Iterator[dict]:
        for requests_path, predictions_path in zip(asked, predictions, strict=True):
            answers = {answer["pair_id"]: answer for answer in read_lines(predictions_path)}
            for request in read_lines(requests_path):
                prediction = answers.get(request["pair_id"])
                if prediction is None:
                    problem = f"{predictions_path} lacks {request['pair_id']}, which {requests_path} requests"
                    raise UserError(f"{problem}: delete {predictions_path} and rerun")
                fields = {name: request[name] for name in ("sample_id", "turn", "number", "instruction")}
                fields |= {"text": prediction["answer"], "mask": prediction["mask"]}
                yield fields | {name: prediction.get(name, "") for name in ("note", "failure")}

    write_lines(segmented, joined_lines())


NO_SEG, SEVERAL_SEG = "no_seg", "several_seg"  # notes on answers: no mask; several masks, which are united


def run_head(*, lines: str, answers: str, masks: str, predictions: str, prediction_masks: str, attrs: dict) -> None:
    """Write a run's answers to the ILS questions in ``lines``, each with the union of its masks. Skip questions without
    an answer."""
    answer_by_sample = {answer["sample_id"]: answer for answer in read_lines(answers) if answer["turn"] == 0}
    with Shard(masks, key="mask_key") as mask_shard:
        empty = {"mask": (mask_shard.shape("mask"), bool)}
        with ShardWriter(prediction_masks, key="pair_id", attrs=attrs, empty=empty) as writer:
            pairs = ((line, answer_by_sample.get(line["sample_id"])) for line in read_lines(lines))
            rows = (_prediction_line(line, answer, mask_shard, writer) for line, answer in pairs if answer is not None)
            write_lines(predictions, rows)


def _prediction_line(line: Mapping, answer: Mapping, mask_shard: Shard, writer: ShardWriter) -> dict:
    pair_id = line["facts"][0]
    if answer["failure"]:
        return {"pair_id": pair_id, "answer": None, "mask": None, "failure": "failed", "detail": answer["failure"]}
    keys = (mask_key(line["sample_id"], 0, number) for number in count())
    masks = [mask_shard.get("mask", key) for key in takewhile(mask_shard.__contains__, keys)]
    if masks:
        writer.append(pair_id, mask=np.logical_or.reduce(masks))
    note = "" if len(masks) == 1 else SEVERAL_SEG if masks else NO_SEG
    entry = {"pair_id": pair_id, "answer": answer["text"], "mask": pair_id if masks else None}
    return entry | ({"note": note} if note else {})
