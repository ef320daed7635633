"""Reading answers of external models: JSON Lines of {sample_id, turn, text}, or of {sample_id, turn, failure}."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from cxr.base.errors import refuse_unreadable
from cxr.base.ids import clean_id
from cxr.base.tables import write_lines, write_rows
from cxr.vlm.answers.engine import ModelAnswer, Reply
from cxr.vlm.columns import UNUSED
from cxr.vlm.samples import ImageStore, read_samples

log = logging.getLogger("cxr")
DUPLICATE, BAD_LINE = "duplicate", "bad_line"  # reasons of a sample that is answered twice, and of an invalid line

Turn = tuple[str, int]  # (sample id, number of the turn)


def read_answer_file(path: str) -> tuple[dict[Turn, ModelAnswer], dict[Turn, int], list[tuple[int, str, str]]]:
    """Return ({turn: answer}, {turn: line number}, [(line number, sample id, reason) of lines that are not used])."""
    answers: dict[Turn, ModelAnswer] = {}
    numbers: dict[Turn, int] = {}
    unused_lines: list[tuple[int, str, str]] = []
    with refuse_unreadable(path, f"{Path(path).name} cannot be read as answers", "write it as JSON Lines in UTF-8"):
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        turn, answer = _parse_line(text)
        if turn is None:
            unused_lines.append((number, "", BAD_LINE))
        elif turn in answers:
            unused_lines.append((number, turn[0], DUPLICATE))
            answers[turn] = ModelAnswer("", 0, "", DUPLICATE)
        else:
            answers[turn], numbers[turn] = answer, number
    return answers, numbers, unused_lines


def _parse_line(text: str) -> tuple[Turn | None, ModelAnswer]:
    """Return (turn, answer) of a line. The turn of an invalid line is None."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        line = None
    line = line if isinstance(line, dict) else {}
    name, turn = line.get("sample_id", line.get("query_id")), line.get("turn", 0)
    answer, failure = line.get("text", line.get("answer", "")), line.get("failure") or ""
    tokens, stop = line.get("tokens"), line.get("stop", "end")
    is_valid = isinstance(name, str) and isinstance(answer, str) and type(turn) is int and isinstance(failure, str)
    tokens, stop = tokens if type(tokens) is int else 0, stop if isinstance(stop, str) else "end"
    return (clean_id(name), turn) if is_valid else None, ModelAnswer(answer, tokens, stop, failure)


def run_external(
    *,
    lines: str,
    pictures: list[str],
    base: str,
    answers: str,
    unused: str,
    convention: str,
    folders: Mapping[str, str] | None = None,
) -> None:
    """Match the answers in the file ``base`` to the samples in ``lines``. Write ``answers``, and a table of the lines
    that are ``unused``. ``convention`` is the answers' box format. ``pictures`` has the samples' images."""
    answer_by_turn, numbers, rows = read_answer_file(base)
    missing, asked_turns = ModelAnswer("", 0, "", "not_given"), set()
    with ImageStore(pictures, folders=folders) as store:

        def answer_lines() -> Iterator[dict]:
            for sample in read_samples(lines):
                size = store.size(sample)[::-1]
                for turn in range(len(sample.turns)):
                    asked_turns.add((sample.sample_id, turn))
                    answer = answer_by_turn.get((sample.sample_id, turn), missing)
                    yield Reply(sample, turn, answer, convention, size).line()

        write_lines(answers, answer_lines())
    rows += [(number, turn[0], "unknown_sample") for turn, number in numbers.items() if turn not in asked_turns]
    for reason, count in sorted(Counter(reason for _, _, reason in rows).items()):
        log.warning("%d lines of the external answers are not used: %s", count, reason)
    write_rows(unused, sorted(rows), UNUSED)
