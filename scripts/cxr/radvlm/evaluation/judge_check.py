"""Check a judge on expected answers, on answers of other studies, and on mixtures of both."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cxr.base.seeds import stable_hash
from cxr.radvlm.evaluation.claims import load_claim_reader
from cxr.radvlm.evaluation.judge import Item, Judge, Round

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
    means = []
    for share in EXCHANGED_PERCENTAGES:
        exchanged_items = [exchange_answers(item, pairs[item.name], share) for item in mixed]
        means.append(_mean_score(judge(exchanged_items)))
    right = judge([with_expected_answers(item) for item in items])
    yield _row(
        "expected answers",
        _mean_score(right),
        f">= {MIN_EXPECTED_SCORE}",
        len(items),
        _mean_score(right) >= MIN_EXPECTED_SCORE,
    )
    yield _row(
        "answers of a study with other findings",
        means[-1],
        f"<= {MAX_EXCHANGED_SCORE}",
        len(mixed),
        means[-1] <= MAX_EXCHANGED_SCORE,
    )
    for before, share, mean, last in zip(
        [None, *EXCHANGED_PERCENTAGES], EXCHANGED_PERCENTAGES, means, [None, *means], strict=False
    ):
        target = "" if before is None else f"below that of {before} %"
        yield _row(f"{share} % exchanged", mean, target, len(mixed), bool(mixed) and (last is None or mean < last))
    renamed_items = [replace(item, name=f"other {place}") for place, item in enumerate(reversed(mixed))]
    reversed_judgements = judge([exchange_answers(item, pairs[item.name], 50) for item in reversed(mixed)])
    ordered_judgements = judge([exchange_answers(item, pairs[item.name], 50) for item in mixed])
    is_same = [judgement.score for judgement in reversed(reversed_judgements)] == [
        judgement.score for judgement in ordered_judgements
    ]
    yield _row("scores in another order", float(is_same), "the same", len(mixed), is_same and bool(mixed))
    renamed_judgements = judge([with_expected_answers(item) for item in renamed_items])
    plain_judgements = judge([with_expected_answers(item) for item in reversed(mixed)])
    is_same = [judgement.score for judgement in renamed_judgements] == [
        judgement.score for judgement in plain_judgements
    ]
    yield _row("scores under other names", float(is_same), "the same", len(mixed), is_same and bool(mixed))


def _mean_score(judgements) -> float:
    return float(np.mean([judgement.score or 0.0 for judgement in judgements])) if judgements else float("nan")


def _row(check: str, value: float, target: str, conversations: int, passed: bool) -> dict:
    value = None if np.isnan(value) else value
    return {
        "check": check, "value": value, "target": target, "conversations": conversations, "passed": bool(passed),
    }  # fmt: skip
