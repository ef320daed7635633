"""Report findings with fewer images than requested. Standard library only: the driver imports it."""

import csv
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def describe_shortfalls(rows: Iterable[Mapping]) -> list[str]:
    """Return a sentence for each finding with fewer images than requested. ``rows``: of the conservation table."""
    return [
        f"semisyn: {row['finding']} has {row['exported']} of {row['asked']} images: {row['planned']} jobs were planned"
        f", {row['not_placed']} found no room, {row['not_edited']} were refused after the edit"
        for row in rows
        if row["finding"] != "all" and int(row["exported"]) < int(row["asked"])
    ]


def print_shortfalls(conservation: Path) -> None:
    """Print :func:`describe_shortfalls` of a conservation table to stderr; do nothing if it cannot be read."""
    try:
        with open(conservation, newline="", encoding="utf-8") as file:
            messages = describe_shortfalls(list(csv.DictReader(file, delimiter="\t")))
    except (OSError, KeyError, ValueError):
        return
    for line in messages:
        print(f"cxr-ils: {line} ({conservation})", file=sys.stderr)
