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
    side, _, rest = zone.partition(" ")
    if rest == "lung base":
        return f"{side} lung base", f"base of the {side} lung"
    level = rest.partition(" ")[0]
    return f"{side} {level} lung zone", f"{level} zone of the {side} lung"


def scene_of(image: Mapping, rows: Sequence[Mapping], facts: Facts, side: int) -> Scene:
    """Return the scene of an image: ``image`` a row of the images, ``rows`` of its regions by number, ``side`` px."""

    def column(name: str) -> np.ndarray:
        return np.array([np.nan if row[name] is None else row[name] for row in rows], np.float64)

    measured = bool(rows) and rows[0]["zones"] is not None
    own = {zone: at for at, zone in enumerate(facts.zones) if zone in VALID_LOCATIONS and zone not in facts.classes}
    named = [zone for zone in own if zone.partition(" ")[2] != "lung"] if measured else []
    zones = {zone: np.array([row["zones"][own[zone]] for row in rows]) for zone in named} or _told_zones(
        image, rows, side
    )
    within, known = None, class_words(facts.classes)
    if not facts.boxes_only:
        within = {
            (at, one["region"]): one["share"] if known[row["label"]].inside else math.nan
            for at, row in enumerate(rows)
            for one in row["within"] or ()
        }
    return Scene(
        label=[row["label"] for row in rows],
        **{name: column(name) for name in ("area", "area_ratio", "cx", "cy", "elongation", "solidity")},
        contrast=column("contrast"),
        texture=column("texture"),
        edge_gap=np.array([_gap(row, image["extent"]) / side for row in rows], np.float64),
        candidate=np.array([row["candidate"] for row in rows], bool),
        classes=known,
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
    left, top, right, bottom = extent
    return min(row["x1"] - left, row["y1"] - top, right - row["x2"], bottom - row["y2"])
