"""The order of training: balance, coverage, and the same order after a resume."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxr.base.errors import UserError
from cxr.ils.rosalia.sampler import Draw, PairSampler

BALANCES = ("expectation", "exact", "all")
COUNTS = st.integers(1, 40)


def lines(positives: int, negatives: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation([True] * positives + [False] * negatives)


def draws(
    positive: np.ndarray, balance: str, batch: int, seed: int = 1, equalise: float = 0.5, **more: int
) -> PairSampler:
    return PairSampler(positive, batch=batch, seed=seed, balance=balance, equalise=equalise, where="a.jsonl", **more)


def epoch(one: PairSampler, number: int, first: int = 0) -> list[list[Draw]]:
    one.start_at(number, first)
    return list(one)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    COUNTS, COUNTS, st.integers(1, 8), st.sampled_from(("expectation", "exact")), st.integers(0, 5), st.integers(1, 3)
)
def test_every_positive_comes_once_and_as_many_negatives(positives, negatives, half, balance, number, world):
    positive = lines(positives, negatives, positives)
    ranks = [epoch(draws(positive, balance, 2 * half, rank=rank, world=world), number) for rank in range(world)]
    assert len({len(rank) for rank in ranks}) == 1
    assert all(len(rank) == draws(positive, balance, 2 * half, world=world).count_batches() for rank in ranks)
    for together in zip(*ranks, strict=True):
        assert len({len(batch) for batch in together}) == 1  # the processes stay in step
        assert all(0 < len(batch) <= 2 * half for batch in together)
    rows = [draw.row for together in zip(*ranks, strict=True) for batch in together for draw in batch]
    filled = len(rows) - 2 * positives
    assert 0 <= filled < world * (2 if balance == "exact" else 1)
    counts = Counter(rows[: 2 * positives])
    assert all(counts[row] == 1 for row in np.flatnonzero(positive))
    assert sum(counts[row] for row in np.flatnonzero(~positive)) == positives
    if balance == "exact":
        for rank in ranks:
            for batch in rank:
                assert sum(bool(positive[draw.row]) for draw in batch) * 2 == len(batch)


@settings(max_examples=60, deadline=None)
@given(COUNTS, COUNTS, st.integers(1, 8), st.integers(0, 5), st.integers(1, 3))
def test_all_pairs_come_once_in_another_order_each_epoch(positives, negatives, batch, number, world):
    positive = lines(positives, negatives, positives)
    ranks = [epoch(draws(positive, "all", batch, rank=rank, world=world), number) for rank in range(world)]
    assert {len(rank) for rank in ranks} == {draws(positive, "all", batch, world=world).count_batches()}
    rows = [draw.row for together in zip(*ranks, strict=True) for part in together for draw in part]
    assert sorted(rows[: len(positive)]) == list(range(len(positive)))
    assert 0 <= len(rows) - len(positive) < world  # the first draws again, so that the processes stay in step


def test_two_epochs_of_all_pairs_differ_in_their_order():
    one = draws(lines(20, 60, 1), "all", 16)
    assert [draw.row for draw in one.draw_order(0)] != [draw.row for draw in one.draw_order(1)]


@settings(max_examples=60, deadline=None)
@given(COUNTS, COUNTS, st.integers(1, 6), st.sampled_from(BALANCES), st.data())
def test_a_resume_at_any_batch_goes_on_as_before(positives, negatives, half, balance, data):
    positive = lines(positives, negatives, 7)
    whole = epoch(draws(positive, balance, 2 * half), 4)
    first = data.draw(st.integers(0, len(whole)))
    fresh = draws(positive, balance, 2 * half)
    assert epoch(fresh, 4, first) == whole[first:]
    assert len(fresh) == len(whole) - first


@pytest.mark.parametrize("balance", BALANCES)
def test_epochs_and_seeds_differ_and_nothing_else_counts(balance):
    positive = lines(30, 90, 2)
    one = draws(positive, balance, 8)
    orders = [epoch(one, number) for number in range(5)]
    assert len({str(order) for order in orders}) == 5
    assert [epoch(one, number) for number in (3, 1)] == [orders[3], orders[1]]
    assert epoch(draws(positive, balance, 8, seed=2), 0) != orders[0]
    flat = [draw for batch in orders[0] for draw in batch]
    assert [draw for batch in epoch(draws(positive, balance, 20), 0) for draw in batch] == flat


def test_the_balance_is_1_to_1_in_expectation_and_negatives_are_uniform():
    positive = lines(200, 50, 3)
    one = draws(positive, "expectation", 10)
    orders = [epoch(one, number) for number in range(60)]
    shares = np.array([np.mean([positive[draw.row] for draw in batch]) for order in orders for batch in order])
    # 2400 batches of 10: the spread of the mean is 0.16 / 49; not all halves (that is the other balance)
    assert abs(shares.mean() - 0.5) < 1e-9
    assert 0.12 < shares.std() < 0.2
    first = np.array([np.mean([positive[draw.row] for draw in order[0]]) for order in orders])
    assert abs(first.mean() - 0.5) < 0.08  # the beginning of an epoch too: positives do not come first
    counts = Counter(draw.row for order in orders for batch in order for draw in batch if not positive[draw.row])
    assert len(counts) == 50
    drawn = np.array(list(counts.values()))  # 12,000 draws of 50: 240 each, spread 15.3
    assert abs(drawn - 240).max() < 5 * 15.3
    assert drawn.std() > 5


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0, 0), (1.0, 1, 1), (0.5, 0.45, 0.55)])
def test_the_share_of_equalised_pictures(share, low, high):
    order = draws(lines(1000, 1000, 4), "exact", 10, equalise=share).draw_order(0)
    assert low <= np.mean([draw.equalised for draw in order]) <= high


@pytest.mark.parametrize("balance", BALANCES)
def test_wordings_are_drawn_beside_all_else(balance):
    """Uniform over 0 to 1, another lot each epoch, the same after a resume; rows and pictures do not depend on it."""
    positive = lines(500, 700, 4)
    plain, reworded = draws(positive, balance, 10), draws(positive, balance, 10, reword=True)
    orders = [epoch(reworded, number) for number in (0, 1)]
    assert {draw.wording for batch in epoch(plain, 0) for draw in batch} == {0.0}
    for order, number in zip(orders, (0, 1), strict=True):
        assert [[draw[:2] for draw in batch] for batch in order] == [
            [draw[:2] for draw in batch] for batch in epoch(plain, number)
        ]
    lots = np.array([[draw.wording for batch in order for draw in batch] for order in orders])
    assert lots.min() >= 0
    assert lots.max() < 1
    assert not (lots[0] == lots[1]).any()
    shares = np.bincount((lots[0] * 10).astype(int), minlength=10)  # 1000 lots on ten wordings: 100 each, spread 9.5
    assert abs(shares - 100).max() < 5 * 9.5
    assert epoch(draws(positive, balance, 10, reword=True), 1, first=3) == orders[1][3:]


@pytest.mark.parametrize(
    ("positive", "balance", "batch", "message"),
    [
        ([True, True], "exact", 2, r"a\.jsonl holds no negative pair"),
        ([False], "expectation", 2, r"a\.jsonl holds no positive pair"),
        ([True, False], "exact", 3, "micro_batch is 3, but balance exact needs an even number"),
    ],
)
def test_what_cannot_be_balanced_is_one_sentence(positive, balance, batch, message):
    with pytest.raises(UserError, match=message):
        draws(np.array(positive), balance, batch)
