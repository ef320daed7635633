"""Read the paper's printed values (``resources/paper_tables.yaml``), with misprints corrected."""

from dataclasses import dataclass, field
from pathlib import Path

import yaml


@dataclass(frozen=True)
class PaperTables:
    """Printed values; cells that contradict the paper's own sums are corrected and have a note."""

    splits: dict[str, dict[str, dict[str, int]]]
    """{split: {lesion type or ``total``: {column: pairs}}} (Tables 10-12)."""
    recall: dict[str, dict[str, float]]
    """{threshold set: {lesion type or ``average``: percentage}} (Table 8)."""
    dataset: dict[str, int]
    """Rounded totals of the whole dataset (section 4)."""
    notes: dict[tuple[str, ...], str] = field(default_factory=dict)
    """{(table, *cell): what the paper prints}."""


def read_paper_tables(path: str | Path) -> PaperTables:
    """Read the values and correct the misprints. Raises ValueError for a misprint that the table does not have."""
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
    return PaperTables(splits, data["recall"], data["dataset"], notes)
