"""Mapping of locations to the 17 categories and 15 zone labels of Figure 10.

This module also finds the locations at which nothing may be denied because of an affirmed finding.
"""

from collections.abc import Iterable

from cxr.base.vocabulary import LUNG_LESIONS, LUNGS, SIDES, ZONE_LABELS, side_of
from cxr.language.reports.rules.lexicon import Entity, Lexicon
from cxr.language.reports.rules.places import Place

_LUNG = ("lung", "pleura", "lateral view location", "diaphragm", None)


def find_category(entity: Entity, places: list[Place]) -> str | None:
    """Return a finding's category, one of 17, or None. It is "lung" if a location is in a lung. Otherwise, it is the
    category of the first location that has one, or of the entity."""
    if entity.category == "heart":
        return "heart"
    if any(place.level is not None or (place.sides and place.category is None) for place in places):
        if entity.category in ("lung", "pleura", "mediastinum"):
            return "lung"
        return next((place.category for place in places if place.category), entity.category)
    return next((place.category for place in places if place.category), entity.category)


def find_lesion(entity: Entity, category: str | None) -> str | None:
    """Return the entity's lesion type, or None for a lung lesion whose location is elsewhere (a breast "density")."""
    return None if entity.lesion in LUNG_LESIONS and category not in _LUNG else entity.lesion


def join_neighbours(lesion_types: Iterable[str | None]) -> str | list[str] | None:
    """Return the lesion type in ``lesion_types``, a list of them if there are several, or None if there is none."""
    distinct_types = [lesion_type for lesion_type in dict.fromkeys(lesion_types) if lesion_type]
    return distinct_types if len(distinct_types) > 1 else next(iter(distinct_types), None)


def find_labels(
    entity: Entity,
    places: list[Place],
    category: str | None,
    unsided_effusion: bool,
    lexicon: Lexicon,
    candidates: tuple[str, ...] = (),
) -> list[str]:
    """Return a finding's zone labels in the order of ``ZONE_LABELS``.

    A lung finding without a location gets both lungs. An effusion with a side gets the base of this side (Figure 11).
    An effusion without a side gets both bases if ``unsided_effusion`` is true, and no label otherwise. ``candidates``:
    diseases that the finding may represent. A finding whose only candidate is an effusion counts as an effusion.
    """
    effusion = entity.lesion == "effusion" or candidates == ("effusion",)
    if category == "pleura" and effusion:
        sides = [side for place in places for side in place.sides] or (SIDES if unsided_effusion else ())
        return sort_labels({f"{side} lung base" for side in sides})
    if category != "lung":
        return []
    zone_labels: set[str] = set()
    for place in places:
        if place.category is not None:
            continue
        level = place.level or "lung"
        if effusion and level == "lung":
            level = "base"
        pattern = lexicon.locations["levels"][level]["label"]
        zone_labels |= {pattern.format(side=side) for side in (place.sides or SIDES)}
    return sort_labels(zone_labels or set(LUNGS))


def sort_labels(zone_labels: set[str]) -> list[str]:
    """Return the labels in the order of ``ZONE_LABELS``. A zone's label removes the label of its lung (Figure 10)."""
    lungs = {f"{side_of(label)} lung" for label in zone_labels if label not in LUNGS}
    return [label for label in ZONE_LABELS if label in zone_labels - lungs]


def find_blocked(
    entity: Entity, places: list[Place], category: str | None, zone_labels: list[str], lexicon: Lexicon
) -> list[str]:
    """Return the locations besides ``zone_labels`` at which an affirmed finding could be, so that nothing is denied
    there. For a finding without labels, these are all its possible locations. For a finding with labels, these are only
    the locations that a word such as "infrahilar" leaves open."""
    somewhere = category in ("lung", "pleura", "lateral view location", None) or entity.lesion in LUNG_LESIONS
    levels = lexicon.locations["levels"]
    open_patterns = [(levels[p.level]["also"], p.sides) for p in places if "also" in levels.get(p.level, {})]
    if zone_labels and open_patterns:
        return list(dict.fromkeys(also.format(side=side) for also, sides in open_patterns for side in (sides or SIDES)))
    if zone_labels or not somewhere or entity.name == "subcutaneous emphysema":
        return []
    if category == "lateral view location":
        for phrase, blocked in lexicon.locations["blocks"].items():
            if any(phrase in place.text for place in places):
                return list(blocked)
    sides = {side for place in places for side in place.sides}
    return [f"{side} lung" for side in SIDES if not sides or side in sides]
