"""Schemas and checks of a model's answers. Jobs that read stored answers need no package of the models."""

from cxr.base.vocabulary import CATEGORIES, ZONE_LABELS
from cxr.language.reports.schema import CERTAINTY, PRESENCE
from cxr.llm.replies import object_schema, text_schema

NO_CATEGORY = "none"
_LONGEST = {"entity": 120, "location": 120, "predicted_lesion_type": 120}
_MOST_FINDINGS, _MOST_LOCATIONS = 80, 12
"""Limits of an answer, so that a model that does not end stops inside the schema."""
FIELDS = (
    "entity", "sentence_index", "presence", "certainty", "predicted_lesion_type", "findings", "category", "categories"
)  # fmt: skip
"""Field names of the answers; a report that contains them was written for the model."""


def structuring_schema(sentences: int) -> dict:
    """Return the schema of the findings of a section with so many sentences (Figure 9)."""
    places = {"type": "array", "items": text_schema(_LONGEST["location"]), "minItems": 1, "maxItems": _MOST_LOCATIONS}
    finding = object_schema(
        entity=text_schema(_LONGEST["entity"]),
        sentence_index={"type": "integer", "minimum": 1, "maximum": sentences},
        presence={"enum": list(PRESENCE)},
        certainty={"enum": list(CERTAINTY)},
        location={"anyOf": [places, {"type": "null"}]},
        predicted_lesion_type={"anyOf": [text_schema(_LONGEST["predicted_lesion_type"]), {"type": "null"}]},
    )
    return object_schema(findings={"type": "array", "items": finding, "maxItems": _MOST_FINDINGS})


def category_schema() -> dict:
    """Return the schema of a category (Figure 10, step 1)."""
    return object_schema(category={"enum": [*CATEGORIES, NO_CATEGORY]})


def zones_schema() -> dict:
    """Return the schema of zone labels (Figure 10, step 2)."""
    return object_schema(
        categories={"type": "array", "items": {"enum": list(ZONE_LABELS)}, "maxItems": len(ZONE_LABELS)}
    )


def find_contradiction(findings: list[dict]) -> str | None:
    """Return the logical fault in a section's findings, None if there is none.

    An entity has exactly one presence and certainty per location and sentence (Figure 9, rule 3). No text is blank.
    """
    status_by_statement: dict[tuple, tuple] = {}
    for number, item in enumerate(findings):
        texts = [item["entity"], *(item["location"] or ()), item["predicted_lesion_type"] or "-"]
        if any(not normalize_term(text) for text in texts):
            return f"findings.{number}: a blank text"
        statement = (
            item["sentence_index"],
            normalize_term(item["entity"]),
            tuple(map(normalize_term, item["location"] or ())),
        )
        status = (item["presence"], item["certainty"])
        if status_by_statement.setdefault(statement, status) != status:
            return f"findings.{number}: two statuses of one entity"
    return None


def normalize_term(text: str) -> str:
    """Return a term in the form for comparison and mapping: lower case, single blanks, no punctuation at its ends."""
    return " ".join(text.lower().split()).strip(" .,;:\"'")
