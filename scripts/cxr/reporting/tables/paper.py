"""Read the paper's printed numbers (``resources/paper_tables.yaml``), with its misprints corrected."""

from dataclasses import dataclass, field
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Paper:
    """Printed values, corrected where the paper's own sums contradict a cell, and a note on each such cell."""

    splits: dict[str, dict[str, dict[str, int]]]
    """Split -> lesion type or ``total`` -> column -> pairs (Tables 10-12)."""
    recall: dict[str, dict[str, float]]
    """Threshold set -> lesion type or ``average`` -> per cent (Table 8)."""
    dataset: dict[str, int]
    """Rounded totals of the whole dataset (section 4)."""
    notes: dict[tuple[str, ...], str] = field(default_factory=dict)
    """(table, *cell) -> the printed text."""


def read(path: str | Path) -> Paper:
    """Read the numbers and replace the misprints by the corrected values."""
    data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
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
            raise ValueError(f"the misprint {fault['cell']} is {holder[last]} in the table, not {fault['printed']}")
        holder[last] = fault["corrected"]
        notes[fault["table"], *fault["cell"]] = f"printed as {fault['printed']}"
    return Paper(splits, data["recall"], data["dataset"], notes)
