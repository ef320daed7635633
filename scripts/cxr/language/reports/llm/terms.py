"""Collecting the distinct (location, entity) pairs of the whole cohort, so that each is mapped once, not per mention.

Writes JSON Lines sorted by location and entity: location (null if the text names none), entity, mentions (number).
"""

from collections import Counter
from collections.abc import Iterable

from cxr.base.tables import read_lines, write_lines
from cxr.language.reports.llm.answers import normalize_term

Term = tuple[str | None, str]


def run(*, structured: list[str], output: str) -> None:
    """Collect the pairs of all shards' answers."""
    counts = Counter(
        term
        for path in structured
        for line in read_lines(path)
        for finding in line["findings"] or ()
        for term in finding_terms(finding)
    )
    lines = [
        {"location": location, "entity": entity, "mentions": counts[location, entity]}
        for location, entity in sorted(counts, key=lambda term: (term[0] or "", term[1]))
    ]
    write_lines(output, lines, checked=True)


def finding_terms(finding: dict) -> Iterable[Term]:
    """Return the pairs of one finding: one per location, or one with None."""
    entity = normalize_term(finding["entity"])
    return [(normalize_term(place), entity) for place in finding["location"] or ()] or [(None, entity)]
