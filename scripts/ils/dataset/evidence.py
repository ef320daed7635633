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
_NEW_ONLY = re.compile(
    r"\b(?:no|without|nor)(?: (?:\w+ )?(?:evidence|signs?) (?:of|for))?(?: (?:any|definite|acute|significant))?"
    r" (?:new\b|newly\b|interval (?:development|appearance) of)",
    re.IGNORECASE,
)


def evidence(study: dict, line: dict) -> Evidence:
    """Gather what one study says. ``study`` is a row of the studies table, ``line`` the study's report line."""
    sentences = [sentence_text(sentence) for sentence in line["sentences"]]
    negative = [row for row in line["tuples"] if row["presence"] == "negative" and row["lesion_type"] in LESIONS]
    unclear = {row["lesion_type"] for row in negative if rests_on_comparison(row, sentences)}
    plain = [row for row in negative if not rests_on_comparison(row, sentences)]
    definite = [row for row in plain if row["certainty"] == "definitive"]
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
        unclear=frozenset(unclear),
        doubted=frozenset(row["lesion_type"] for row in plain if row["certainty"] != "definitive"),
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


def rests_on_comparison(row: dict, sentences: list[str]) -> bool:
    """Return whether a negated tuple denies only that the finding is new ("no new consolidation")."""
    index = row["sentence_index"]
    text = sentences[index - 1] if index is not None and 1 <= index <= len(sentences) else ""
    words = re.escape(row["entity"].split()[-1][:6]) if row["entity"].split() else ""
    # The list that "no new" opens runs to the end of its clause: "no new effusion or consolidation".
    return any(
        re.search(words, clause[found.end() :], re.IGNORECASE)
        for clause in re.split(r"[.;]|\b(?:but|however|although)\b", text)
        if (found := _NEW_ONLY.search(clause))
    )


def about_lungs(sentences: Iterable[str], tuples: Iterable[dict]) -> bool:
    """Return whether a sentence says something about lungs or pleura and is not a comparison alone.

    A sentence says something about them if it names them or yields a tuple there. It is a comparison alone if it
    compares and neither affirms a finding nor calls a state by name ("the lungs are unchanged", "no new opacity").
    """
    by_sentence: dict[int, list[dict]] = {}
    for row in tuples:
        by_sentence.setdefault(row["sentence_index"], []).append(row)
    for number, text in enumerate(sentences, start=1):
        rows = [row for row in by_sentence.get(number, []) if row["category"] in LUNG_CATEGORIES]
        if not rows and not _LUNGS.search(text):
            continue
        affirms = any(row["presence"] == "positive" for row in rows)
        if affirms or _STATE.search(text) or not _COMPARISON.search(text):
            return True
    return False
