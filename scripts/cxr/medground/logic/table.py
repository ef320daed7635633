"""From the table of regions to the scene of an image."""

from collections.abc import Mapping, Sequence

import numpy as np

from cxr.base.vocabulary import VALID_LOCATIONS
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

    known = bool(rows) and rows[0]["zones"] is not None
    own = {zone: at for at, zone in enumerate(facts.zones) if zone in VALID_LOCATIONS and zone not in facts.classes}
    zones = [zone for zone in own if zone.partition(" ")[2] != "lung"]
    within = None
    if not facts.boxes_only:
        within = {(at, one["region"]): one["share"] for at, row in enumerate(rows) for one in row["within"] or ()}
    return Scene(
        label=[row["label"] for row in rows],
        **{name: column(name) for name in ("area", "area_ratio", "cx", "cy", "elongation", "solidity")},
        contrast=column("contrast"),
        texture=column("texture"),
        edge_gap=np.array([_gap(row, image["extent"]) / side for row in rows], np.float64),
        candidate=np.array([row["candidate"] for row in rows], bool),
        classes=class_words(facts.classes),
        domain=image["domain"],
        radiological=image["radiological"],
        zones=zones if known else (),
        shares=np.array([[row["zones"][own[zone]] for zone in zones] for row in rows]) if known else None,
        within=within,
        open_classes=frozenset(row["label"] for row in rows if row["open_class"]),
        extent=tuple(edge / side for edge in image["extent"]),
    )


def _gap(row: Mapping, extent: Sequence[int]) -> int:
    """Return the pixels from a box to the nearest edge of the picture."""
    left, top, right, bottom = extent
    return min(row["x1"] - left, row["y1"] - top, right - row["x2"], bottom - row["y2"])
