"""Collection of the distinct terms in the first model's answers, which the second model maps to zones.

A term is a pair of a location and an entity (the name of a finding).
"""

from collections import Counter

from cxr.base.tables import read_lines, write_lines

Term = tuple[str | None, str]
"""(location, entity). The location is None if the text names no location of the entity."""


def collect_terms(*, structured: list[str], output: str) -> None:
    """Write a JSON line for each distinct term of all answers: location (or null), entity, number of mentions."""
    findings = (item for path in structured for line in read_lines(path) for item in line["findings"] or ())
    counts = Counter(term for finding in findings for term in finding_terms(finding))
    lines = [
        {"location": location, "entity": entity, "mentions": counts[location, entity]}
        for location, entity in sorted(counts, key=lambda term: (term[0] or "", term[1]))
    ]
    write_lines(output, lines, checked=True)


def normalize_term(text: str) -> str:
    """Return a text in lower case, with single spaces and without punctuation at either end."""
    return " ".join(text.lower().split()).strip(" .,;:\"'")


def finding_terms(finding: dict) -> list[Term]:
    """Return the terms of one finding, one for each location. Without a location, the only term is (None, entity)."""
    entity = normalize_term(finding["entity"])
    return [(normalize_term(place), entity) for place in finding["location"] or ()] or [(None, entity)]
