"""The result of every engine: one tuple per finding that a sentence affirms or denies, and one line per study.

``python -m cxr.language.reports.schema FILE`` writes the JSON schema of a line (``make docs``).
"""

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from cxr.base.tables import CRC
from cxr.base.vocabulary import CATEGORIES, LESIONS, SIDES, VALID_LOCATIONS, ZONE_LABELS
from cxr.language.reports.sections import SECTION_NAMES

PRESENCE = ("positive", "negative")
CERTAINTY = ("definitive", "tentative")
HEDGES = ("definite", "strong", "weak")
"""Grades of an assertion, most certain first. Certainty is ``definitive`` if definite without a hedged explanation."""


class Quarantined(Exception):
    """An engine's answer for a section cannot be used. The message says why and quotes no text."""


@dataclass(frozen=True)
class Finding:
    """One finding of a report (paper Figure 9).

    entity: name of the finding without its place.
    sentence_index: sentence of the section, from 1.
    presence, certainty: as in Figure 9.
    location: the places as the text names them, null if it names none.
    predicted_lesion_type: the one disease that the finding is said to stand for: one of the seven lesion types or
        another name ("scar", "nipple shadow"); null if none or several.
    category: one of the 17 of Figure 10, null if unmapped.
    labels: zone labels of Figure 10, for positive and negative tuples.
    lesion_type: the entity's own type of the seven, null for another finding.
    hedge: grade of the statement that the entity is there (or not).
    span: [start, end) in characters of the section's text.
    candidates: every disease the finding may stand for (also the single one); empty if none.
    predicted_hedge: grade of the statement that links the entity to ``candidates``; null without one.
    related: lesion type whose negatives this affirmed finding, or a disease it may stand for, blocks in the whole
        study, a list if they are several types; equal to ``lesion_type`` (a borderline heart) it makes no pair of its
        own either.
    block: valid locations that a positive finding without labels could be in, and those that a word such as
        "infrahilar" leaves open beside its label; else empty.
    denies: whether a negative tuple denies the finding ("no new X" does not); true for positives.
    """

    entity: str
    sentence_index: int
    presence: str
    certainty: str
    location: list[str] | None
    predicted_lesion_type: str | None
    category: str | None
    labels: list[str]
    lesion_type: str | None
    hedge: str
    span: list[int]
    candidates: list[str] = field(default_factory=list)
    predicted_hedge: str | None = None
    related: str | list[str] | None = None
    block: list[str] = field(default_factory=list)
    denies: bool = True


def _nullable(schema: dict) -> dict:
    return {"anyOf": [schema, {"type": "null"}]}


def json_schema() -> dict:
    """Return the JSON schema of a list of tuples (draft 2020-12), which every engine must satisfy."""
    text = {"type": "string", "minLength": 1}
    lesions = {"type": "array", "items": {"enum": list(LESIONS)}, "uniqueItems": True}
    properties = {
        "entity": text,
        "sentence_index": {"type": "integer", "minimum": 1},
        "presence": {"enum": list(PRESENCE)},
        "certainty": {"enum": list(CERTAINTY)},
        "location": _nullable({"type": "array", "items": text, "minItems": 1}),
        "predicted_lesion_type": _nullable(text),
        "category": {"enum": [*CATEGORIES, None]},
        "labels": {"type": "array", "items": {"enum": list(ZONE_LABELS)}, "uniqueItems": True},
        "lesion_type": {"enum": [*LESIONS, None]},
        "hedge": {"enum": list(HEDGES)},
        "span": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2},
        "candidates": {"type": "array", "items": text},
        "predicted_hedge": {"enum": [*HEDGES, None]},
        "related": {"anyOf": [{"enum": [*LESIONS, None]}, {**lesions, "minItems": 2}]},
        "block": {"type": "array", "items": {"enum": list(VALID_LOCATIONS)}, "uniqueItems": True},
        "denies": {"type": "boolean"},
    }
    item = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "array", "items": item}


def line_schema() -> dict:
    """Return the JSON schema of a line of ``results/reports/{shard}.jsonl``: one study."""
    text = {"type": "string"}
    tuples = {"type": "array", "items": json_schema()["items"]}
    unknown = {
        "type": "object",
        "properties": {
            "word": {"type": "string", "minLength": 1},
            "sentence_index": {"type": "integer", "minimum": 1},
            "finding": {"type": "boolean"},
        },
        "required": ["word", "sentence_index", "finding"],
        "additionalProperties": False,
    }
    witness = {
        "type": "object",
        "properties": {
            "quotes": {"type": "array", "items": {"type": "array", "prefixItems": [{"type": "integer"}, text]}},
            "is_mentioned": {"type": "boolean"},
            "silent": {"type": "array", "items": {"enum": list(SIDES)}},
            "neighbour": _nullable(text),
            "elsewhere": {"type": "boolean"},
        },
        "additionalProperties": False,
    }
    described = {
        "study_id": (text, "The study; lines are in its order."),
        "subject_id": (text, "The patient."),
        "section_name": ({"enum": list(SECTION_NAMES)}, "The section that is used."),
        "section_text": (text, "Its text."),
        "sentences": ({"type": "array", "items": text}, "Its sentences; sentence_index counts them from 1."),
        "tuples": (tuples, "The findings that it affirms or denies."),
        "other_section": (
            {"enum": ["findings", "impression", "addendum", None]},
            "The section beside it, if there is one; an addendum is read with it.",
        ),
        "other_tuples": (
            tuples,
            "What the rules engine reads there, and affirms in a section that it hands over; it only blocks.",
        ),
        "related": (
            {"type": "array", "items": {"enum": list(LESIONS)}, "uniqueItems": True},
            "Lesion types, beside those of the tuples, whose negatives are blocked: further neighbours of what stands, "
            "and those that the section only asks about.",
        ),
        "comparison_only": ({"type": "boolean"}, "All that is said of the lungs is how they compare with before."),
        "mentions_lungs": ({"type": "boolean"}, "The section says something of lungs or pleura."),
        "unknown_words": (
            {"type": "array", "items": unknown},
            "Words that are neither the lexicon's nor common English, at their first place; finding: whether a "
            "sentence with the word could hold a finding. Engine rules only.",
        ),
        "unknown_share": (
            {"type": "number", "minimum": 0, "maximum": 1},
            "Share of the section's distinct words that are unknown and could hide a finding.",
        ),
        "written": ({"type": "array", "items": text}, "How the report is written: prose, or the kinds of form in it."),
        "witnesses": (
            {"type": "object", "propertyNames": {"enum": list(LESIONS)}, "additionalProperties": witness},
            "What the text bears of each lesion type, by a second reader: `quotes` that deny it (0: of the section, 1: "
            "of the other; the sentence), whether it `is_mentioned`, the sides where the text is `silent` about it and "
            "its neighbouring terms, the first `neighbour`, and whether a finding leaves other places (`elsewhere`).",
        ),
        "removed": (
            {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
            "How many identifiers of each kind the report had; the text above holds surrogates in their place.",
        ),
        "engine": (text, "The engine that made the tuples."),
        "handed_over": (_nullable(text), "Why the rules handed the report over to a language model (engine both)."),
        "digests": (
            {"type": "object", "additionalProperties": text},
            "text: of section_text; code: of the stage's code; lexicon, witnesses: of its words.",
        ),
        CRC: ({"type": "string", "pattern": "^[0-9a-f]{8}$"}, "CRC-32 of the bytes of the line before this key."),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of results/reports/{shard}.jsonl",
        "type": "object",
        "properties": {name: {**kind, "description": description} for name, (kind, description) in described.items()},
        "required": list(described),
        "additionalProperties": False,
    }


def problems(tuples: list[dict], sentences: int) -> list[str]:
    """Return the violations of the schema or its logic, empty if there are none. ``sentences``: their number.

    The result quotes no text of the report, so that it may go into a ledger.
    """
    import jsonschema

    validator = jsonschema.Draft202012Validator(json_schema())
    violations = [
        f"{'.'.join(map(str, e.absolute_path)) or 'answer'}: {e.validator}" for e in validator.iter_errors(tuples)
    ]
    if violations:
        return violations
    for number, item in enumerate(tuples):
        if item["sentence_index"] > sentences:
            violations.append(f"{number}.sentence_index: beyond the last sentence")
        if item["span"][0] > item["span"][1]:
            violations.append(f"{number}.span: ends before it starts")
    return violations


def as_dict(finding: Finding) -> dict:
    """Return the tuple as builtins, in the order of the schema."""
    return dict(vars(finding))


if __name__ == "__main__":
    text = json.dumps(line_schema(), indent=1)
    lines = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda match: " ".join(match[0].split()), text)  # a list is one line
    Path(sys.argv[1]).write_text(f"{lines}\n", encoding="utf-8")
