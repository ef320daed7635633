"""A judge is judged first: on right answers, on those of other studies, and on mixtures of both."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cxr.base.seeds import stable_hash
from cxr.radvlm.evaluation.claims import claim_reader
from cxr.radvlm.evaluation.judge import Item, Judge, Round

SHARES = (0, 25, 50, 75, 100)
"""Percent of the answers that are exchanged."""
RIGHT, OTHER = 9.5, 4.0
"""Least mean score of expected answers, and highest of those of a study with other findings (our specification)."""


def expected(item: Item) -> Item:
    """Return the conversation with its expected answers given."""
    return replace(item, rounds=tuple(_given(one, one.expected, one.expected_boxes) for one in item.rounds))


def _given(one: Round, text: str, boxes: np.ndarray) -> Round:
    return replace(one, generated=text, generated_boxes=boxes)


def affirmed(item: Item) -> frozenset[str]:
    """Return the findings that the expected answers affirm."""
    read = claim_reader().answer
    return frozenset(
        entity
        for one in item.rounds
        for entity, which in read(one.question, one.expected).findings
        if which == "positive"
    )


def partners(items: Sequence[Item]) -> dict[str, Item]:
    """Return {name: another conversation that affirms other findings}: one with none in common, the next by hash.

    A conversation for which there is none is left out.
    """
    held = sorted(items, key=lambda item: (stable_hash("judge_check", item.name), item.name))
    said = {item.name: affirmed(item) for item in held}
    found = {}
    for place, item in enumerate(held):
        others = (held[(place + step) % len(held)] for step in range(1, len(held)))
        apart = (one for one in others if said[one.name] != said[item.name] and not said[one.name] & said[item.name])
        if (other := next(apart, None)) is not None:
            found[item.name] = other
    return found


def exchanged(item: Item, other: Item, share: int) -> Item:
    """Return a conversation of which ``share`` percent of the expected answers are the other's, round by round.

    The rounds are drawn by hash; those of a lower share are among those of a higher one.
    """
    order = sorted(range(len(item.rounds)), key=lambda place: stable_hash("judge_check", item.name, place))
    taken = set(order[: round(len(order) * share / 100)])
    rounds = []
    for place, one in enumerate(item.rounds):
        if place in taken:
            theirs = other.rounds[place % len(other.rounds)]
            rounds.append(_given(one, theirs.expected, theirs.expected_boxes))
        else:
            rounds.append(_given(one, one.expected, one.expected_boxes))
    return replace(item, rounds=tuple(rounds))


def checks(items: Sequence[Item], judge: Judge) -> Iterator[dict]:
    """Yield a row {check, value, target, conversations, passed} of each check; ``items``: conversations, as expected.

    An unscored conversation counts as 0. Without a pair of studies with other findings nothing can pass.
    """
    pairs = partners(items)
    mixed = [item for item in items if item.name in pairs]
    means = []
    for share in SHARES:
        told = [exchanged(item, pairs[item.name], share) for item in mixed]
        means.append(_mean(judge(told)))
    right = judge([expected(item) for item in items])
    yield _row("expected answers", _mean(right), f">= {RIGHT}", len(items), _mean(right) >= RIGHT)
    yield _row("answers of a study with other findings", means[-1], f"<= {OTHER}", len(mixed), means[-1] <= OTHER)
    for before, share, mean, last in zip([None, *SHARES], SHARES, means, [None, *means], strict=False):
        target = "" if before is None else f"below that of {before} %"
        yield _row(f"{share} % exchanged", mean, target, len(mixed), bool(mixed) and (last is None or mean < last))
    renamed = [replace(item, name=f"other {place}") for place, item in enumerate(reversed(mixed))]
    again = judge([exchanged(item, pairs[item.name], 50) for item in reversed(mixed)])
    first = judge([exchanged(item, pairs[item.name], 50) for item in mixed])
    same = [one.score for one in reversed(again)] == [one.score for one in first]
    yield _row("scores in another order", float(same), "the same", len(mixed), same and bool(mixed))
    named = judge([expected(item) for item in renamed])
    plain = judge([expected(item) for item in reversed(mixed)])
    same = [one.score for one in named] == [one.score for one in plain]
    yield _row("scores under other names", float(same), "the same", len(mixed), same and bool(mixed))


def _mean(judgements) -> float:
    return float(np.mean([one.score or 0.0 for one in judgements])) if judgements else float("nan")


def _row(check: str, value: float, target: str, conversations: int, passed: bool) -> dict:
    value = None if np.isnan(value) else value
    return {
        "check": check, "value": value, "target": target, "conversations": conversations, "passed": bool(passed),
    }  # fmt: skip
