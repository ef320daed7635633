"""Comparison of this dataset's numbers with the paper's Tables 1, 2, 5 and 6. Sources are counted in images and in
pairs (image, class), because the paper uses both. ``tables`` are the printed ones."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from cxr.base.columns import read_columns
from cxr.base.resources import load_resource
from cxr.base.tables import read_table, read_tables, write_rows
from cxr.medground.logic.facts import paths_by_source

RESOURCE_FILES = ("medground/paper_tables.yaml", "columns/medground_dataset.toml")
SOURCE_COUNTS = read_columns("medground_dataset", "source_counts")
PAPER_COMPARISON = read_columns("medground_dataset", "paper_comparison")
PRINTED_SPLITS = {"train": "train", "val": "validate", "test": "test"}
TRIPLETS = "the paper's row counts triplets, which it calls images"


def _row(table: str, row: str, column: str, paper: object, ours: object, unit: str, note: str = "") -> dict:
    numbers = (None if value is None else float(value) for value in (paper, ours))
    return dict(zip(PAPER_COMPARISON, (table, row, column, *numbers, unit, note), strict=True))


def count_sources(
    names: Sequence[str], images: Sequence[pl.DataFrame], regions: Sequence[pl.DataFrame], excluded: Sequence[int]
) -> list[dict]:
    """Return the rows of :data:`SOURCE_COUNTS`: one per source and split, and sums of all splits and of all sources.
    Each argument has an entry per source: name, table of images, table of regions, number of excluded images."""
    splits, rows = (*PRINTED_SPLITS.values(), "all"), []
    for name, table, part, num_excluded in zip(names, images, regions, excluded, strict=True):
        split_by_image = dict(table.select("image_id", "split").iter_rows())
        class_images = part.select("image_id", "label").unique()["image_id"]
        counters = Counter(split_by_image.values()), Counter(split_by_image[image_id] for image_id in class_images)
        domains = table["domain"].unique().to_list()
        domain = domains[0] if len(domains) == 1 else "various"
        for split in splits:
            counts = [counter.total() if split == "all" else counter[split] for counter in counters]
            values = name, domain, split, *counts, num_excluded if split == "all" else None
            rows.append(dict(zip(SOURCE_COUNTS, values, strict=True)))
    for split in splits:
        parts, num_excluded = [row for row in rows if row["split"] == split], sum(excluded) if split == "all" else None
        sums = {unit: sum(row[unit] for row in parts) for unit in ("images", "image_classes")}
        rows.append({"source": "total", "domain": "various", "split": split, **sums, "excluded": num_excluded})
    return rows


def table1_rows(tables: Mapping, queries: int) -> Iterator[dict]:
    """Yield the rows of Table 1: numbers of annotations in published datasets, and of queries in this dataset."""
    for row in tables["table1"]:
        note = tables["totals"]["notes"][0] if row["dataset"] == "MedGround-35K" else ""
        yield _row("Table 1", row["dataset"], "annotations", row["annotations"], None, "annotations", note)
    yield _row("Table 1", "this dataset", "annotations", None, queries, "queries", "made automatically")


def table2_rows(tables: Mapping, statistics: pl.DataFrame, domains: Mapping[str, str]) -> Iterator[dict]:
    """Yield the rows of Table 2 for train and test: images, queries, words per query, percentages of image domains."""
    printed = tables["table2"]
    total = {row["split"]: row for row in statistics.filter(source="total").to_dicts()}
    for split in ("train", "test"):
        row, note = total.get(split, {}), f"printed as {printed[f'{split}_images']}"
        yield _row("Table 2", split, "images", None, row.get("images"), "images", TRIPLETS)
        yield _row("Table 2", split, "queries", tables["totals"][split], row.get("queries"), "queries", note)
        yield _row("Table 2", split, "words a query", printed[f"avg_words_{split}"], row.get("words"), "words")
        shares, queries_by_domain = printed[f"{split}_modality_percent"], Counter()
        for source_row in statistics.filter(pl.col("source") != "total", split=split).to_dicts():
            queries_by_domain[domains[source_row["source"]]] += source_row["queries"]
        count = queries_by_domain.total()
        for domain in sorted(shares.keys() | queries_by_domain.keys()):
            ours = 100 * queries_by_domain[domain] / count if count else None
            yield _row("Table 2", f"{split}: {domain}", "share of the queries", shares.get(domain), ours, "%")


def table5_rows(tables: Mapping, rows: Sequence[Mapping]) -> Iterator[dict]:
    """Yield the rows of Table 5, numbers of images per source and split. ``rows``: result of :func:`count_sources`."""
    ours = {(row["source"].lower(), row["split"]): row for row in rows if row["split"] in PRINTED_SPLITS.values()}
    for name, printed in tables["table5"]["rows"].items():
        for column, split in PRINTED_SPLITS.items():
            images = ours.pop((name.lower(), split), {}).get("images")
            yield _row("Table 5", name, column, printed[column], images, "images", printed.get("note", ""))
    for (name, split), row in ours.items():
        yield _row("Table 5", name, split, None, row["images"], "images", "not of the paper" if name != "total" else "")


def table6_rows(tables: Mapping, rates: pl.DataFrame) -> Iterator[dict]:
    """Yield the rows of Table 6: percentage of candidate queries that are left after each stage of the verification."""
    printed = tables["table6"]
    ours = {(row["source"].lower(), row["split"], row["stage"]): row for row in rates.to_dicts()}
    for name, printed_row in printed["rows"].items():
        for at, split in enumerate(("train", "test")):
            for stage in ("I", "II", "III"):
                row = ours.get((name.lower(), "all" if name == "Total" else split, stage))
                our_share, share = row["accepted_percentage"] if row else None, printed_row[stage][at]
                note = printed_row.get("note", "") if (split, stage) == ("test", "III") else ""
                yield _row("Table 6", f"{name}, {split}", f"kept after {stage}", share, our_share, "%", note)
    printed_names = {name.lower() for name in printed["rows"]}
    for (name, split, stage), row in ours.items():
        if name not in printed_names and split in ("train", "test"):
            note, our_share = f"{row['unjudged']} of them unjudged" * bool(row["unjudged"]), row["accepted_percentage"]
            yield _row("Table 6", f"{name}, {split}", f"kept after {stage}", None, our_share, "%", note)


def run(
    *, statistics: str, rates: str, images: list[str], excluded: list[str], regions: list[str], source_counts: str,
    comparison: str, source_names: list[str],
) -> None:  # fmt: skip
    """Write the numbers of images of each source, and the comparison with the paper's tables."""
    printed_tables, statistics_table = load_resource(RESOURCE_FILES[0]), read_table(statistics)
    region_tables = [read_tables(paths) for _, paths in paths_by_source(source_names, regions)]
    num_excluded = [len(read_table(path)) for path in excluded]
    rows = count_sources(source_names, list(map(read_table, images)), region_tables, num_excluded)
    write_rows(source_counts, rows, SOURCE_COUNTS)
    domains = {row["source"]: row["domain"] for row in rows}
    queries = statistics_table.filter(source="total")["queries"].sum()
    comparison_rows = [
        *table1_rows(printed_tables, queries), *table2_rows(printed_tables, statistics_table, domains),
        *table5_rows(printed_tables, rows), *table6_rows(printed_tables, read_table(rates)),
    ]  # fmt: skip
    write_rows(comparison, comparison_rows, PAPER_COMPARISON)
