"""Counts that must agree: the number of all items, and the number with each outcome, counted independently."""

from collections.abc import Mapping

import polars as pl

from cxr.base.columns import Column, Columns

ALL = "all"  # the outcome of the row that counts all items; the counts of the other outcomes add up to it
CONSERVED: Columns = {
    "what": Column(pl.String, "What is counted."),
    "outcome": Column(pl.String, "`all`, or what became of it."),
    "number": Column(pl.Int64, "How many."),
}

CountRow = tuple[str, str, int]  # a row of :data:`CONSERVED`


def counted_rows(stage: str, quantity: str, total: int, parts: Mapping[str, int]) -> list[CountRow]:
    """Return a row for all items and a row for each outcome that occurred, in the order of ``parts``.

    Count ``total`` and ``parts`` independently. Raises AssertionError if they disagree: a bug lost or doubled an item.
    """
    num_accounted = sum(parts.values())
    if total != num_accounted or min(parts.values(), default=0) < 0:
        outcomes = ", ".join(f"{outcome} {number}" for outcome, number in parts.items()) or "nothing"
        raise AssertionError(f"{stage}: {quantity}: {total} in, {num_accounted} accounted for ({outcomes})")
    return [(quantity, ALL, total), *((quantity, outcome, number) for outcome, number in parts.items() if number)]
