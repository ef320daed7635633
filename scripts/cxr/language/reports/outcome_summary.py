"""Sentences for the screen that say how many reports of a cohort are unusable and how many are forms (tick lists)."""

import csv
import sys
from collections import Counter
from pathlib import Path

from cxr.base.errors import count_phrase

FINDINGS, NO_FINDINGS, UNREAD_FORM = "findings", "no_findings", "unread_form"
KIND_SEPARATOR = ", "
MEANINGS = {FINDINGS: "read, with findings affirmed or denied", NO_FINDINGS: "read; nothing is affirmed or denied"}
MAX_REASONS = 4
"""Maximum number of exclusion reasons that the summary sentence names."""


def summarize_outcomes(table: list[dict]) -> str:
    """Return a sentence about the studies without a usable report, or an empty string if every report was read.
    ``table`` has the rows of ``reading.tsv``."""
    lost_rows = [row for row in table if row["outcome"] not in MEANINGS and int(row["studies"])]
    if not lost_rows:
        return ""
    total, num_lost = (sum(int(row["studies"]) for row in part) for part in (table, lost_rows))
    reasons = "; ".join(
        f"{row['studies']} {row['outcome']} ({row['meaning']}), such as {row['example_study']}"
        for row in lost_rows[:MAX_REASONS]
    )
    num_further = max(0, len(lost_rows) - MAX_REASONS)
    further_reasons = f"; {count_phrase(num_further, 'more reason', 'more reasons')}" if num_further else ""
    without = count_phrase(num_lost, f"of {total} studies has", f"of {total} studies have")
    return f"reports: {without} no usable report: {reasons}{further_reasons}"


def summarize_forms(table: list[dict]) -> str:
    """Return a sentence about the number of reports that are forms and the kinds of form ("table"), or an empty string
    if there are none. ``table`` has the rows of ``reading.tsv``. A report with several kinds counts for each kind."""
    num_by_kind: Counter[str] = Counter()
    num_forms = num_unread = 0
    for row in table:
        if row["outcome"] == UNREAD_FORM:
            num_unread += int(row["studies"])
        elif row["form"]:
            num_forms += int(row["studies"])
            num_by_kind.update(dict.fromkeys(row["form"].split(KIND_SEPARATOR), int(row["studies"])))
    if not (num_forms or num_unread):
        return ""
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in num_by_kind.most_common())
    unread = f"{num_unread:,} not wholly read, so not used" if num_unread else ""
    total = sum(int(row["studies"]) for row in table)
    return f"{num_forms + num_unread:,} of {total:,} reports are forms ({'; '.join(filter(None, (kinds, unread)))})"


def read_summary(path: Path) -> str:
    """Return the sentence of :func:`summarize_outcomes` for ``reading.tsv``, or "" if the table is missing."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            summary = summarize_outcomes(list(csv.DictReader(file, delimiter="\t")))
    except (OSError, KeyError, ValueError):
        return ""
    return f"{summary} ({path})" if summary else ""


def print_summary(reading: Path) -> None:
    """Print the sentence of :func:`read_summary`, if any, to stderr at the end of a run."""
    if summary := read_summary(reading):
        print(f"cxr-ils: {summary}", file=sys.stderr)
