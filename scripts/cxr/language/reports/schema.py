"""The result of every engine: one tuple per finding that a sentence affirms or denies, and one line per study."""

import json
from dataclasses import dataclass, field

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import LESIONS

RESOURCE_FILES = ("reading/line.schema.json",)
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


def line_schema() -> dict:
    """Return the JSON schema (draft 2020-12) of a line of ``results/reports/{shard}.jsonl``: one study."""
    schema = json.loads((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    lesion, own_lesion = list(LESIONS), [*LESIONS, None]  # the vocabulary may have more types than the file
    schema["$defs"] |= {"lesion": {"enum": lesion}, "own_lesion": {"enum": own_lesion}}
    return schema


def json_schema() -> dict:
    """Return the JSON schema of a list of tuples, which every engine must satisfy."""
    schema = line_schema()
    return {"$defs": schema["$defs"]} | schema["properties"]["tuples"]


def problems(tuples: list[dict], sentences: int) -> list[str]:
    """Return the violations of the schema or its logic, empty if there are none. ``sentences``: their number.

    The result quotes no text of the report, so that it may go into a ledger.
    """
    import jsonschema

    errors = jsonschema.Draft202012Validator(json_schema()).iter_errors(tuples)
    violations = [f"{'.'.join(map(str, error.absolute_path)) or 'answer'}: {error.validator}" for error in errors]
    if violations:
        return violations
    for number, item in enumerate(tuples):
        if item["sentence_index"] > sentences:
            violations.append(f"{number}.sentence_index: beyond the last sentence")
        if item["span"][0] > item["span"][1]:
            violations.append(f"{number}.span: ends before it starts")
    return violations
