"""Verify reported locations by the mask, and name the locations of a mask (ils.md sections 6 and 7)."""

from collections.abc import Iterable, Mapping

from cxr.base.vocabulary import LOBE_ZONES, LUNGS, VALID_LOCATIONS, in_table_order, side_of, zones_of
from cxr.ils.masks.thresholds import exact_fraction


def lung_of(label: str) -> str:
    """Return the whole lung that a zone label belongs to."""
    return f"{side_of(label)} lung"


def ground_labels(
    reported: Iterable[str],
    pixels_by_label: Mapping[str, int],
    area: int,
    meets: Mapping[str, bool],
    *,
    min_px: int,
    min_share: float,
) -> tuple[str, ...]:
    """Return the reported labels that the mask confirms, in the order given (section 6).

    A label is grounded if its anatomy mask meets a productive box (``meets``) and holds at least ``min_px`` pixels and
    ``min_share`` of the final mask (``pixels_by_label``, ``area``: pixels).
    """
    share = exact_fraction(min_share)
    return tuple(
        label
        for label in reported
        if meets[label] and area > 0 and pixels_by_label[label] >= min_px and pixels_by_label[label] >= share * area
    )


def name_locations(
    labels: Iterable[str],
    pixels_by_label: Mapping[str, int],
    area: int,
    *,
    min_share: float,
    excluded_zones: Iterable[str] = (),
) -> list[str]:
    """Return the valid locations that name a set of zone labels, in the order of Table 9 (section 7).

    The zones of its side that hold at least ``min_share`` of the mask name a lobe. A zone in ``excluded_zones`` (an
    ungrounded label) names nothing. No zone is named beside its whole lung. Empty if no name is left.
    """
    share, excluded_zones = exact_fraction(min_share), set(excluded_zones)
    locations: set[str] = set()
    for label in labels:
        if label in VALID_LOCATIONS:
            locations.add(label)
        else:
            zones = [zone for zone in LOBE_ZONES[label] if zone not in excluded_zones]
            locations.update(zone for zone in zones if area > 0 and pixels_by_label[zone] >= share * area)
    return merge_locations(locations)


def merge_locations(locations: Iterable[str]) -> list[str]:
    """Return valid locations in the order of Table 9, without the zones of a whole lung in the set."""
    locations = set(locations)
    return in_table_order(place for place in locations if place in LUNGS or lung_of(place) not in locations)


def list_possible_names(label: str) -> tuple[str, ...]:
    """Return the valid locations that could name a zone label."""
    return LOBE_ZONES.get(label, (label,))


def is_within(location: str, places: Iterable[str]) -> bool:
    """Whether a valid location is one of ``places`` or a zone of a whole lung among them."""
    return location in places or lung_of(location) in places


def list_related_by_name(label: str) -> set[str]:
    """Return the valid locations that contain a zone label by name, and those that a whole lung contains."""
    if label in LUNGS:
        return {label, *zones_of(side_of(label))}
    return {lung_of(label), *list_possible_names(label)}
