"""Turn the statements that were extracted from a report (its tuples) into findings with a lesion type to segment."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cxr.base.vocabulary import LESIONS, NO_LESION, SIDES, VALID_LOCATIONS, ZONE_LABELS, zones_of
from cxr.ils.masks.settings import STRICT, Rules

CARDIOMEGALY, EFFUSION, OPACITY = "cardiomegaly", "effusion", "opacity"
HEDGES = ("definite", "strong", "weak")
LUNG_CATEGORIES = ("lung", "pleura", "lateral view location")
"""Location categories of Figure 10 whose findings may lie anywhere in a lung, unlike a fractured rib."""

_RETROCARDIAC = re.compile(r"retro-?\s?cardiac|behind the heart")
_BOTH_SIDES = re.compile(r"\b(?:bi\w*lateral\w*|both)\b")
_NOT_BASAL = re.compile(r"fissur|interlobar|\bapex\b|\bapices\b|apical")


@dataclass(frozen=True)
class Finding:
    """One positive statement of a report. Without a ``target`` it makes no pair, and only forbids negative pairs."""

    index: int  # Index of the statement among the tuples of the section
    entity: str  # The finding in the report's words, without its location
    sentence_index: int | None  # Sentence of the section, from 1
    target: str | None  # The lesion type to segment; None if the finding only forbids negatives
    word: str | None  # The lesion type that an instruction names: opacity if tentative, else the target
    certainty: str  # definitive or tentative
    hedge: str | None  # The weakest grade, from ``HEDGES``, of the statement and its explanation
    reported: tuple[str, ...]  # Zone labels that the report names, in the order of ``ZONE_LABELS``
    kinds: frozenset[str]  # Every lesion type that the statement affirms, hedges or lists as a candidate
    several: bool  # Whether several diseases may explain the finding, so that none of them can be inferred
    blocks: frozenset[str]  # Valid locations where the finding may lie although no zone label states them
    basal: bool  # Whether the finding is an effusion whose mask may be extended to the lung base
    reason: str | None  # Code of the reason why there is no target

    @property
    def definitive(self) -> bool:
        return self.certainty == "definitive"

    @property
    def heart(self) -> bool:
        return self.target == CARDIOMEGALY


def read_positive_findings(tuples: Iterable[Mapping], rules: Rules) -> list[Finding]:
    """Return one finding for each positive statement (tuple) of a report section, in order."""
    positive = [(index, entry) for index, entry in enumerate(tuples) if entry.get("presence") == "positive"]
    return [make_finding(index, report_tuple, rules) for index, report_tuple in positive]


def make_finding(index: int, report_tuple: Mapping, rules: Rules) -> Finding:
    """Return the finding of one positive statement (tuple) of a report; ``index``: its number in the section.

    If the report explains the entity by exactly one of the seven lesion types, that type is the target (paper Fig. 11).
    If the explanation names several types or another disease (infection, scar), the target is the entity's own type.
    If the report explains the entity as no lesion, such as a nipple shadow, the setting ``predicted_other`` decides.
    """
    entity_lesion = _lesion(report_tuple.get("lesion_type"))
    type_names = report_tuple.get("predicted_lesion_type") or ()
    type_names = [
        *([type_names] if isinstance(type_names, str) else type_names),
        *(report_tuple.get("candidates") or ()),
    ]
    predicted = tuple(dict.fromkeys(name.strip().lower() for name in type_names if name and name.strip()))
    several = len(predicted) > 1
    candidates = tuple(name for name in map(_lesion, predicted) if name) if several else ()
    certainty = report_tuple.get("certainty") or "tentative"
    # the weaker certainty of the statement and its explanation counts
    grades = [report_tuple.get("hedge"), report_tuple.get("predicted_hedge") if entity_lesion != CARDIOMEGALY else None]
    hedge = max((grade for grade in grades if grade in HEDGES), key=HEDGES.index, default=None)
    target, reason = _target(entity_lesion, predicted, rules)
    if target and entity_lesion and report_tuple.get("related") == entity_lesion:
        target, reason = None, "related_term"
    word = target
    if target not in (None, CARDIOMEGALY) and certainty != "definitive":
        word = OPACITY
    if target and hedge == "weak" and rules.weak_hedges == "block_only":
        target, reason = None, "weak_hedge"
    kinds = {entity_lesion, target, *candidates}
    if rules.kinds == STRICT:
        kinds.add(word)
    heart = CARDIOMEGALY in (entity_lesion, target)
    labels = set() if heart else set(report_tuple.get("labels") or ())
    reported = tuple(label for label in ZONE_LABELS if label in labels)
    can_block = rules.blocking == STRICT and not heart
    is_basal = target == EFFUSION and not any("apical" in label for label in reported)
    return Finding(
        index=index,
        entity=report_tuple.get("entity") or "",
        sentence_index=report_tuple.get("sentence_index"),
        target=target,
        word=word,
        certainty=certainty,
        hedge=hedge,
        reported=reported,
        kinds=frozenset(kind for kind in kinds if kind),
        several=several,
        blocks=find_blocked_locations(report_tuple, reported, entity_lesion or target) if can_block else frozenset(),
        basal=is_basal and not _NOT_BASAL.search(_text(report_tuple)),
        reason=reason,
    )


def _target(entity_lesion: str | None, predicted: tuple[str, ...], rules: Rules) -> tuple[str | None, str | None]:
    target = entity_lesion
    if len(predicted) == 1 and _lesion(predicted[0]):
        target = _lesion(predicted[0])
    elif rules.predicted_other == STRICT and any(word in name for name in predicted for word in NO_LESION):
        return None, "predicted_other"
    return target, None if target else "no_lesion"


def _lesion(name: str | None) -> str | None:
    return name if name in LESIONS else None


def _text(report_tuple: Mapping) -> str:
    location = report_tuple.get("location") or ()
    words = [location] if isinstance(location, str) else list(location)
    return " ".join([report_tuple.get("entity") or "", *words]).lower()


def find_blocked_locations(report_tuple: Mapping, reported: tuple[str, ...], lesion: str | None) -> frozenset[str]:
    """Return the valid locations where the finding of a positive statement may lie besides the zones ``reported``.

    If the statement has a list ``block``, its locations are returned. A lung in this list adds all its zones unless one
    of them is listed. Without this list and without zones, a retrocardiac finding may lie in the left lung and its
    base, any other finding on its stated side or else in both lungs. The result is empty for a finding that has no
    lesion type and lies outside the lungs.
    """
    block_locations = report_tuple.get("block")
    if block_locations:
        places = frozenset(block_locations).intersection(VALID_LOCATIONS)
        whole_sides = [side for side in SIDES if f"{side} lung" in places and places.isdisjoint(zones_of(side))]
        return places.union(*map(zones_of, whole_sides))
    category = report_tuple.get("category")
    placed = category in LUNG_CATEGORIES or (not category and block_locations is None)
    if reported or (lesion is None and not placed):
        return frozenset()
    text = _text(report_tuple)
    if _RETROCARDIAC.search(text):
        return frozenset({"left lung", "left lung base"})
    sides = [side for side in SIDES if re.search(rf"\b{side}\b", text)]
    if not sides or _BOTH_SIDES.search(text):
        sides = list(SIDES)
    return frozenset(place for side in sides for place in (f"{side} lung", *zones_of(side)))


def find_related_lesions(line: Mapping) -> list[str]:
    """Return the lesion types to which related terms in a report hint, such as edema for "vascular congestion"."""
    related_entries = list(line.get("related") or ())
    for report_tuple in [*(line.get("tuples") or ()), *(line.get("other_tuples") or ())]:
        if report_tuple.get("presence") == "positive":
            neighbour = report_tuple.get("related") or ()
            related_entries += [neighbour] if isinstance(neighbour, str) else list(neighbour)
    lesion_names = set()
    for entry in related_entries:
        if isinstance(entry, str):
            lesion_names.add(entry)
        elif entry.get("presence") in (None, "positive"):
            lesion_names.add(entry.get("lesion") or entry.get("lesion_type"))
    return [lesion for lesion in LESIONS if lesion in lesion_names]
