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
from cxr.radvlm.samples import SEG, line_of, record
from cxr.radvlm.statements import of_text, split

OWN, ILS = "own", "ils_segmentation"
INSTRUCTION = "Segment the {}."
"""The instruction that names a lesion alone, as ROSALIA has learnt it: of it are the masks of conversations too."""


@dataclass(frozen=True)
class AskedOptions:
    """source: whose samples are asked."""

    source: str


def run_ils(*, pairs: str, lines: str) -> None:
    """Write all pairs of a split of the ILS dataset as samples to ask, in their order; a sample has its pair's id."""
    write_lines(lines, (line_of(_sample(pair)) for pair in read_lines(pairs)))


def _sample(pair: Mapping):
    turns = (Turn(pair["instruction"], pair["answer"], f"ils:{pair['type']}"),)
    told = {"mask_ids": (pair["mask_id"] or "",), "facts": (pair["pair_id"],), "asked": pair["target"]}
    return record(pair["pair_id"], ILS, dict(pair) | {"source": OWN}, turns, **told)


def run_asked(*, lines: str, answers: str, asked: str, options: AskedOptions) -> None:
    """Write what ROSALIA is asked about the samples of a source, as pairs; the pairs of an image follow one another.

    A pair is {pair_id, image_id, instruction, answer, seg, mask_id, sample_id, turn, number}; the last three say which
    [SEG] of which turn it is of. Answers and masks that are right are none of it.
    """
    said: dict[str, dict[int, str]] = {}
    for one in read_lines(answers):
        said.setdefault(one["sample_id"], {})[one["turn"]] = "" if one["failure"] else one["text"]
    own = [line for line in read_lines(lines) if line["source"] == options.source]
    found = [one for line in own for one in pairs_of(line, said.get(line["sample_id"], {}))]
    order = {image_id: place for place, image_id in reversed(list(enumerate(one["image_id"] for one in found)))}
    write_lines(asked, sorted(found, key=lambda one: order[one["image_id"]]))
    log.info("ROSALIA is asked for %d masks of %d samples", len(found), len(own))


def pairs_of(line: Mapping, said: Mapping[int, str]) -> Iterator[dict]:
    """Yield what ROSALIA is asked about a sample. ``said``: {turn: the model's answer}."""
    if line["task"] == ILS:  # its instruction, whatever the model answered
        yield _pair(line, line["facts"][0], line["turns"][0]["question"], 0, 0)
        return
    texts = [(turn["question"], said.get(number, "")) for number, turn in enumerate(line["turns"])]
    for turn, number, instruction in instructions_of(texts):
        yield _pair(line, key_of(line["sample_id"], turn, number), instruction, turn, number)


def key_of(sample_id: str, turn: int, number: int) -> str:
    """Return the name of the mask of the [SEG] ``number`` of a turn."""
    return f"{sample_id}/{turn}/{number}"


def instructions_of(turns: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield (turn, number, instruction) of each [SEG] of the answers to the turns (question, answer).

    The instruction names the finding that was named last before the [SEG], in its answer, its question or an earlier
    turn; of an answer that begins with its only [SEG], the one after it. It is the question itself where nothing was
    named, or what is none of the seven lesion types.
    """
    last: str | None = None
    for turn, (question, answer) in enumerate(turns):
        last = _named(question, last)
        *before, rest = answer.split(SEG)
        for number, text in enumerate(before):
            last = _named(text, _named(rest, last) if len(before) == 1 else last)
            yield turn, number, INSTRUCTION.format(last) if last else question
        last = _named(rest, last)


def _named(text: str, before: str | None) -> str | None:
    """Return the lesion type of the finding that a text names last, None of another; ``before`` where it names none."""
    found = of_text(split(text))
    return found[-1].lesion if found else before


def _pair(line: Mapping, pair_id: str, instruction: str, turn: int, number: int) -> dict:
    asked = {"pair_id": pair_id, "image_id": line["image_id"], "instruction": instruction}
    asked |= {"answer": "", "seg": False, "mask_id": None}
    return asked | {"sample_id": line["sample_id"], "turn": turn, "number": number}


def run_asked_image(*, conversation: str, asked: str) -> None:
    """Write what ROSALIA is asked for the answers about one image, a line {instruction, turn, number} a [SEG]."""
    about = json.loads(Path(conversation, "answers.json").read_text(encoding="utf-8"))
    turns = [(turn["question"], turn["answer"]) for turn in about["turns"]]
    found = instructions_of(turns)
    write_lines(asked, ({"instruction": text, "turn": turn, "number": number} for turn, number, text in found))


def run_beside(*, asked: list[str], predictions: list[str], segmented: str) -> None:
    """Write what ROSALIA answered beside the turns that it was asked for, source by source, in the order given.

    A line is {sample_id, turn, number, instruction, text, mask, note, failure}; mask: the row of the source's HDF5
    that holds it, null without one. Raises UserError for answers to other questions.
    """
    write_lines(segmented, (line for pair in zip(asked, predictions, strict=True) for line in _beside(*pair)))


def _beside(asked: str, predictions: str) -> Iterator[dict]:
    answers = {one["pair_id"]: one for one in read_lines(predictions)}
    for one in read_lines(asked):
        said = answers.get(one["pair_id"])
        if said is None:
            raise UserError(f"{predictions} lacks {one['pair_id']}, which {asked} asks: regenerate it")
        told = {name: one[name] for name in ("sample_id", "turn", "number", "instruction")}
        yield told | {
            "text": said["answer"], "mask": said["mask"], "note": said.get("note", ""),
            "failure": said.get("failure", ""),
        }  # fmt: skip
