"""Tables 10-12: pairs per split, lesion type, instruction type and polarity, beside the paper's counts."""

from collections import Counter
from collections.abc import Iterable

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.vocabulary import LESIONS, SPLITS
from cxr.reporting.tables.paper import PaperTables

COLUMNS = tuple(
    f"{kind}_{polarity}" for kind in ("basic", "global", "lesion_inference") for polarity in ("positive", "negative")
)
TOTAL = "total"


def _column(name: str) -> dict[str, Column]:
    description = "Pairs." if name == TOTAL else f"Of these, {name.replace('_', ' ')} ones."
    return {name: Column(pl.Int64, description), f"{name}_paper": Column(pl.Int64, "The paper's.")}


TABLE = {
    "split": Column(pl.String, "train, validate or test."),
    "lesion": Column(pl.String, "Lesion type, or `total`."),
    **{name: column for kind in (TOTAL, *COLUMNS) for name, column in _column(kind).items()},
    "note": Column(pl.String, "What the paper prints, where that was a misprint."),
}
Counts = Counter[tuple[str, str, str]]


def pair_column(line: dict) -> str:
    """Return the column in which a pair is counted."""
    return f"{line['type']}_{'positive' if line['seg'] else 'negative'}"


def count_pairs(lines: Iterable[dict]) -> Counts:
    """Count pairs by (split, target, column). A tentative finding counts under its target."""
    return Counter((line["split"], line["target"], pair_column(line)) for line in lines)


def tabulate_splits(counts: Counts, paper: PaperTables) -> pl.DataFrame:
    """Return one row per split and lesion type, and a total per split; each count is followed by the paper's."""
    rows = []
    for split in SPLITS:
        sums: Counter = Counter()
        for lesion in LESIONS:
            ours = {column: counts[split, lesion, column] for column in COLUMNS}
            ours[TOTAL] = sum(ours.values())
            sums.update(ours)
            rows.append(_row(split, lesion, ours, paper))
        rows.append(_row(split, TOTAL, sums, paper))
    return pl.DataFrame(rows, schema=schema(TABLE))


def _row(split: str, lesion: str, ours: dict[str, int], paper: PaperTables) -> dict:
    row: dict[str, object] = {"split": split, "lesion": lesion}
    for column in (TOTAL, *COLUMNS):
        row |= {column: ours[column], f"{column}_paper": paper.splits[split][lesion][column]}
    notes = {key[3]: note for key, note in paper.notes.items() if key[:3] == ("splits", split, lesion)}
    row["note"] = "; ".join(f"{column} {note} in the paper" for column, note in notes.items())
    return row
