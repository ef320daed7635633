"""The privacy stage: count the identifiers removed from texts and images, by kind, without recording their content."""

from collections import Counter
from collections.abc import Iterator, Sequence

import polars as pl

from cxr.base.columns import Column
from cxr.base.conservation import counted_rows
from cxr.base.hdf5 import Shard
from cxr.base.jobs import log
from cxr.base.tables import read_lines, read_table, write_rows
from cxr.base.vocabulary import BLACKED_OUT

NONE, ANY, TEXT = "none", "any", "burned_in"
TABLE = {
    "place": Column(pl.String, "`reports`: texts; `frames`: images."),
    "kind": Column(
        pl.String,
        "Kind of identifier that was removed ([privacy.md](../how-to/privacy.md)), `any` or `none`. The studies of "
        "`any` and `none` add up to all studies that the stage passed on.",
    ),
    "studies": Column(pl.Int64, "Studies (for `frames`: images) with an identifier of the kind."),
    "number": Column(pl.Int64, "Number of identifiers removed."),
}


def run(*, reports: Sequence[str], frames: Sequence[str], corrected: Sequence[str], table: str) -> None:
    """Write ``table``, which has one row per place (reports or frames) and kind of identifier, sorted.
    ``frames`` are the shards whose images are counted, and ``corrected`` the tables of corrections to these images."""
    rows = list(_count_rows("reports", (line["removed"] for path in reports for line in read_lines(path))))
    rows += _count_rows("frames", _count_blacked_out(frames, corrected))
    write_rows(table, rows, TABLE)
    row_by_place = {row["place"]: row for row in rows if row["kind"] == ANY}
    summary = ", ".join(f"{row['number']} in {row['studies']} {place}" for place, row in row_by_place.items())
    log.info("privacy: removed identifiers: %s", summary)


def _count_blacked_out(frames: Sequence[str], corrected: Sequence[str]) -> Iterator[dict[str, int]]:
    """Yield {"burned_in": number of blackened pieces of text} for each image, or {} if there are none."""
    pieces = {
        row["image_id"]: int(row["correction"].split()[0])
        for path in corrected
        for row in read_table(path).iter_rows(named=True)
        if row["correction"].endswith(BLACKED_OUT)
    }
    for path in frames:
        with Shard(path) as shard:
            yield from ({TEXT: pieces[image_id]} if image_id in pieces else {} for image_id in sorted(shard.ids))


def _count_rows(place: str, removed: Iterator[dict[str, int]]) -> Iterator[dict]:
    studies, numbers, total = Counter(), Counter(), 0
    for counts in removed:
        total += 1
        for kind in counts or {NONE: 0}:
            studies[kind] += 1
            numbers[kind] += counts.get(kind, 0)
        studies[ANY] += bool(counts)
        numbers[ANY] += sum(counts.values())
    counted_rows("privacy", place, total, {ANY: studies[ANY], NONE: studies[NONE]})
    for kind in (*sorted(studies.keys() - {ANY, NONE}), ANY, NONE):
        yield {"place": place, "kind": kind, "studies": studies[kind], "number": numbers[kind]}
