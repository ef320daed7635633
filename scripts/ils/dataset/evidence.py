"""From a report line and a row of the masks stage's studies table to the evidence for negatives.

What stands where comes from the masks stage, which saw the zone masks; what the report denies comes from its tuples.
"""

import re
from collections.abc import Iterable

from ils.core.labels import LESIONS, LUNGS, VALID_LOCATIONS, side_of, zones_of
from ils.dataset.negatives import Evidence

LUNG_CATEGORIES = frozenset({"lung", "pleura"})
_LUNGS = re.compile(
    r"\b(?:lungs?|(?:cardio)?pulmonary|pleura\w*|lob(?:e|es|ar)|parenchyma\w*|air[ -]?space\w*|costophrenic"
    r"|hemithora\w+|pneumothora\w+|bas(?:es|ilar)|bibasilar|ap(?:ices|ical))\b",
    re.IGNORECASE,
)
_COMPARISON = re.compile(
    r"\b(?:unchanged|stable|similar|(?:no|without) (?:\w+ ){0,3}(?:change|changes|new|increase|worsening|progression)"
    r"|as (?:before|compared)|compared (?:to|with)|in comparison|since (?:the )?(?:prior|previous|last))\b",
    re.IGNORECASE,
)
_STATE = re.compile(
    r"\b(?:clear|normal|unremarkable|well[ -](?:expanded|aerated|inflated|ventilated)|hyper\w+|expanded|aerated"
    r"|within normal limits|sharp|no (?:acute|focal|active|evidence))\b",
    re.IGNORECASE,
)


def evidence(study: dict, line: dict) -> Evidence:
    """Gather what one study says. ``study`` is a row of the studies table, ``line`` the study's report line.

    A negative tuple whose ``denies`` is false says only that the finding is not new.
    """
    sentences = [sentence_text(sentence) for sentence in line["sentences"]]
    negative = [row for row in line["tuples"] if row["presence"] == "negative" and row["lesion_type"] in LESIONS]
    denials = [row for row in negative if row.get("denies", True)]
    definite = [row for row in denials if row["certainty"] == "definitive"]
    negated: dict[str, frozenset[str]] = {}
    for row in definite:
        negated[row["lesion_type"]] = negated.get(row["lesion_type"], frozenset()) | inside(row)
    return Evidence(
        study_id=study["study_id"],
        empty=frozenset(study["empty"]),
        blocked={row["lesion"]: frozenset(row["locations"]) for row in study["lesion_blocked"]},
        global_blocked=frozenset(row["lesion"] for row in study["lesion_blocked"] if row["global_blocked"]),
        standing=frozenset(row["lesion"] for row in study["standing"]),
        related=frozenset(study["related"]),
        negated=negated,
        everywhere=frozenset(row["lesion_type"] for row in definite if not row["location"]),
        unclear=frozenset(row["lesion_type"] for row in negative if not row.get("denies", True)),
        doubted=frozenset(row["lesion_type"] for row in denials if row["certainty"] != "definitive"),
        about_lungs=about_lungs(sentences, line["tuples"]),
        ctr=study["ctr"],
    )


def sentence_text(sentence: str | dict) -> str:
    """Return the text of a sentence, given as such or as an object with ``text``."""
    return sentence if isinstance(sentence, str) else sentence["text"]


def inside(row: dict) -> frozenset[str]:
    """Return the valid locations that lie inside what a tuple names: all without a place, none of what is unmapped.

    A whole lung holds its zones by name; a lobe holds none for sure, so that it adds nothing.
    """
    if not row["location"]:
        return frozenset(VALID_LOCATIONS)
    found: set[str] = set()
    for label in row["labels"]:
        if label in LUNGS:
            found |= {label, *zones_of(side_of(label))}
        elif label in VALID_LOCATIONS:
            found.add(label)
    return frozenset(found)


def about_lungs(sentences: Iterable[str], tuples: Iterable[dict]) -> bool:
    """Return whether a sentence says something about lungs or pleura and is not a comparison alone.

    A sentence says something about them if it names them or yields a tuple there. It is a comparison alone if it
    compares and neither affirms or denies a finding nor calls a state by name ("the lungs are unchanged", "no new
    opacity").
    """
    by_sentence: dict[int, list[dict]] = {}
    for row in tuples:
        by_sentence.setdefault(row["sentence_index"], []).append(row)
    for number, text in enumerate(sentences, start=1):
        rows = [row for row in by_sentence.get(number, []) if row["category"] in LUNG_CATEGORIES]
        if not rows and not _LUNGS.search(text):
            continue
        says = any(row["presence"] == "positive" or row.get("denies", True) for row in rows)
        if says or _STATE.search(text) or not _COMPARISON.search(text):
            return True
    return False
