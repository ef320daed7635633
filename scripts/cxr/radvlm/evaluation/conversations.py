"""Judge conversations: expected answers against those of a model; and check the judge."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import schema
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, write_lines, write_table
from cxr.radvlm.evaluation.answers import SampleAnswer, find_commonest_answers, join_answers
from cxr.radvlm.evaluation.claims import load_claim_reader
from cxr.radvlm.evaluation.columns import CHECK
from cxr.radvlm.evaluation.judge import Item, Judge, Judgement, JudgeOptions, Round, load_judge
from cxr.radvlm.samples import slot_names, write_slots

EXCHANGED_PERCENTAGES = (0, 25, 50, 75, 100)
"""Percentages of exchanged answers."""
MIN_EXPECTED_SCORE, MAX_EXCHANGED_SCORE = 9.5, 4.0
"""Required mean scores: at least, for expected answers; at most, for answers of a study with other findings."""


def with_expected_answers(item: Item) -> Item:
    """Return the conversation with its expected answers as generated ones."""
    return replace(
        item,
        rounds=tuple(_with_answer(qa_round, qa_round.expected, qa_round.expected_boxes) for qa_round in item.rounds),
    )


def _with_answer(qa_round: Round, text: str, boxes: np.ndarray) -> Round:
    return replace(qa_round, generated=text, generated_boxes=boxes)


def affirmed_findings(item: Item) -> frozenset[str]:
    """Return the findings affirmed by the expected answers."""
    read_answer = load_claim_reader().answer
    return frozenset(
        entity
        for qa_round in item.rounds
        for entity, which in read_answer(qa_round.question, qa_round.expected).findings
        if which == "positive"
    )


def find_partners(items: Sequence[Item]) -> dict[str, Item]:
    """Return {name: next conversation in hash order that affirms no common finding}; skip those without one."""
    ordered_items = sorted(items, key=lambda item: (stable_hash("judge_check", item.name), item.name))
    findings_by_name = {item.name: affirmed_findings(item) for item in ordered_items}
    partner_by_name = {}
    for place, item in enumerate(ordered_items):
        candidates = (ordered_items[(place + step) % len(ordered_items)] for step in range(1, len(ordered_items)))
        apart = (
            candidate
            for candidate in candidates
            if findings_by_name[candidate.name] != findings_by_name[item.name]
            and not findings_by_name[candidate.name] & findings_by_name[item.name]
        )
        if (partner := next(apart, None)) is not None:
            partner_by_name[item.name] = partner
    return partner_by_name


def exchange_answers(item: Item, partner: Item, share: int) -> Item:
    """Return a conversation with ``share`` percent of its answers replaced by the partner's expected answers.

    Rounds are selected by hash; those of a lower percentage are a subset of those of a higher one.
    """
    order = sorted(range(len(item.rounds)), key=lambda place: stable_hash("judge_check", item.name, place))
    taken = set(order[: round(len(order) * share / 100)])
    rounds = []
    for place, qa_round in enumerate(item.rounds):
        if place in taken:
            partner_round = partner.rounds[place % len(partner.rounds)]
            rounds.append(_with_answer(qa_round, partner_round.expected, partner_round.expected_boxes))
        else:
            rounds.append(_with_answer(qa_round, qa_round.expected, qa_round.expected_boxes))
    return replace(item, rounds=tuple(rounds))


def check_judge(items: Sequence[Item], judge: Judge) -> Iterator[dict]:
    """Yield one row {check, value, target, conversations, passed} per check of the judge.

    Unscored conversations count as 0. Without a pair of studies with different findings, the checks on them fail.
    """
    pairs = find_partners(items)
    mixed = [item for item in items if item.name in pairs]
    means = [
        _mean_score(judge([exchange_answers(item, pairs[item.name], share) for item in mixed]))
        for share in EXCHANGED_PERCENTAGES
    ]
    right = _mean_score(judge([with_expected_answers(item) for item in items]))
    target = f">= {MIN_EXPECTED_SCORE}"
    yield _row("expected answers", right, target, len(items), right >= MIN_EXPECTED_SCORE)
    target, is_low = f"<= {MAX_EXCHANGED_SCORE}", means[-1] <= MAX_EXCHANGED_SCORE
    yield _row("answers of a study with other findings", means[-1], target, len(mixed), is_low)
    before = [(None, None), *zip(EXCHANGED_PERCENTAGES, means, strict=True)]
    for (last_share, last), share, mean in zip(before, EXCHANGED_PERCENTAGES, means, strict=False):
        target = "" if last_share is None else f"below that of {last_share} %"
        yield _row(f"{share} % exchanged", mean, target, len(mixed), bool(mixed) and (last is None or mean < last))
    half_exchanged = [exchange_answers(item, pairs[item.name], 50) for item in mixed]
    is_same = _scores(judge(half_exchanged[::-1]))[::-1] == _scores(judge(half_exchanged))
    yield _row("scores in another order", float(is_same), "the same", len(mixed), is_same and bool(mixed))
    expected = [with_expected_answers(item) for item in reversed(mixed)]
    renamed = [replace(item, name=f"other {place}") for place, item in enumerate(expected)]
    is_same = _scores(judge(renamed)) == _scores(judge(expected))
    yield _row("scores under other names", float(is_same), "the same", len(mixed), is_same and bool(mixed))


def _scores(judgements: Sequence[Judgement]) -> list[float | None]:
    return [judgement.score for judgement in judgements]


def _mean_score(judgements) -> float:
    return float(np.mean([judgement.score or 0.0 for judgement in judgements])) if judgements else float("nan")


def _row(check: str, value: float, target: str, conversations: int, passed: bool) -> dict:
    value = None if np.isnan(value) else value
    return {
        "check": check, "value": value, "target": target, "conversations": conversations, "passed": bool(passed),
    }  # fmt: skip


TASKS = ("conversation", "conversation_grounded")
TEST, EXCHANGED, BLIND = "test", "exchanged", "blind"
"""Judged answers: the model's, those about exchanged images, and one constant answer."""


CHECKED_CONVERSATIONS = 200
"""Conversations on which the judge is checked, the first in line order."""


def to_item(line: Mapping, answer: SampleAnswer | None, name: str = "") -> Item:
    """Return a line as an item. ``answer``: None or a failure counts as empty answers."""
    rounds = []
    has_answer = bool(answer and not answer.failure)
    for turn, qa_pair in enumerate(line["turns"]):
        expected_boxes = [box for slot in slot_names(qa_pair["answer"]) for box in line["boxes"][slot]]
        rounds.append(
            Round(
                write_slots(qa_pair["question"], line["boxes"]),
                write_slots(qa_pair["answer"], line["boxes"]),
                answer.texts[turn] if has_answer else "",
                np.array(expected_boxes, np.float64).reshape(-1, 4),
                answer.boxes(turn).boxes if has_answer else np.zeros((0, 4)),
            )
        )
    return Item(name or line["sample_id"], tuple(rounds), tuple(line.get("labels") or ()))


def read_conversations(path: str) -> list[Mapping]:
    """Return the conversations among the lines of a file."""
    return [line for line in read_lines(path) if line["task"] in TASKS]


def run_judge(
    *, lines: str, train: str, answers: str, judged: str, options: JudgeOptions, execution: Mapping,
    exchanged_lines: Sequence[str] = (), exchanged_answers: Sequence[str] = (), code: str = "",
) -> None:  # fmt: skip
    """Judge the answers to the conversations of ``lines``, those about exchanged images, and a constant answer.

    Writes JSON Lines: answers (test, exchanged, blind), sample_id, score (null: unscored), problem, rounds, raw,
    judge. Failed samples are not judged. Replies of a language model are cached, so an interrupted job can resume.
    """
    judge = load_judge(options, _with_answer_folder(execution, judged, code))
    conversations = read_conversations(lines)
    commonest_answers = find_commonest_answers(read_lines(train))
    answer_sets = [(TEST, conversations, join_answers(conversations, read_lines(answers))[0])]
    for lines_path, answers_path in zip(exchanged_lines, exchanged_answers, strict=True):
        exchanged = read_conversations(lines_path)
        answer_sets.append((EXCHANGED, exchanged, join_answers(exchanged, read_lines(answers_path))[0]))
    constant = {}
    for line in conversations:
        text = commonest_answers.get((line["task"], line["source"]), "")
        constant[line["sample_id"]] = SampleAnswer((text,) * len(line["turns"]))
    answer_sets.append((BLIND, conversations, constant))
    rows = [row for answer_set in answer_sets for row in _judge_answers(*answer_set, judge, options.judge)]
    write_lines(judged, rows)


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


def run_check(*, lines: str, checked: str, options: JudgeOptions, execution: Mapping, code: str = "") -> None:
    """Check the judge on the conversations of ``lines``; without any, the table is empty."""
    items = [to_item(line, None) for line in read_conversations(lines)[:CHECKED_CONVERSATIONS]]
    rows = list(check_judge(items, load_judge(options, _with_answer_folder(execution, checked, code)))) if items else []
    write_table(checked, pl.DataFrame(rows, schema=schema(CHECK)), CHECK)
