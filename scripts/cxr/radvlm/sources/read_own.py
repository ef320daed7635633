"""Read the source own: one job a shard of the cohort, then one that joins them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from cxr.base.columns import schema
from cxr.base.conservation import ALL, CONSERVED, Counted
from cxr.base.tables import EXCLUDED, read_lines, read_table, write_excluded, write_lines, write_table
from cxr.radvlm.sources.columns import COUNTS, FACTS, IMAGES
from cxr.radvlm.sources.facts import KEPT, Held, facts_table, images_table
from cxr.radvlm.sources.own import read_own

OWN = "own"


@dataclass(frozen=True)
class OwnOptions:
    """labels, weak_hedges, uncertain, regions, min_box: settings of radvlm.sources; smallest: least part of a mask that
    gets a box, in frame pixels.
    """

    labels: str
    weak_hedges: str
    uncertain: str
    regions: str
    min_box: float
    smallest: int


def counts_table(counts: Counter) -> pl.DataFrame:
    """Return the counts, sorted by what is counted."""
    rows = sorted((count_name, number) for count_name, number in counts.items())
    return pl.DataFrame(rows, schema={name: column.kind for name, column in COUNTS.items()}, orient="row")


def write(
    records: Held, source: str, *, images: str, facts: str, texts: str, excluded: str, counts: str, conservation: str
) -> None:
    """Write what was read of a source. Raises AssertionError where a row of it became nothing, or two things."""
    table = facts_table(source, records.facts, records.tables)
    all_counts = Counter(records.counts)
    all_counts.update(f"facts: {kind}" for kind in table["kind"])
    all_counts.update(f"left out: {row['reason']}" for row in records.excluded)
    all_counts["texts"] = len(records.texts)
    write_table(images, images_table(source, records.images), IMAGES)
    write_table(facts, table, FACTS)
    write_lines(texts, sorted(records.texts, key=lambda line: line["study_id"]), checked=True)
    write_excluded(excluded, records.excluded)
    write_table(counts, counts_table(all_counts), COUNTS)
    write_table(conservation, conservation_table(records.conserved(source)), CONSERVED)


def conservation_table(rows: Iterable[Counted]) -> pl.DataFrame:
    """Return rows of :data:`CONSERVED`, those of one outcome added up, in the order in which they came first."""
    total: Counter = Counter()
    for record_kind, outcome, number in rows:
        total[record_kind, outcome] += number
    sorted_totals = sorted(total.items(), key=lambda row: (row[0][0], row[0][1] != ALL, row[0][1] != KEPT, row[0][1]))
    return pl.DataFrame([(*key, number) for key, number in sorted_totals], schema=schema(CONSERVED), orient="row")


def run_shard(
    *,
    images: str,
    cohort: str,
    frames: str,
    reports: str,
    organs: str,
    anatomy: str,
    findings: str,
    masks: str,
    images_out: str,
    facts: str,
    texts: str,
    excluded: str,
    counts: str,
    conservation: str,
    options: OwnOptions,
    labels: list[str] | None = None,
) -> None:
    """Write images, facts, texts, excluded rows, counts and conservation of one shard. ``labels``: the file of a
    model's, if any.
    """
    records = read_own(
        options, images=images, cohort=cohort, frames=frames, reports=reports, organs=organs, anatomy=anatomy,
        findings=findings, masks=masks, labels=labels or (),
    )  # fmt: skip
    write(
        records, OWN, images=images_out, facts=facts, texts=texts, excluded=excluded, counts=counts,
        conservation=conservation,
    )  # fmt: skip


def run_tables(
    *,
    images: Sequence[str],
    facts: Sequence[str],
    texts: Sequence[str],
    excluded: Sequence[str],
    counts: Sequence[str],
    conservation: Sequence[str],
    images_out: str,
    facts_out: str,
    texts_out: str,
    excluded_out: str,
    counts_out: str,
    conservation_out: str,
) -> None:
    """Join the files of all shards, in the order of images and studies."""
    write_table(images_out, pl.concat([read_table(path) for path in images]).sort("image_id"), IMAGES)
    joined = pl.concat([read_table(path) for path in facts])
    write_table(facts_out, joined.sort("image_id", "kind", "name", "fact_id"), FACTS)
    lines = sorted((line for path in texts for line in read_lines(path)), key=lambda line: line["study_id"])
    write_lines(texts_out, lines, checked=True)
    excluded_table = pl.concat([read_table(path) for path in excluded])
    write_table(excluded_out, excluded_table.sort(excluded_table.columns), EXCLUDED)
    total: Counter = Counter()
    for path in counts:
        total.update(dict(read_table(path).iter_rows()))
    write_table(counts_out, counts_table(total), COUNTS)
    conservation_rows = [row for path in conservation for row in read_table(path).iter_rows()]
    write_table(conservation_out, conservation_table(conservation_rows), CONSERVED)
