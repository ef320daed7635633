"""Format of the output of all engines: a tuple for each affirmed or denied finding, and a JSON line for each study."""

import json
from dataclasses import dataclass, field

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import LESIONS

RESOURCE_FILES = ("reading/line.schema.json",)
HEDGES = ("definite", "strong", "weak")
"""Certainty grades of a statement, from most to least certain. A positive finding is ``definitive`` if its ``hedge``
is "definite" and its ``predicted_hedge`` is "definite" or null."""


class Quarantined(Exception):
    """Raised if an engine's result for a section is unusable. The message has the reason, but no text of the report."""


@dataclass(frozen=True)
class Finding:
    """One finding that a sentence affirms or denies (paper Figure 9). The code calls it a tuple.

    entity: name of the finding, without its location.
    sentence_index: number of the sentence in the section, from 1.
    presence, certainty: "positive" or "negative", and "definitive" or "tentative", as in Figure 9.
    location: location phrases of the text; null if the text names none.
    predicted_lesion_type: the disease that the finding represents, one of the seven lesion types or another name
        ("scar", "nipple shadow"); null unless there is exactly one.
    category: one of the 17 categories of Figure 10; null if the location belongs to none.
    labels: zone labels of Figure 10, for positive and negative tuples.
    lesion_type: the lesion type that the entity is, one of the seven; null for any other finding.
    hedge: certainty grade of the statement that the finding is present (or absent).
    span: position of the finding, [start, end) in characters of the section's text.
    candidates: all diseases that the finding may represent, even if there is only one; empty if there is none.
    predicted_hedge: certainty grade of the statement that links the finding to ``candidates``; null if none.
    related: lesion type, or list of types, that the whole study must not deny because of this affirmed finding. If it
        equals ``lesion_type`` (a borderline heart), the finding is not used as a positive either.
    block: further locations at which a positive finding could be, so that nothing is denied there. Without labels, they
        are all possible locations; with labels, those that a word such as "infrahilar" leaves open.
    denies: whether a negative tuple really denies the finding ("no new X" does not); true for a positive tuple.
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
    """Return the JSON schema (draft 2020-12) of a study's line in ``results/reports/{shard}.jsonl``."""
    schema = json.loads((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    lesion, own_lesion = list(LESIONS), [*LESIONS, None]  # the vocabulary may define more types than the file
    schema["$defs"] |= {"lesion": {"enum": lesion}, "own_lesion": {"enum": own_lesion}}
    return schema


def json_schema() -> dict:
    """Return the JSON schema of a list of finding tuples. The output of every engine must match it."""
    schema = line_schema()
    return {"$defs": schema["$defs"]} | schema["properties"]["tuples"]


def problems(tuples: list[dict], sentences: int) -> list[str]:
    """Return the errors of an engine's finding tuples, which are violations of the schema and wrong sentence numbers or
    spans. ``sentences``: number of sentences. The errors quote no text of the report, so they may be logged."""
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
