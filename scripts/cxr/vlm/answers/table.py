"""The engine table: answers made elsewhere, JSON lines of {sample_id, text}, with turn, or failure instead of text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.ids import clean_id
from cxr.vlm.answers.engine import AnswersOptions, Asked, Execution, Said

DUPLICATE, BAD_LINE = "duplicate", "bad_line"
"""Reasons of a sample that is answered more than once, and of a line that is no answer."""


@dataclass
class Given:
    """The answers of a file by sample and turn. bad: numbers of the lines that are no answers; twice: (line, sample) of
    an answer to what another line answers as well: which one is meant cannot be told, so that the sample failed.
    """

    known: dict[tuple[str, int], Said] = field(default_factory=dict)
    lines: dict[tuple[str, int], int] = field(default_factory=dict)
    twice: list[tuple[int, str]] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)


class Table:
    """Answers by sample and turn."""

    at_once = 0

    def __init__(self, answers: Mapping[tuple[str, int], Said]):
        self.known = answers
        self.turns: dict[str, int] = {}

    def answer(self, requests: Sequence[Asked]) -> list[Said]:
        """Return the answers, in order; one that the file lacks is a failure ``not_given``."""
        answers = []
        for request in requests:
            name = request.encoded.sample_id
            turn = self.turns.get(name, 0)
            self.turns[name] = turn + 1
            answers.append(self.known.get((name, turn), Said("", 0, "", "not_given")))
        return answers


def read_given(path: str) -> Given:
    """Read a file of answers. Raises UserError for a file that is not text."""
    answer_file = Given()
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, raw in enumerate(file, 1):
                if raw.strip():
                    _take(answer_file, number, raw)
    except (OSError, UnicodeDecodeError) as error:
        refuse_machine_fault(path, error)
        message = f"{Path(path).name} cannot be read as answers ({type(error).__name__}): give JSON lines in UTF-8"
        raise UserError(message) from None
    return answer_file


def _take(answer_file: Given, number: int, raw: str) -> None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        line = None
    line = line if isinstance(line, dict) else {}
    name, turn = line.get("sample_id", line.get("query_id")), line.get("turn", 0)
    text, failure = line.get("text", line.get("answer", "")), line.get("failure") or ""
    if not (isinstance(name, str) and isinstance(text, str) and type(turn) is int and isinstance(failure, str)):
        answer_file.bad.append(number)
        return
    name = clean_id(name)
    if (name, turn) in answer_file.known:
        answer_file.twice.append((number, name))
        answer_file.known[name, turn] = Said("", 0, "", DUPLICATE)
    else:
        tokens, stop = line.get("tokens"), line.get("stop", "end")
        answer = Said(text, tokens if type(tokens) is int else 0, stop if isinstance(stop, str) else "end", failure)
        answer_file.known[name, turn], answer_file.lines[name, turn] = answer, number


def load(run: Path, base: str, options: AnswersOptions, execution: Execution) -> Table:
    """Return the engine for the file ``base``. Raises UserError for a file that is not text."""
    del run, options, execution
    return Table(read_given(base).known)
