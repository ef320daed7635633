"""Samples of a set that are asked, where not all are: the same on any machine, in any order, and of other pictures."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from cxr.base.columns import schema
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, write_lines, write_table
from cxr.vlm.answers.columns import DRAWN
from cxr.vlm.samples import sample_of

log = logging.getLogger("cxr")


@dataclass(frozen=True)
class DrawOptions:
    """most: samples of a task that are asked."""

    most: int


def drawn(lines: Iterable[Mapping], most: int) -> set[str]:
    """Return the names of ``most`` samples of each task, the first by the hash of their names; of fewer, all.

    Those of a smaller ``most`` are among those of a larger one. Queries are one task. Raises UserError for a line that
    lacks a field.
    """
    names_by_task: dict[str, list[str]] = {}
    for line in lines:
        sample = sample_of(line)
        names_by_task.setdefault(sample.task, []).append(sample.sample_id)
    return {name for names in names_by_task.values() for name in sorted(names, key=_place)[:most]}


def _place(name: str) -> tuple[int, str]:
    return stable_hash("asked", name), name


def run(*, lines: str, asked: str, counts: str, options: DrawOptions, among: str | list[str] = "") -> None:
    """Write the lines that are asked, in their order, and how many of how many they are.

    ``among``: another set, of the same samples about other pictures, whose draw holds here too. Raises UserError like
    :func:`drawn`.
    """
    selected_names = drawn(read_lines(among[0] if among else lines), options.most)
    total_counts, selected_counts = Counter(), Counter()

    def selected_lines() -> Iterable[Mapping]:
        for line in read_lines(lines):
            sample = sample_of(line)
            total_counts[sample.task, sample.source] += 1
            if sample.sample_id in selected_names:
                selected_counts[sample.task, sample.source] += 1
                yield line

    write_lines(asked, selected_lines())
    rows = [(*key, number, selected_counts[key]) for key, number in sorted(total_counts.items())]
    write_table(counts, pl.DataFrame(rows, schema=schema(DRAWN), orient="row"), DRAWN)
    log.info("%d of %d samples are asked", selected_counts.total(), total_counts.total())
