"""Compute the paper's Tables 8 (recall) and 10-12 (pairs per split) from our results, beside the paper's values. The
misprints of these values are corrected."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import yaml

from cxr.base.columns import Column, schema
from cxr.base.paths import RESOURCES
from cxr.base.tables import THRESHOLDS, read_table, write_table
from cxr.base.vocabulary import LESIONS, LUNG_LESIONS, SPLITS

RESOURCE_FILES = ("paper_tables.yaml",)


@dataclass(frozen=True)
class PaperTables:
    """The values that the paper prints. Cells that contradict the paper's own sums are corrected and have a note."""

    splits: dict[str, dict[str, dict[str, int]]]
    """{split: {lesion type or ``total``: {column: pairs}}} (Tables 10-12)."""
    recall: dict[str, dict[str, float]]
    """{threshold set: {lesion type or ``average``: percentage}} (Table 8)."""
    dataset: dict[str, int]
    """Rounded totals of the whole dataset (section 4)."""
    notes: dict[tuple[str, ...], str] = field(default_factory=dict)
    """{(table, *keys of a corrected cell): note on the value that the paper prints}."""


def read_paper_tables(path: Path = RESOURCES / RESOURCE_FILES[0]) -> PaperTables:
    """Return the paper's values with misprints corrected. Raises ValueError if a listed misprint is not in a table."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    columns = data["splits"].pop("columns")
    splits = {
        split: {lesion: dict(zip(columns, row, strict=True)) for lesion, row in rows.items()}
        for split, rows in data["splits"].items()
    }
    tables = {"splits": splits, "recall": data["recall"]}
    notes = {}
    for fault in data["printed_wrong"]:
        *path_to, last = fault["cell"]
        holder = tables[fault["table"]]
        for name in path_to:
            holder = holder[name]
        if holder[last] != fault["printed"]:
            raise ValueError(f"{path}: {fault['cell']} is {holder[last]}, not {fault['printed']} as in printed_wrong")
        holder[last] = fault["corrected"]
        notes[fault["table"], *fault["cell"]] = f"printed as {fault['printed']}"
    return PaperTables(splits, data["recall"], data["dataset"], notes)


PAIR_COLUMNS = tuple(
    f"{kind}_{polarity}" for kind in ("basic", "global", "lesion_inference") for polarity in ("positive", "negative")
)
TOTAL = "total"


def _column(name: str) -> dict[str, Column]:
    description = "Pairs." if name == TOTAL else f"Of these, {name.replace('_', ' ')} ones."
    return {name: Column(pl.Int64, description), f"{name}_paper": Column(pl.Int64, "The paper's value.")}


PAIRS_BY_SPLIT = {
    "split": Column(pl.String, "train, validate or test."),
    "lesion": Column(pl.String, "Lesion type, or `total`."),
    **{name: column for kind in (TOTAL, *PAIR_COLUMNS) for name, column in _column(kind).items()},
    "note": Column(pl.String, "Values that the paper misprints, as it prints them."),
}
Counts = Counter[tuple[str, str, str]]
"""{(split, lesion type, column of :data:`PAIR_COLUMNS`): number of pairs}."""


def pair_column(line: dict) -> str:
    """Return the column of :data:`PAIR_COLUMNS` in which a pair is counted."""
    return f"{line['type']}_{'positive' if line['seg'] else 'negative'}"


def tabulate_splits(counts: Counts, paper: PaperTables) -> pl.DataFrame:
    """Return the rows of :data:`PAIRS_BY_SPLIT`: one per split and lesion type, and a total per split."""
    rows = []
    for split in SPLITS:
        sums: Counter = Counter()
        for lesion in LESIONS:
            ours = {column: counts[split, lesion, column] for column in PAIR_COLUMNS}
            ours[TOTAL] = sum(ours.values())
            sums.update(ours)
            rows.append(_split_row(split, lesion, ours, paper))
        rows.append(_split_row(split, TOTAL, sums, paper))
    return pl.DataFrame(rows, schema=schema(PAIRS_BY_SPLIT))


def _split_row(split: str, lesion: str, ours: dict[str, int], paper: PaperTables) -> dict:
    row: dict[str, object] = {"split": split, "lesion": lesion}
    for column in (TOTAL, *PAIR_COLUMNS):
        row |= {column: ours[column], f"{column}_paper": paper.splits[split].get(lesion, {}).get(column)}
    notes = {key[3]: note for key, note in paper.notes.items() if key[:3] == ("splits", split, lesion)}
    row["note"] = "; ".join(f"{column} {note} in the paper" for column, note in notes.items())
    return row


RECALL = THRESHOLDS | {
    "lesion": Column(pl.String, "Lesion type, or `average`: the mean of the types that occur."),
    "recall": Column(pl.Float64, "`grounded` over `total`; null without a study.", "%"),
    "grounded": Column(pl.Int64, "Studies with a grounded mask of the lesion, which confirms a reported location."),
    "total": Column(pl.Int64, "Studies whose report states the lesion."),
    "without_labels": Column(pl.Int64, "Of these, studies whose report names no zone for the lesion."),
    "paper": Column(pl.Float64, "The paper's recall (Table 8); null where it prints none.", "%"),
    "note": Column(pl.String, "The value that the paper prints, if it is a misprint."),
}


def tabulate_recall(sweeps: Iterable[pl.DataFrame], sets: Sequence[str], paper: PaperTables) -> pl.DataFrame:
    """Return the rows of :data:`RECALL`, in the order of ``sets``.

    ``sweeps`` are the tables of the masks stage with every threshold set, one per shard. Their column ``grounded`` is
    the number of findings with a mask that confirms a reported zone. A study is a hit for a lesion type if it has at
    least one of these. A study whose report names no zone is a miss. ``average`` is the unweighted mean of the lesion
    types that occur.
    """
    tables = pl.concat([_count_studies(sweep) for sweep in sweeps]).group_by("thresholds", "lesion").agg(pl.all().sum())
    counts = {
        (name, lesion): (grounded, total, total - labelled)
        for name, lesion, grounded, total, labelled in tables.iter_rows()
    }
    rows = []
    for name in sets:
        set_counts = {lesion: counts.get((name, lesion), (0, 0, 0)) for lesion in LUNG_LESIONS}
        recalls = {lesion: 100 * grounded / total for lesion, (grounded, total, _) in set_counts.items() if total}
        set_counts["average"] = tuple(map(sum, zip(*set_counts.values(), strict=True)))
        if recalls:
            recalls["average"] = sum(recalls.values()) / len(recalls)
        for lesion, lesion_counts in set_counts.items():
            recall = round(recalls[lesion], 1) if lesion in recalls else None
            printed = paper.recall.get(name, {}).get(lesion)
            note = paper.notes.get(("recall", name, lesion), "")
            rows.append((name, lesion, recall, *lesion_counts, printed, note))
    return pl.DataFrame(rows, schema=schema(RECALL), orient="row")


def _count_studies(sweep: pl.DataFrame) -> pl.DataFrame:
    pairs = sweep.group_by("thresholds", "study_id", "lesion").agg(
        pl.col("grounded").max() > 0, pl.col("has_labels").any()
    )
    return pairs.group_by("thresholds", "lesion").agg(
        pl.col("grounded").sum(), pl.len().alias("total"), pl.col("has_labels").sum()
    )


def run_recall(*, sweep: list[str], recall_table: str, sets: list[str]) -> None:
    """Write Table 8 for the threshold sets ``sets`` from the tables ``sweep`` (see :func:`tabulate_recall`)."""
    write_table(recall_table, tabulate_recall(map(read_table, sweep), sets, read_paper_tables()), RECALL)
