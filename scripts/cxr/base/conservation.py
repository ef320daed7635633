"""Checked counts: the numbers of items with each outcome must add up to the number of all items."""

from collections.abc import Mapping

import polars as pl

from cxr.base.columns import Column, Columns

ALL = "all"  # the outcome of the row that counts all items; the counts of the other outcomes add up to it
CONSERVED: Columns = {
    "what": Column(pl.String, "Kind of item that is counted."),
    "outcome": Column(pl.String, "Outcome of the items; `all` counts the items of all outcomes."),
    "number": Column(pl.Int64, "Number of items."),
}

CountRow = tuple[str, str, int]  # a row of :data:`CONSERVED`


def counted_rows(stage: str, quantity: str, total: int, parts: Mapping[str, int]) -> list[CountRow]:
    """Return a row that counts all items of the kind ``quantity``, and a row for each outcome that occurred.

    ``parts`` is {outcome: number of items}. The caller must not compute ``total`` from ``parts``. Raises AssertionError
    if the sum of ``parts`` is not ``total``, because a bug has then lost or doubled an item.
    """
    num_accounted = sum(parts.values())
    if total != num_accounted or min(parts.values(), default=0) < 0:
        outcomes = ", ".join(f"{outcome} {number}" for outcome, number in parts.items()) or "nothing"
        raise AssertionError(
            f"{stage}: {quantity}: {total} in, {num_accounted} accounted for ({outcomes}): an item was lost or doubled"
        )
    return [(quantity, ALL, total), *((quantity, outcome, number) for outcome, number in parts.items() if number)]
