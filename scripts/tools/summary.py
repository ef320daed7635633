"""Print the paths of a run's dataset, page and report, and a short table of counts."""

import csv
import sys
from pathlib import Path


def main(results: Path) -> None:
    """Print the counts in ``tables/counts.tsv`` of the folder ``results``, and the paths of the results."""
    with open(results / "tables" / "counts.tsv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()
    for name, path in (
        ("dataset", results / "dataset"),
        ("page", results / "index.html"),
        ("report", results / "report.html"),
    ):
        print(f"{name}: {path.resolve()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
