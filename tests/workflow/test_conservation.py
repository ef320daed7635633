"""The funnel, and the check that every image is accounted for."""

import polars as pl
import pytest

from cxr.base.errors import StoreError
from cxr.reporting.tables.conservation import Flow, require_balance, tabulate_conservation, tabulate_funnel


def flow(entered: str, accepted: str, **excluded: str) -> Flow:
    return Flow(frozenset(entered), frozenset(accepted), excluded)


def good_flows() -> dict[str, Flow]:
    """Six images a..f: f is no chest, e has no report and undecodable pixels, d is cut off, c ends without pairs."""
    return {
        "cohort": flow("abcdef", "abcde", f="not_frontal"),
        "frames": flow("abcde", "abcd", e="undecodable"),
        "reports": flow("abcde", "abcd", e="no_report"),
        "organs": flow("abcd", "abc", d="cut_off"),
        "masks": flow("abc", "abc"),
        "dataset": flow("abc", "ab", c="no_pairs"),
    }


def test_conservation_by_hand():
    table = tabulate_conservation(good_flows())
    assert table.rows() == [
        ("cohort", 6, 5, 1, "yes"),
        ("frames", 5, 4, 1, "yes"),
        ("reports", 5, 4, 1, "yes"),
        ("organs", 4, 3, 1, "yes"),
        ("masks", 3, 3, 0, "yes"),
        ("dataset", 3, 2, 1, "yes"),
    ]
    require_balance(good_flows())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (flow("abcd", "abc"), "1 input images are lost, 0 are both"),
        (flow("abcd", "abcd", d="cut_off"), "0 input images are lost, 1 are both"),
        (flow("abcd", "abcz", d="cut_off"), "1 results belong to no input image"),
        (flow("abcd", "abc", d="cut_off", z="cut_off"), "1 results belong to no input image"),
    ],
)
def test_a_stage_that_does_not_balance_is_named(bad, message):
    flows = good_flows() | {"organs": bad}
    row = tabulate_conservation(flows).row(by_predicate=pl.col("stage") == "organs", named=True)
    assert row["balanced"] == "no"
    with pytest.raises(StoreError, match=f"organs does not balance: .*{message}"):
        require_balance(flows)


def test_funnel_counts_each_image_once_at_its_first_stage():
    table = tabulate_funnel(good_flows(), frozenset("abcdef"), frozenset("ab"))
    assert table.select("stage", "reason", "images", "remaining").rows() == [
        ("input", "", 6, 6),
        ("cohort", "not_frontal", 1, 5),
        ("frames", "undecodable", 1, 4),
        ("reports", "", 0, 4),
        ("organs", "cut_off", 1, 3),
        ("masks", "", 0, 3),
        ("dataset", "no_pairs", 1, 2),
        ("pairs", "", 2, 2),
    ]
    lost = table.filter(pl.col("reason") != "")["images"].sum()
    assert lost + table["remaining"][-1] == table["images"][0]


@pytest.mark.parametrize("with_pairs", ["abc", "a"])
def test_funnel_refuses_images_that_end_nowhere_or_twice(with_pairs):
    with pytest.raises(StoreError, match="different runs"):
        tabulate_funnel(good_flows(), frozenset("abcdef"), frozenset(with_pairs))
