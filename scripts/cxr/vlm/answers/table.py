"""The engine table: external answers, JSON lines of {sample_id, text, turn}, or failure instead of text."""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from cxr.base.columns import schema
from cxr.base.engines import Setup
from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.ids import clean_id
from cxr.base.tables import read_lines, write_table
from cxr.vlm.answers.ask import run_answers
from cxr.vlm.answers.engine import AnswersOptions, ModelAnswer, TurnRequest
from cxr.vlm.columns import UNUSED

log = logging.getLogger("cxr")
DUPLICATE, BAD_LINE = "duplicate", "bad_line"
"""Reasons of a sample that is answered twice, and of an invalid line."""


@dataclass
class AnswerFile:
    """The answers of a file by sample and turn. bad_lines: numbers of invalid lines; duplicates: (line, sample) of a
    second answer to a turn, which is ambiguous, so the turn failed.
    """

    answers: dict[tuple[str, int], ModelAnswer] = field(default_factory=dict)
    lines: dict[tuple[str, int], int] = field(default_factory=dict)
    duplicates: list[tuple[int, str]] = field(default_factory=list)
    bad_lines: list[int] = field(default_factory=list)


class Table:
    """Answers by sample and turn."""

    at_once = 0

    def __init__(self, answers: Mapping[tuple[str, int], ModelAnswer]):
        self.answers = answers
        self.turns: dict[str, int] = {}

    def answer(self, requests: Sequence[TurnRequest]) -> list[ModelAnswer]:
        """Return the answers, in order; an answer missing in the file has the failure ``not_given``."""
        answers = []
        for request in requests:
            name = request.encoded.sample_id
            turn = self.turns.get(name, 0)
            self.turns[name] = turn + 1
            answers.append(self.answers.get((name, turn), ModelAnswer("", 0, "", "not_given")))
        return answers


def read_answer_file(path: str) -> AnswerFile:
    """Read a file of answers. Raises UserError for a file that is not text."""
    answer_file = AnswerFile()
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, raw in enumerate(file, 1):
                if raw.strip():
                    _add_line(answer_file, number, raw)
    except (OSError, UnicodeDecodeError) as error:
        refuse_machine_fault(path, error)
        message = f"{Path(path).name} cannot be read as answers ({type(error).__name__}): give JSON lines in UTF-8"
        raise UserError(message) from None
    return answer_file


def _add_line(answer_file: AnswerFile, number: int, raw: str) -> None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        line = None
    line = line if isinstance(line, dict) else {}
    name, turn = line.get("sample_id", line.get("query_id")), line.get("turn", 0)
    text, failure = line.get("text", line.get("answer", "")), line.get("failure") or ""
    if not (isinstance(name, str) and isinstance(text, str) and type(turn) is int and isinstance(failure, str)):
        answer_file.bad_lines.append(number)
        return
    name = clean_id(name)
    if (name, turn) in answer_file.answers:
        answer_file.duplicates.append((number, name))
        answer_file.answers[name, turn] = ModelAnswer("", 0, "", DUPLICATE)
    else:
        tokens, stop = line.get("tokens"), line.get("stop", "end")
        answer = ModelAnswer(
            text, tokens if type(tokens) is int else 0, stop if isinstance(stop, str) else "end", failure
        )
        answer_file.answers[name, turn], answer_file.lines[name, turn] = answer, number


def load(run: Path, base: str, options: AnswersOptions, setup: Setup) -> Table:
    """Return the engine for the file ``base``. Raises UserError for a file that is not text."""
    del run, options, setup
    return Table(read_answer_file(base).answers)


def run_external(
    *,
    lines: str,
    pictures: list[str],
    base: str,
    answers: str,
    unused: str,
    options: AnswersOptions,
    attrs: dict,
    compute: dict,
    folders: Mapping[str, str] | None = None,
) -> None:
    """Write the answers in the file ``base`` to the samples ``lines``, and the table ``unused`` of its other lines.

    Raises UserError for a file that is not text.
    """
    run_answers(
        lines=lines, pictures=pictures, base=base, answers=answers, options=options, attrs=attrs, compute=compute,
        folders=folders,
    )  # fmt: skip
    answer_file = read_answer_file(base)
    asked_turns = {(line["sample_id"], line["turn"]) for line in read_lines(answers)}
    rows = [(number, "", BAD_LINE) for number in answer_file.bad_lines]
    rows += [(number, name, DUPLICATE) for number, name in answer_file.duplicates]
    rows += [(number, at[0], "unknown_sample") for at, number in answer_file.lines.items() if at not in asked_turns]
    for reason, count in sorted(Counter(reason for _, _, reason in rows).items()):
        log.warning("%d lines of the external answers are excluded: %s", count, reason)
    write_table(unused, pl.DataFrame(sorted(rows), schema=schema(UNUSED), orient="row"), UNUSED)
