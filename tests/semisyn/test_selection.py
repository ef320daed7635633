"""Choosing configurations: scales, directions, ties and intervals, worked out by hand."""

import numpy as np
import polars as pl
import pytest

from cxr.semisyn.selection.select_configs import MEASURED_SCHEMA, choose_configs, scale_metric, score_table
from review_cases import cells

COSTS = {"lite": (0, 1.0), "slow": (1, 2.0), "fast": (1, 1.0)}
ENGINES = {"lite": "lite", "slow": "diffusion", "fast": "diffusion"}


def measured(rows: list[tuple]) -> pl.DataFrame:
    """Rows without the last column: the painter's own images are scored by what learnt from it, but for kid."""
    told = [(*row, row[1] == "lite" and row[2] != "kid") for row in rows]
    return pl.DataFrame(told, schema=MEASURED_SCHEMA, orient="row")


TABLE = measured(
    [
        ("edema", "lite", "auroc", -1, 0.60),
        ("edema", "slow", "auroc", -1, 0.80),
        ("edema", "fast", "auroc", -1, 0.70),
        ("edema", "lite", "kid", -1, 3.0),
        ("edema", "slow", "kid", -1, 5.0),
        ("edema", "fast", "kid", -1, 1.0),
        ("edema", "slow", "ap1070", -1, 0.2),
        ("edema", "fast", "ap1070", -1, 0.9),
        ("opacity", "lite", "auroc", -1, 0.7),
        ("opacity", "slow", "auroc", -1, 0.7),
        ("opacity", "fast", "auroc", -1, 0.7),
    ]
)


def test_scores_are_means_of_scaled_metrics():
    table = score_table(TABLE, COSTS)
    # auroc: 0, 1, .5; kid, lower is better: .5, 0, 1; ap1070 is missing for lite and left out for all
    scores = {row["config"]: row["score"] for row in table.filter(pl.col("finding") == "edema").iter_rows(named=True)}
    assert scores == pytest.approx({"lite": 0.25, "slow": 0.5, "fast": 0.75})
    kept = cells(table, finding="edema", config="fast", metric="ap1070")
    assert (kept["value"], kept["normalised"]) == (0.9, None)
    assert cells(table, finding="edema", config="slow", metric="kid")["normalised"] == 0.0


def test_where_all_are_equal_the_cheapest_is_chosen():
    table = score_table(TABLE, COSTS).filter(pl.col("finding") == "opacity")
    assert dict(table.select("config", "rank").iter_rows()) == {"lite": 1, "fast": 2, "slow": 3}
    assert set(table["score"]) == {0.5}


def test_a_test_that_cannot_tell_is_the_best_whichever_side_of_chance_it_fell():
    values = np.array([[0.45], [0.5], [0.7]])
    np.testing.assert_allclose(scale_metric(values, "c2st")[:, 0], [1, 1, 0])


def test_the_interval_of_the_difference_is_of_the_same_draws():
    draw = np.random.default_rng(1)
    rows = [("edema", name, "auroc", -1, value) for name, value in (("lite", 0.7), ("slow", 0.6), ("fast", 0.5))]
    for replicate in range(200):
        shift = draw.normal()  # common to all: it cancels out
        values = {"lite": 0.7 + shift, "slow": 0.6 + shift, "fast": 0.5 + shift}
        rows += [("edema", name, "auroc", replicate, value) for name, value in values.items()]
    table = measured(rows)
    chosen = choose_configs(table, score_table(table, COSTS), ENGINES, 0.95)["edema"]
    assert (chosen["config"], chosen["engine"], chosen["second"]) == ("lite", "lite", "slow")
    assert chosen["score"] == 1.0
    assert chosen["difference"] == pytest.approx([0.5, 0.5])


def test_one_configuration_has_no_second():
    alone = TABLE.filter(pl.col("config") == "lite")
    chosen = choose_configs(alone, score_table(alone, COSTS), ENGINES, 0.95)
    assert chosen["edema"] == {"config": "lite", "engine": "lite", "score": 0.5, "second": None, "difference": None,
                               "circular": ["auroc"]}  # fmt: skip
    assert chosen["opacity"]["circular"] == ["auroc"]


def test_a_score_by_what_learnt_from_the_painter_is_marked():
    table = score_table(TABLE, COSTS)
    marked = table.filter("circular").select("finding", "config", "metric").rows()
    assert sorted(marked) == [("edema", "lite", "auroc"), ("opacity", "lite", "auroc")]
    assert choose_configs(TABLE, table, ENGINES, 0.95)["edema"]["circular"] == []
