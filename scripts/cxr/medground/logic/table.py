"""From the table of regions to the scene of an image."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from cxr.base.vocabulary import VALID_LOCATIONS
from cxr.medground.logic.descriptions import described_zones, parsed, patients_side
from cxr.medground.logic.facts import Facts
from cxr.medground.logic.scene import Scene
from cxr.medground.logic.words import class_words


def zone_words(zone: str) -> tuple[str, ...]:
    """Return the wordings of a valid location, the plainest first."""
    side, _, zone_name = zone.partition(" ")
    if zone_name == "lung base":
        return f"{side} lung base", f"base of the {side} lung"
    level = zone_name.partition(" ")[0]
    return f"{side} {level} lung zone", f"{level} zone of the {side} lung"


def scene_of(image: Mapping, rows: Sequence[Mapping], facts: Facts, side: int) -> Scene:
    """Return the scene of an image: ``image`` a row of the images, ``rows`` of its regions by number, ``side`` px."""

    def column(name: str) -> np.ndarray:
        return np.array([np.nan if row[name] is None else row[name] for row in rows], np.float64)

    measured = bool(rows) and rows[0]["zones"] is not None
    index_by_zone = {
        zone: at for at, zone in enumerate(facts.zones) if zone in VALID_LOCATIONS and zone not in facts.classes
    }
    zone_names = [zone for zone in index_by_zone if zone.partition(" ")[2] != "lung"] if measured else []
    zones = {zone: np.array([row["zones"][index_by_zone[zone]] for row in rows]) for zone in zone_names} or _told_zones(
        image, rows, side
    )
    within, noun_by_class = None, class_words(facts.classes)
    if not facts.boxes_only:
        within = {
            (at, overlap["region"]): overlap["share"] if noun_by_class[row["label"]].inside else math.nan
            for at, row in enumerate(rows)
            for overlap in row["within"] or ()
        }
    return Scene(
        label=[row["label"] for row in rows],
        **{name: column(name) for name in ("area", "area_ratio", "cx", "cy", "elongation", "solidity")},
        contrast=column("contrast"),
        texture=column("texture"),
        edge_gap=np.array([_gap(row, image["extent"]) / side for row in rows], np.float64),
        candidate=np.array([row["candidate"] for row in rows], bool),
        classes=noun_by_class,
        domain=image["domain"],
        radiological=image["radiological"],
        zones=tuple(zones),
        shares=np.stack(list(zones.values()), axis=1) if zones else None,
        within=within,
        open_classes=frozenset(row["label"] for row in rows if row["open_class"]),
        extent=tuple(edge / side for edge in image["extent"]),
    )


def sides_of(image: Mapping, rows: Sequence[Mapping], side: int) -> list[str]:
    """Return the patient's side of each region of a radiological image, by its centroid."""
    middle = (image["extent"][0] + image["extent"][2]) / 2 / side
    return [patients_side(row["cx"], middle) for row in rows]


def _told_zones(image: Mapping, rows: Sequence[Mapping], side: int) -> Mapping[str, np.ndarray]:
    """Return {zone: shares (N,)} that an image's description tells of its regions; empty where it tells none."""
    read = parsed(image.get("description", "")) if image["radiological"] else None
    return described_zones(read, sides_of(image, rows, side)) if read is not None and read.patients else {}


def _gap(row: Mapping, extent: Sequence[int]) -> int:
    """Return the pixels from a box to the nearest edge of the picture."""
    x_min, y_min, x_max, y_max = extent
    return min(row["x1"] - x_min, row["y1"] - y_min, x_max - row["x2"], y_max - row["y2"])
