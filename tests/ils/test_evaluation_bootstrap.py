"""Intervals by patient equal a plain resampling with the same draws, and have the right coverage."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxr.base.seeds import stable_hash
from cxr.ils.evaluation import summary
from cxr.ils.evaluation.summary import make_score_table, make_text_table
from cxr.metrics.intervals import BLOCK, draw_weights, ratio_intervals, sums_by_subject
from scored_pairs import rows

PAPER = summary.read_paper_scores()


def resampled(table: pl.DataFrame, draws: np.ndarray, measure) -> list[float]:
    """The oracle: build each replicate's rows one by one and measure them as any table."""
    names = sorted(set(table["subject_id"]))
    of_subject = {name: table.filter(pl.col("subject_id") == name) for name in names}
    found = []
    for drawn in draws:
        parts = [of_subject[name] for name, times in zip(names, drawn, strict=True) for _ in range(times)]
        value = measure(pl.concat(parts))
        if value is not None:
            found.append(value)
    return found


def ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def percents(values: list[float]) -> list[float]:
    return [round(100 * end, 2) for end in np.quantile(values, [0.025, 0.975])]


def positives(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("polarity") == "positive")


def test_intervals_of_masks_are_those_of_a_plain_resampling():
    table, replicates = rows(1), 70
    draws = np.concatenate(list(draw_weights(len(set(table["subject_id"])), replicates, 5)))
    scores = make_score_table(table, PAPER, replicates=replicates, seed=5)
    made = {row["lesion"]: row for row in scores.iter_rows(named=True)}
    measures = {
        "giou": lambda part: positives(part)["iou"].mean(),
        "ciou": lambda part: ratio(positives(part)["intersection"].sum(), positives(part)["union"].sum()),
        "n_acc": lambda part: part.filter(pl.col("polarity") == "negative")["iou"].mean(),
    }
    for group in ("total", "edema"):
        chosen = pl.lit(True) if group == "total" else pl.col("target") == group
        for name, measure in measures.items():
            found = resampled(table, draws, lambda part, f=measure, c=chosen: f(part.filter(c)))
            ends = percents(found)
            assert [made[group][f"{name}_low"], made[group][f"{name}_high"]] == pytest.approx(ends, abs=0.011)
            assert ends[0] <= made[group][name] <= ends[1] or group != "total"
            assert ends[0] < ends[1]


def test_intervals_of_texts_are_those_of_a_plain_resampling():
    table, replicates = rows(2), 40
    draws = np.concatenate(list(draw_weights(len(set(table["subject_id"])), replicates, 3)))
    made = make_text_table(table, PAPER, replicates=replicates, seed=3)
    for rule, group, kind in (("strict", "total", "overall"), ("authors", "negative", "basic")):
        row = made.filter((pl.col("rule") == rule) & (pl.col("group") == group) & (pl.col("type") == kind)).row(
            0, named=True
        )

        def measure(part, rule=rule, group=group, kind=kind):
            part = part if group == "total" else part.filter(pl.col("polarity") == group)
            part = part if kind == "overall" else part.filter(pl.col("type") == kind)
            return part[rule].mean()

        ends = percents(resampled(table, draws, measure))
        assert [row["accuracy_low"], row["accuracy_high"]] == pytest.approx(ends, abs=0.011)


def test_draws_are_whole_patients_and_do_not_depend_on_the_block():
    drawn = np.concatenate(list(draw_weights(7, 2 * BLOCK + 3, 11)))
    assert drawn.shape == (2 * BLOCK + 3, 7)
    assert set(drawn.sum(axis=1)) == {7}
    generator = np.random.default_rng(stable_hash("bootstrap", 11))
    assert (drawn == generator.multinomial(7, [1 / 7] * 7, size=2 * BLOCK + 3)).all()
    assert not (drawn == np.concatenate(list(draw_weights(7, 2 * BLOCK + 3, 12)))).all()


def test_the_order_of_the_rows_changes_nothing():
    table = rows(3)
    shuffled = table.sample(fraction=1, shuffle=True, seed=1)
    chosen = {"replicates": 30, "seed": 1}
    assert make_score_table(table, PAPER, **chosen).equals(make_score_table(shuffled, PAPER, **chosen))
    assert make_text_table(table, PAPER, **chosen).equals(make_text_table(shuffled, PAPER, **chosen))


def test_pairs_of_one_patient_widen_the_interval():
    # ten patients whose hundred pairs are all alike, against a thousand patients
    right = np.repeat([1.0, 0.0], 500)[:, None]
    widths = []
    for subjects in (10, 1000):
        sums = sums_by_subject(
            np.repeat(np.arange(subjects), 1000 // subjects), subjects, np.hstack([right, right * 0 + 1])
        )
        low, high = ratio_intervals(sums[:, :1], sums[:, 1:], replicates=400, level=0.95, seed=0)
        widths.append(float(high[0] - low[0]))
    # the standard error is sqrt(1/4 / subjects): ten times as wide
    assert widths[0] / widths[1] == pytest.approx(10, rel=0.2)
    assert widths[1] == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(1000), rel=0.2)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    random = np.random.default_rng(4)
    covered = 0
    for trial in range(200):
        chances = random.beta(4, 2, 80)  # patients differ; the truth is 2/3
        sizes = random.integers(1, 8, 80)
        correct = random.binomial(sizes, chances)
        low, high = ratio_intervals(correct[:, None], sizes[:, None], replicates=200, level=0.9, seed=trial)
        covered += low[0] <= 2 / 3 <= high[0]
    assert 0.82 <= covered / 200 <= 0.96


def test_what_is_not_there_has_no_interval():
    numerators, denominators = np.array([[1.0, 0], [2, 0]]), np.array([[2.0, 0], [2, 0]])
    low, high = ratio_intervals(numerators, denominators, replicates=20, level=0.95, seed=0)
    assert np.isnan([low[1], high[1]]).all()
    assert 0.5 <= low[0] <= high[0] <= 1
    for none in (ratio_intervals(numerators, denominators, replicates=0, level=0.95, seed=0),
                 ratio_intervals(np.empty((0, 2)), np.empty((0, 2)), replicates=9, level=0.95, seed=0)):  # fmt: skip
        assert np.isnan(none).all()
    empty = rows(0).clear()
    table = make_score_table(empty, PAPER, replicates=10, seed=0)
    assert table["giou"].null_count() == len(table) == 8
    assert make_text_table(empty, PAPER, replicates=10, seed=0).is_empty()


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 12))
def test_ends_lie_between_the_patients_extremes(seed, subjects):
    random = np.random.default_rng(seed)
    below = random.integers(1, 9, (subjects, 2)).astype(float)
    above = below * random.random((subjects, 2))
    low, high = ratio_intervals(above, below, replicates=50, level=0.95, seed=seed)
    ratios = above / below
    assert (ratios.min(axis=0) - 1e-12 <= low).all()
    assert (low <= high).all()
    assert (high <= ratios.max(axis=0) + 1e-12).all()
