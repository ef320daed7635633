"""Conversations as items for a judge: the expected answers beside those of a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import schema
from cxr.base.tables import read_lines, write_lines, write_table
from cxr.radvlm.evaluation.answered import Answered, joined
from cxr.radvlm.evaluation.blind import commonest, shown, slots
from cxr.radvlm.evaluation.columns import CHECK
from cxr.radvlm.evaluation.judge import Item, JudgeOptions, Round, load_judge
from cxr.radvlm.evaluation.judge_check import checks

TASKS = ("conversation", "conversation_grounded")
TEST, EXCHANGED, BLIND = "test", "exchanged", "blind"
"""Which answers are judged: the model's, those about other pictures, and one answer for all questions."""


@dataclass(frozen=True)
class JudgedOptions(JudgeOptions):
    """The judge's options; most: conversations that its check judges, drawn by the lines' order; 0: all."""

    most: int = 0


def item_of(line: Mapping, answered: Answered | None, name: str = "") -> Item:
    """Return a line as an item. ``answered``: None for no answer at all, which is judged as silence."""
    rounds = []
    for turn, told in enumerate(line["turns"]):
        true = np.array([box for slot in slots(told["answer"]) for box in line["boxes"][slot]], np.float64)
        given = bool(answered and not answered.failure)
        rounds.append(
            Round(
                shown(told["question"], line["boxes"]),
                shown(told["answer"], line["boxes"]),
                answered.texts[turn] if given else "",
                true.reshape(-1, 4),
                answered.boxes(turn).boxes if given else np.zeros((0, 4)),
            )
        )
    return Item(name or line["sample_id"], tuple(rounds), tuple(line.get("labels") or ()))


def conversations(lines: Sequence[Mapping]) -> list[Mapping]:
    """Return the lines that are conversations."""
    return [line for line in lines if line["task"] in TASKS]


def run_judge(
    *, lines: str, train: str, answers: str, judged: str, options: JudgedOptions, execution: Mapping,
    exchanged_lines: str | list[str] = "", exchanged_answers: str | list[str] = "", code: str = "",
) -> None:  # fmt: skip
    """Judge the answers to the conversations of ``lines``, those about exchanged pictures, and one answer for all.

    Writes JSON Lines: answers (test, exchanged, blind), sample_id, score (null: unscored), problem, rounds, raw,
    judge. A sample without a full answer is not judged. What a language model says is kept beside them, so a job that
    was cut off goes on.
    """
    judge = load_judge(options, _kept(execution, judged, code))
    asked = conversations(list(read_lines(lines)))
    one_for_all = commonest(read_lines(train))
    sets = [(TEST, asked, joined(asked, read_lines(answers))[0])]
    if exchanged_lines and exchanged_answers:
        path, given = (one if isinstance(one, str) else one[0] for one in (exchanged_lines, exchanged_answers))
        others = conversations(list(read_lines(path)))
        sets.append((EXCHANGED, others, joined(others, read_lines(given))[0]))
    constant = {
        line["sample_id"]: Answered((one_for_all.get((line["task"], line["source"]), ""),) * len(line["turns"]))
        for line in asked
    }
    sets.append((BLIND, asked, constant))
    write_lines(judged, [row for name, held, said in sets for row in _judged(name, held, said, judge, options.judge)])


def _judged(name: str, lines: Sequence[Mapping], said: Mapping[str, Answered], judge, judge_name: str) -> list[dict]:
    held = [line for line in lines if not said[line["sample_id"]].failure]
    found = judge([item_of(line, said[line["sample_id"]]) for line in held])
    return [
        {
            "answers": name, "sample_id": line["sample_id"], "score": one.score, "problem": one.problem,
            "rounds": list(one.rounds), "raw": one.raw, "judge": judge_name,
        }
        for line, one in zip(held, found, strict=True)
    ]  # fmt: skip


def _kept(execution: Mapping, output: str, code: str) -> dict:
    path = Path(output)
    return dict(execution) | {"answers": str(path.parent / "answers" / path.stem), "code": code}


def run_check(*, lines: str, checked: str, options: JudgedOptions, execution: Mapping, code: str = "") -> None:
    """Judge the judge on the conversations of ``lines``; without one there is nothing to tell."""
    asked = conversations(list(read_lines(lines)))
    items = [item_of(line, None) for line in asked[: options.most or None]]
    rows = list(checks(items, load_judge(options, _kept(execution, checked, code)))) if items else []
    write_table(checked, pl.DataFrame(rows, schema=schema(CHECK)), CHECK)
