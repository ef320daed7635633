"""Judge conversations: expected answers against those of a model; and check the judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import schema
from cxr.base.tables import read_lines, write_lines, write_table
from cxr.radvlm.evaluation.answers import SampleAnswer, find_commonest_answers, join_answers, slot_names, write_slots
from cxr.radvlm.evaluation.columns import CHECK
from cxr.radvlm.evaluation.judge import Item, JudgeOptions, Round, load_judge
from cxr.radvlm.evaluation.judge_check import check_judge

TASKS = ("conversation", "conversation_grounded")
TEST, EXCHANGED, BLIND = "test", "exchanged", "blind"
"""Judged answers: the model's, those about exchanged images, and one constant answer."""


CHECKED_CONVERSATIONS = 200
"""Conversations on which the judge is checked."""


@dataclass(frozen=True)
class ConversationJudgeOptions(JudgeOptions):
    """Options of the judge; most: conversations used to check it, first in line order; 0: all."""

    most: int = CHECKED_CONVERSATIONS


def to_item(line: Mapping, answer: SampleAnswer | None, name: str = "") -> Item:
    """Return a line as an item. ``answer``: None or a failure counts as empty answers."""
    rounds = []
    for turn, qa_pair in enumerate(line["turns"]):
        expected_boxes = np.array(
            [box for slot in slot_names(qa_pair["answer"]) for box in line["boxes"][slot]], np.float64
        )
        has_answer = bool(answer and not answer.failure)
        rounds.append(
            Round(
                write_slots(qa_pair["question"], line["boxes"]),
                write_slots(qa_pair["answer"], line["boxes"]),
                answer.texts[turn] if has_answer else "",
                expected_boxes.reshape(-1, 4),
                answer.boxes(turn).boxes if has_answer else np.zeros((0, 4)),
            )
        )
    return Item(name or line["sample_id"], tuple(rounds), tuple(line.get("labels") or ()))


def select_conversations(lines: Sequence[Mapping]) -> list[Mapping]:
    """Return the conversation lines."""
    return [line for line in lines if line["task"] in TASKS]


def run_judge(
    *, lines: str, train: str, answers: str, judged: str, options: ConversationJudgeOptions, execution: Mapping,
    exchanged_lines: str | list[str] = "", exchanged_answers: str | list[str] = "", code: str = "",
) -> None:  # fmt: skip
    """Judge the answers to the conversations of ``lines``, those about exchanged images, and a constant answer.

    Writes JSON Lines: answers (test, exchanged, blind), sample_id, score (null: unscored), problem, rounds, raw,
    judge. Failed samples are not judged. Replies of a language model are cached, so an interrupted job can resume.
    """
    judge = load_judge(options, _with_answer_folder(execution, judged, code))
    conversation_lines = select_conversations(list(read_lines(lines)))
    commonest_answers = find_commonest_answers(read_lines(train))
    answer_sets = [(TEST, conversation_lines, join_answers(conversation_lines, read_lines(answers))[0])]
    if exchanged_lines and exchanged_answers:
        lines_path, answers_path = (
            paths if isinstance(paths, str) else paths[0] for paths in (exchanged_lines, exchanged_answers)
        )
        exchanged_conversations = select_conversations(list(read_lines(lines_path)))
        answer_sets.append(
            (EXCHANGED, exchanged_conversations, join_answers(exchanged_conversations, read_lines(answers_path))[0])
        )
    constant = {
        line["sample_id"]: SampleAnswer(
            (commonest_answers.get((line["task"], line["source"]), ""),) * len(line["turns"])
        )
        for line in conversation_lines
    }
    answer_sets.append((BLIND, conversation_lines, constant))
    write_lines(
        judged,
        [
            row
            for name, set_lines, answer_by_sample in answer_sets
            for row in _judge_answers(name, set_lines, answer_by_sample, judge, options.judge)
        ],
    )


def _judge_answers(
    name: str, lines: Sequence[Mapping], answer_by_sample: Mapping[str, SampleAnswer], judge, judge_name: str
) -> list[dict]:
    answered_lines = [line for line in lines if not answer_by_sample[line["sample_id"]].failure]
    judgements = judge([to_item(line, answer_by_sample[line["sample_id"]]) for line in answered_lines])
    return [
        {
            "answers": name, "sample_id": line["sample_id"], "score": judgement.score, "problem": judgement.problem,
            "rounds": list(judgement.rounds), "raw": judgement.raw, "judge": judge_name,
        }
        for line, judgement in zip(answered_lines, judgements, strict=True)
    ]  # fmt: skip


def _with_answer_folder(execution: Mapping, output: str, code: str) -> dict:
    path = Path(output)
    return dict(execution) | {"answers": str(path.parent / "answers" / path.stem), "code": code}


def run_check(
    *, lines: str, checked: str, options: ConversationJudgeOptions, execution: Mapping, code: str = ""
) -> None:
    """Check the judge on the conversations of ``lines``; without any, the table is empty."""
    conversation_lines = select_conversations(list(read_lines(lines)))
    items = [to_item(line, None) for line in conversation_lines[: options.most or None]]
    rows = list(check_judge(items, load_judge(options, _with_answer_folder(execution, checked, code)))) if items else []
    write_table(checked, pl.DataFrame(rows, schema=schema(CHECK)), CHECK)
