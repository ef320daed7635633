"""Summary of the outcomes of a cohort's reports, as a table and as a sentence for the screen."""

import csv
import sys
from pathlib import Path

from cxr.base.errors import count_phrase
from cxr.base.exclusions import REASONS

FINDINGS, NO_FINDINGS = "findings", "no_findings"
MEANINGS = {FINDINGS: "read, with findings affirmed or denied", NO_FINDINGS: "read; nothing is affirmed or denied"}
MAX_REASONS = 4
"""Maximum number of reasons in the sentence."""


def outcome_rows(outcomes: dict[str, list[str]]) -> list[dict]:
    """Return the rows of ``reading.tsv``: read studies first, then reasons, the most common first.

    ``outcomes``: {outcome: studies}; an example is the first of these.
    """
    order = sorted(outcomes, key=lambda name: (name not in MEANINGS, -len(outcomes[name]), name))
    return [
        {
            "outcome": name,
            "studies": len(outcomes[name]),
            "example_study": min(outcomes[name], default=""),
            "meaning": MEANINGS.get(name) or REASONS[name],
        }
        for name in order
    ]


def summarize_outcomes(table: list[dict]) -> str:
    """Return the summary in a sentence; empty if every report was read."""
    lost_rows = [row for row in table if row["outcome"] not in MEANINGS and int(row["studies"])]
    if not lost_rows:
        return ""
    total, num_lost = (sum(int(row["studies"]) for row in part) for part in (table, lost_rows))
    reasons = "; ".join(
        f"{row['studies']} {row['outcome']} ({row['meaning']}), such as {row['example_study']}"
        for row in lost_rows[:MAX_REASONS]
    )
    further_reasons = (
        f"; {count_phrase(len(lost_rows) - MAX_REASONS, 'more reason', 'more reasons')}"
        if len(lost_rows) > MAX_REASONS
        else ""
    )
    without = count_phrase(num_lost, f"of {total} studies has", f"of {total} studies have")
    return f"reports: {without} no usable report: {reasons}{further_reasons}"


def read_summary(path: Path) -> str:
    """Return the sentence for ``reading.tsv``; empty if there is no such table, or nothing to report."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            summary = summarize_outcomes(list(csv.DictReader(file, delimiter="\t")))
    except (OSError, KeyError, ValueError):
        return ""
    return f"{summary} ({path})" if summary else ""


def print_summary(reading: Path) -> None:
    """Print :func:`read_summary` to stderr, if there are any, at the end of a run."""
    if summary := read_summary(reading):
        print(f"cxr-ils: {summary}", file=sys.stderr)
