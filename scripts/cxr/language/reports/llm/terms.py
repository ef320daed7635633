"""Terms of the first model's answers, which the second model maps: collected once per distinct pair."""

from collections import Counter

from cxr.base.tables import read_lines, write_lines

Term = tuple[str | None, str]
"""A location (None if the text names none) and the entity found there."""


def collect_terms(*, structured: list[str], output: str) -> None:
    """Write the distinct pairs of all answers: location (null if the text names none), entity, number of mentions."""
    findings = (item for path in structured for line in read_lines(path) for item in line["findings"] or ())
    counts = Counter(term for finding in findings for term in finding_terms(finding))
    lines = [
        {"location": location, "entity": entity, "mentions": counts[location, entity]}
        for location, entity in sorted(counts, key=lambda term: (term[0] or "", term[1]))
    ]
    write_lines(output, lines, checked=True)


def normalize_term(text: str) -> str:
    """Normalize a term for comparison and mapping: lower case, single spaces, no punctuation at either end."""
    return " ".join(text.lower().split()).strip(" .,;:\"'")


def finding_terms(finding: dict) -> list[Term]:
    """Return the pairs of one finding that are mapped: one per location, or one with None."""
    entity = normalize_term(finding["entity"])
    return [(normalize_term(place), entity) for place in finding["location"] or ()] or [(None, entity)]
