"""Compare answers with labels: lesion types, sides and zones of labelled reports, and tuples of sentences.

Answers are tuples of :mod:`cxr.language.reports.schema`. A lesion counts as found if an affirmed tuple names it, or a
finding that may stand for it, with one of the allowed hedges. Counts are (..., 7 lesions, 3): true positive, false
positive, false negative.
"""

from typing import NamedTuple

import numpy as np

from cxr.base.vocabulary import LESIONS
from cxr.language.reports.schema import HEDGES
from cxr.metrics.labels import ratio_or_nan
from reports_labelled import Case, Expected, Report

FAMILY = {
    "lung base": "lower",
    "lower lobe": "lower",
    "mid zone": "mid",
    "middle lobe": "mid",
    "upper": "upper",
    "apical": "upper",
}
"""{part of a zone label: family of zones in the human labels}."""
UNPLACED = "cardiomegaly"
"""The lesion that has no side and no zone."""
WAYS = {"weak dropped": ("definite", "strong"), "all": HEDGES, "definite only": ("definite",)}
"""{name: hedges with which a lesion counts as found}."""
USUAL = WAYS["weak dropped"]


# ---- one report ------------------------------------------------------------------------------------------------------


def worse(first: str, second: str | None) -> str:
    return max(first, second or "definite", key=HEDGES.index)


def found_lesions(tuples: list[dict], grades: tuple[str, ...] = USUAL) -> dict[str, list[dict]]:
    """Return {lesion: its tuples} of the lesions that the engine affirms with one of the hedges ``grades``."""
    found: dict[str, list[dict]] = {}
    for item in tuples:
        if item["presence"] != "positive":
            continue
        if item["lesion_type"] and item["hedge"] in grades:
            found.setdefault(item["lesion_type"], []).append(item)
        if worse(item["hedge"], item["predicted_hedge"]) in grades:
            for lesion in item["candidates"]:
                if lesion in LESIONS:
                    found.setdefault(lesion, []).append(item)
    return found


def sides_of(tuples: list[dict]) -> set[str]:
    words = {word for item in tuples for label in item["labels"] or item["block"] for word in label.split()}
    return words & {"left", "right"}


def families_of(tuples: list[dict]) -> set[str]:
    texts = [label for item in tuples for label in item["labels"]]
    texts += ["lung base" for item in tuples if item["category"] == "lateral view location"]
    return {family for text in texts for word, family in FAMILY.items() if word in text}


class Places(NamedTuple):
    """Whether the sides and the zone families of a lesion equal the labelled ones; None if they are not scored."""

    sides: bool | None
    zones: bool | None


def places_of(report: Report, lesion: str, found: dict[str, list[dict]]) -> Places:
    """Compare the places of one lesion of a report. Only found lesions and labelled places are scored."""
    gold = [item for item in report.gold if item.lesion == lesion]
    sides = {side for item in gold for side in item.sides}
    zones = {zone for item in gold for zone in item.zone_family}
    if lesion == UNPLACED or lesion not in found:
        return Places(None, None)
    return Places(
        sides_of(found[lesion]) == sides if sides and not any(item.side_implied for item in gold) else None,
        families_of(found[lesion]) == zones if zones else None,
    )


# ---- all reports -----------------------------------------------------------------------------------------------------


def count(reports: list[Report], answers: list[list[dict]], grades: tuple[str, ...]) -> np.ndarray:
    """Return int (reports, 7 lesions, 3): true positive, false positive, false negative."""
    counts = np.zeros((len(reports), len(LESIONS), 3), int)
    for row, (report, tuples) in enumerate(zip(reports, answers, strict=True)):
        found = found_lesions(tuples, grades)
        for column, lesion in enumerate(LESIONS):
            gold, ours = lesion in report.lesions, lesion in found
            counts[row, column] = gold and ours, ours and not gold, gold and not ours
    return counts


def count_places(reports: list[Report], answers: list[list[dict]]) -> np.ndarray:
    """Return int (reports, 7 lesions, 2, 2): for sides and for zone families, the numbers (right, scored)."""
    table = np.zeros((len(reports), len(LESIONS), 2, 2), int)
    for row, (report, tuples) in enumerate(zip(reports, answers, strict=True)):
        found = found_lesions(tuples)
        for column, lesion in enumerate(LESIONS):
            for kind, right in enumerate(places_of(report, lesion, found)):
                if right is not None:
                    table[row, column, kind] = right, 1
    return table


def part_right(counts: np.ndarray) -> np.ndarray:
    """Return right / scored, (...), from counts (..., 2)."""
    return ratio_or_nan(counts[..., 0], counts[..., 1])


# ---- sentences -------------------------------------------------------------------------------------------------------


def same_tuple(ours: dict, expected: Expected) -> bool:
    """Return whether a tuple equals the expected one. Keys that the case does not have are not compared."""
    given = expected.model_fields_set
    names = {name.lower() for name in (expected.entity, *expected.entity_alts)}
    seven = ours["lesion_type"] is not None and ours["lesion_type"] == expected.lesion
    own = ours["entity"].lower()
    if not seven and not any(own in name or name in own for name in names):
        return False
    pairs = [("lesion", "lesion_type"), ("sentence_index", "sentence_index"), ("presence", "presence")]
    pairs += [("category17", "category")] + ([] if expected.certainty_free else [("certainty", "certainty")])
    if any(key in given and getattr(expected, key) != ours[mine] for key, mine in pairs):
        return False
    accepted = [getattr(expected, key) for key in ("labels15", "labels15_alt") if key in given]
    if "labels15" in given and set(ours["labels"]) not in accepted:
        return False
    if "predicted_lesion_type" in given:
        wanted = expected.predicted_lesion_type or ()
        wanted = {wanted} if isinstance(wanted, str) else set(wanted)
        return {name.replace("pleural effusion", "effusion") for name in wanted} == set(ours["candidates"])
    return True


def case_right(case: Case, tuples: list[dict]) -> bool:
    """Return whether the tuples equal one of the correct readings of a sentence, in any order."""
    for reading in (case.expected, *case.alternatives):
        rest = list(tuples)
        for expected in reading:
            match = next((item for item in rest if same_tuple(item, expected)), None)
            if match is None:
                break
            rest.remove(match)
        else:
            if not rest:
                return True
    return False
