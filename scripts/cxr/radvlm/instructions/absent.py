"""Which absent findings are asked: a finding's name must not tell whether it is there."""

from collections.abc import Mapping

import polars as pl

POOL = {"split": pl.String, "name": pl.String, "image_id": pl.String, "rank": pl.UInt64}
"""A finding that an image does not have. rank: a stable hash, by which they are drawn."""


def chosen(pool: pl.DataFrame, present: Mapping[tuple[str, str], int], share: float) -> pl.DataFrame:
    """Return the rows of a ``pool`` that are asked.

    ``present``: {(split, finding): samples of abnormality_grounding}; ``share``: absences for each of them. Of each
    finding there are as many, the first by rank; where it has too few, others of the split make up for them, but no
    finding that the split never has.
    """
    rows = [(split, name, round(share * count)) for (split, name), count in present.items()]
    quotas = pl.DataFrame(rows, schema={"split": pl.String, "name": pl.String, "wanted": pl.Int64}, orient="row")
    pool = pool.join(quotas, on=["split", "name"]).sort("rank", "name", "image_id")
    within_quota = pl.int_range(pl.len()).over("split", "name") < pl.col("wanted")
    selected, surplus = pool.filter(within_quota), pool.filter(~within_quota)
    total = quotas.group_by("split").agg(pl.sum("wanted").alias("total"))
    had = selected.group_by("split").agg(pl.len().cast(pl.Int64).alias("had"))
    lacking = total.join(had, on="split", how="left").select(
        "split", lacks=pl.col("total") - pl.col("had").fill_null(0)
    )
    substitutes = surplus.join(lacking, on="split").sort("rank", "name", "image_id")
    substitutes = substitutes.filter(pl.int_range(pl.len()).over("split") < pl.col("lacks"))
    return pl.concat([selected, substitutes.select(selected.columns)]).select(list(POOL))
