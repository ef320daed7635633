"""Tables 10-12: pairs per split, lesion type, instruction type and polarity, beside the paper's counts."""

from collections import Counter
from collections.abc import Iterable

import polars as pl

from cxr.base.vocabulary import LESIONS, SPLITS
from cxr.reporting.tables.paper import Paper

COLUMNS = tuple(
    f"{kind}_{polarity}" for kind in ("basic", "global", "lesion_inference") for polarity in ("positive", "negative")
)
Counts = Counter[tuple[str, str, str]]


def column_of(line: dict) -> str:
    """Return the column a pair is counted in."""
    return f"{line['type']}_{'positive' if line['seg'] else 'negative'}"


def count(lines: Iterable[dict]) -> Counts:
    """Count pairs by (split, target, column). A tentative finding counts under its target, whatever its text says."""
    return Counter((line["split"], line["target"], column_of(line)) for line in lines)


def table(counts: Counts, paper: Paper) -> pl.DataFrame:
    """Return one row per split and lesion type, and a total per split; every count has a ``_paper`` neighbour."""
    rows = []
    for split in SPLITS:
        sums: Counter = Counter()
        for lesion in LESIONS:
            ours = {column: counts[split, lesion, column] for column in COLUMNS}
            ours["total"] = sum(ours.values())
            sums.update(ours)
            rows.append(_row(split, lesion, ours, paper))
        rows.append(_row(split, "total", sums, paper))
    return pl.DataFrame(rows, infer_schema_length=None)


def _row(split: str, lesion: str, ours: dict[str, int], paper: Paper) -> dict:
    row: dict[str, object] = {"split": split, "lesion": lesion}
    for column in ("total", *COLUMNS):
        row |= {column: ours[column], f"{column}_paper": paper.splits[split][lesion][column]}
    notes = {key[3]: note for key, note in paper.notes.items() if key[:3] == ("splits", split, lesion)}
    row["note"] = "; ".join(f"{column} {note} in the paper" for column, note in notes.items())
    return row
