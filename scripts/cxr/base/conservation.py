"""Counts that must agree: how many there are of something, and what became of them, each counted on its own."""

from collections.abc import Mapping

import polars as pl

from cxr.base.columns import Column, Columns

ALL = "all"
"""The outcome that all others of the same thing add up to."""
CONSERVED: Columns = {
    "what": Column(pl.String, "What is counted."),
    "outcome": Column(pl.String, "`all`, or what became of it."),
    "number": Column(pl.Int64, "How many."),
}

CountRow = tuple[str, str, int]
"""A row of :data:`CONSERVED`."""


def counted_rows(stage: str, quantity: str, total: int, parts: Mapping[str, int]) -> list[CountRow]:
    """Return a row for all, and one for each outcome that is not 0, in the order of ``parts``.

    Neither side may be made from the other. Raises AssertionError where the parts do not add up to the whole: something
    was lost or counted twice, which is a fault of the program.
    """
    came = sum(parts.values())
    if total != came or min(parts.values(), default=0) < 0:
        raise AssertionError(f"{stage}: {quantity}: {total} in, {came} accounted for ({describe_outcomes(parts)})")
    return [(quantity, ALL, total), *((quantity, outcome, number) for outcome, number in parts.items() if number)]


def describe_outcomes(parts: Mapping[str, int]) -> str:
    """Return the outcomes as a text: "kept 3, no_area 1"."""
    return ", ".join(f"{outcome} {number}" for outcome, number in parts.items()) or "nothing"
