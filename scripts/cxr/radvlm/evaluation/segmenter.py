"""ROSALIA as a tool: what it is asked for a run's answers, and its masks and texts beside their turns.

Both are files: ROSALIA reads pairs as the dataset of ILS has them, and writes answers and masks as its inference does.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cxr.base.errors import UserError
from cxr.base.jobs import log
from cxr.base.tables import read_lines, write_lines
from cxr.instructions.record import Turn
from cxr.radvlm.samples import SEG, make_sample, sample_line
from cxr.radvlm.statements import read_statements, split_sentences

OWN, ILS = "own", "ils_segmentation"
INSTRUCTION = "Segment the {}."
"""The instruction that names a lesion alone, as ROSALIA has learnt it: of it are the masks of conversations too."""


@dataclass(frozen=True)
class AskedOptions:
    """source: whose samples are asked."""

    source: str


def run_ils(*, pairs: str, lines: str) -> None:
    """Write all pairs of a split of the ILS dataset as samples to ask, in their order; a sample has its pair's id."""
    write_lines(lines, (sample_line(_sample(pair)) for pair in read_lines(pairs)))


def _sample(pair: Mapping):
    turns = (Turn(pair["instruction"], pair["answer"], f"ils:{pair['type']}"),)
    fields = {"mask_ids": (pair["mask_id"] or "",), "facts": (pair["pair_id"],), "target": pair["target"]}
    return make_sample(pair["pair_id"], ILS, dict(pair) | {"source": OWN}, turns, **fields)


def run_asked(*, lines: str, answers: str, asked: str, options: AskedOptions) -> None:
    """Write what ROSALIA is asked about the samples of a source, as pairs; the pairs of an image follow one another.

    A pair is {pair_id, image_id, instruction, answer, seg, mask_id, sample_id, turn, number}; the last three say which
    [SEG] of which turn it is of. Answers and masks that are right are none of it.
    """
    texts_by_sample: dict[str, dict[int, str]] = {}
    for answer in read_lines(answers):
        texts_by_sample.setdefault(answer["sample_id"], {})[answer["turn"]] = (
            "" if answer["failure"] else answer["text"]
        )
    source_lines = [line for line in read_lines(lines) if line["source"] == options.source]
    pairs = [pair for line in source_lines for pair in build_pairs(line, texts_by_sample.get(line["sample_id"], {}))]
    order = {image_id: place for place, image_id in reversed(list(enumerate(pair["image_id"] for pair in pairs)))}
    write_lines(asked, sorted(pairs, key=lambda pair: order[pair["image_id"]]))
    log.info("ROSALIA is asked for %d masks of %d samples", len(pairs), len(source_lines))


def build_pairs(line: Mapping, text_by_turn: Mapping[int, str]) -> Iterator[dict]:
    """Yield what ROSALIA is asked about a sample. ``text_by_turn``: {turn: the model's answer}."""
    if line["task"] == ILS:  # its instruction, whatever the model answered
        yield _pair_line(line, line["facts"][0], line["turns"][0]["question"], 0, 0)
        return
    texts = [(turn["question"], text_by_turn.get(number, "")) for number, turn in enumerate(line["turns"])]
    for turn, number, instruction in build_instructions(texts):
        yield _pair_line(line, mask_key(line["sample_id"], turn, number), instruction, turn, number)


def mask_key(sample_id: str, turn: int, number: int) -> str:
    """Return the name of the mask of the [SEG] ``number`` of a turn."""
    return f"{sample_id}/{turn}/{number}"


def build_instructions(turns: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield (turn, number, instruction) of each [SEG] of the answers to the turns (question, answer).

    The instruction names the finding that was named last before the [SEG], in its answer, its question or an earlier
    turn; of an answer that begins with its only [SEG], the one after it. It is the question itself where nothing was
    named, or what is none of the seven lesion types.
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
    """Return the lesion type of the finding that a text names last, None of another; ``before`` where it names none."""
    statements = read_statements(split_sentences(text))
    return statements[-1].lesion if statements else before


def _pair_line(line: Mapping, pair_id: str, instruction: str, turn: int, number: int) -> dict:
    fields = {"pair_id": pair_id, "image_id": line["image_id"], "instruction": instruction}
    fields |= {"answer": "", "seg": False, "mask_id": None}
    return fields | {"sample_id": line["sample_id"], "turn": turn, "number": number}


def run_asked_image(*, conversation: str, asked: str) -> None:
    """Write what ROSALIA is asked for the answers about one image, a line {instruction, turn, number} a [SEG]."""
    about = json.loads(Path(conversation, "answers.json").read_text(encoding="utf-8"))
    turns = [(turn["question"], turn["answer"]) for turn in about["turns"]]
    instructions = build_instructions(turns)
    write_lines(asked, ({"instruction": text, "turn": turn, "number": number} for turn, number, text in instructions))


def run_beside(*, asked: list[str], predictions: list[str], segmented: str) -> None:
    """Write what ROSALIA answered beside the turns that it was asked for, source by source, in the order given.

    A line is {sample_id, turn, number, instruction, text, mask, note, failure}; mask: the row of the source's HDF5
    that holds it, null without one. Raises UserError for answers to other questions.
    """
    write_lines(segmented, (line for pair in zip(asked, predictions, strict=True) for line in _join_predictions(*pair)))


def _join_predictions(requests: str, predictions: str) -> Iterator[dict]:
    answers = {answer["pair_id"]: answer for answer in read_lines(predictions)}
    for request in read_lines(requests):
        prediction = answers.get(request["pair_id"])
        if prediction is None:
            raise UserError(f"{predictions} lacks {request['pair_id']}, which {requests} asks: regenerate it")
        fields = {name: request[name] for name in ("sample_id", "turn", "number", "instruction")}
        yield fields | {
            "text": prediction["answer"], "mask": prediction["mask"], "note": prediction.get("note", ""),
            "failure": prediction.get("failure", ""),
        }  # fmt: skip
