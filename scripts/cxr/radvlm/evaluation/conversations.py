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


def item_of(line: Mapping, answer: Answered | None, name: str = "") -> Item:
    """Return a line as an item. ``answer``: None for no answer at all, which is judged as silence."""
    rounds = []
    for turn, qa_pair in enumerate(line["turns"]):
        expected_boxes = np.array([box for slot in slots(qa_pair["answer"]) for box in line["boxes"][slot]], np.float64)
        has_answer = bool(answer and not answer.failure)
        rounds.append(
            Round(
                shown(qa_pair["question"], line["boxes"]),
                shown(qa_pair["answer"], line["boxes"]),
                answer.texts[turn] if has_answer else "",
                expected_boxes.reshape(-1, 4),
                answer.boxes(turn).boxes if has_answer else np.zeros((0, 4)),
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
    conversation_lines = conversations(list(read_lines(lines)))
    commonest_answers = commonest(read_lines(train))
    answer_sets = [(TEST, conversation_lines, joined(conversation_lines, read_lines(answers))[0])]
    if exchanged_lines and exchanged_answers:
        lines_path, answers_path = (
            paths if isinstance(paths, str) else paths[0] for paths in (exchanged_lines, exchanged_answers)
        )
        exchanged_conversations = conversations(list(read_lines(lines_path)))
        answer_sets.append(
            (EXCHANGED, exchanged_conversations, joined(exchanged_conversations, read_lines(answers_path))[0])
        )
    constant = {
        line["sample_id"]: Answered((commonest_answers.get((line["task"], line["source"]), ""),) * len(line["turns"]))
        for line in conversation_lines
    }
    answer_sets.append((BLIND, conversation_lines, constant))
    write_lines(
        judged,
        [
            row
            for name, set_lines, answer_by_sample in answer_sets
            for row in _judged(name, set_lines, answer_by_sample, judge, options.judge)
        ],
    )


def _judged(
    name: str, lines: Sequence[Mapping], answer_by_sample: Mapping[str, Answered], judge, judge_name: str
) -> list[dict]:
    answered_lines = [line for line in lines if not answer_by_sample[line["sample_id"]].failure]
    judgements = judge([item_of(line, answer_by_sample[line["sample_id"]]) for line in answered_lines])
    return [
        {
            "answers": name, "sample_id": line["sample_id"], "score": judgement.score, "problem": judgement.problem,
            "rounds": list(judgement.rounds), "raw": judgement.raw, "judge": judge_name,
        }
        for line, judgement in zip(answered_lines, judgements, strict=True)
    ]  # fmt: skip


def _kept(execution: Mapping, output: str, code: str) -> dict:
    path = Path(output)
    return dict(execution) | {"answers": str(path.parent / "answers" / path.stem), "code": code}


def run_check(*, lines: str, checked: str, options: JudgedOptions, execution: Mapping, code: str = "") -> None:
    """Judge the judge on the conversations of ``lines``; without one there is nothing to tell."""
    conversation_lines = conversations(list(read_lines(lines)))
    items = [item_of(line, None) for line in conversation_lines[: options.most or None]]
    rows = list(checks(items, load_judge(options, _kept(execution, checked, code)))) if items else []
    write_table(checked, pl.DataFrame(rows, schema=schema(CHECK)), CHECK)
