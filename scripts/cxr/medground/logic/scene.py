"""Scenes, which are the regions of one image as arrays, and the words for their classes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cxr.base.vocabulary import VALID_LOCATIONS
from cxr.medground.logic.facts import Facts
from cxr.medground.logic.text import described_zones, parse_statement, patient_side

MEASURES = ("area", "area_ratio", "cx", "cy", "elongation", "solidity", "contrast", "texture")
"""Columns of the table of regions that become arrays of a scene."""


@dataclass(frozen=True)
class ClassWords:
    """Words for a class: its noun as singular (``one``) and plural, and ``parents``, {broader term: its plural}.
    ``ask``: whether queries may ask for the class. ``inside``: whether they may say that it lies in another region."""

    one: str
    many: str
    parents: Mapping[str, str] = field(default_factory=dict)
    ask: bool = True
    inside: bool = True

    def includes(self, word: str) -> bool:
        """Return whether a word is the singular noun of the class or one of its broader terms."""
        return word == self.one or word in self.parents


@dataclass(frozen=True)
class Scene:
    """The N regions of an image, in the order of their numbers. Lengths are fractions of the frame's side.

    These are arrays (N,): ``area`` in pixels; ``area_ratio``, the area divided by that of the image without padding;
    the centroid ``cx`` and ``cy``; ``elongation``, ``solidity``, ``contrast`` and ``texture``, NaN if unknown;
    ``edge_gap``, the distance from the box to the image's edge; ``candidate``, whether the region may be an answer.

    ``label``: class of each region. ``shares``: fraction of each region's area in each of ``zones``, (N, Z), or None.
    ``within``: {(region, other region): fraction of the first one's area inside the other}, None without masks.
    ``radiological``: whether the image's left is the patient's right, None if unknown. ``open_classes``: classes of
    which regions were dropped because they are too small. ``extent``: box of the image without padding."""

    label: Sequence[str]
    area: np.ndarray
    area_ratio: np.ndarray
    cx: np.ndarray
    cy: np.ndarray
    elongation: np.ndarray
    solidity: np.ndarray
    contrast: np.ndarray
    texture: np.ndarray
    edge_gap: np.ndarray
    candidate: np.ndarray
    classes: Mapping[str, ClassWords]
    domain: str = "other"
    radiological: bool | None = None
    zones: Sequence[str] = ()
    shares: np.ndarray | None = None
    within: Mapping[tuple[int, int], float] | None = None
    open_classes: frozenset[str] = frozenset()
    extent: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)

    def __len__(self) -> int:
        return len(self.label)

    def of_class(self, name: str) -> np.ndarray:
        """Return for each region, bool (N,), whether the word ``name`` is the noun of its class or a broader term."""
        return np.array([self.classes[label].includes(name) for label in self.label], bool)


def parse_class_words(classes: Mapping[str, Mapping]) -> dict[str, ClassWords]:
    """Return {class: its words} from {class: {one, many, parents, ask, inside}}. The default of ``one`` is the class's
    name, and the default of ``many`` adds an s to it."""
    noun_by_class = {}
    for name, forms in classes.items():
        singular, flags = forms.get("one") or name, [forms.get(flag, True) for flag in ("ask", "inside")]
        noun_by_class[name] = ClassWords(
            singular, forms.get("many") or f"{singular}s", dict(forms.get("parents") or {}), *flags
        )
    return noun_by_class


def zone_phrases(zone: str) -> tuple[str, ...]:
    """Return two wordings of a lung zone, such as "left upper lung zone" and "upper zone of the left lung"."""
    side, level, *_ = zone.split()
    is_base = zone == f"{side} lung base"
    names = (zone, "base") if is_base else (f"{side} {level} lung zone", f"{level} zone")
    return names[0], f"{names[1]} of the {side} lung"


def build_scene(image: Mapping, rows: Sequence[Mapping], facts: Facts, side: int) -> Scene:
    """Return the scene of an image. ``image``: its row in the table of images. ``rows``: the rows of its regions, in
    the order of their numbers. ``facts``: facts about the source. ``side``: side of the frame, px."""

    def column(name: str) -> np.ndarray:
        return np.array([np.nan if row[name] is None else row[name] for row in rows], np.float64)

    is_measured = bool(rows) and rows[0]["zones"] is not None
    zones = {
        zone: np.array([row["zones"][at] for row in rows])
        for at, zone in enumerate(facts.zones if is_measured else ())
        if zone in VALID_LOCATIONS and zone not in facts.classes and zone.partition(" ")[2] != "lung"
    }
    statement = parse_statement(image.get("description", ""), image["radiological"])
    if not zones and statement is not None:
        zones = described_zones(statement, region_sides(image, rows, side))
    noun_by_class, (x_min, y_min, x_max, y_max) = parse_class_words(facts.classes), image["extent"]
    within = {
        (at, overlap["region"]): overlap["share"] if noun_by_class[row["label"]].inside else math.nan
        for at, row in enumerate(rows)
        for overlap in row["within"] or ()
    }
    gaps = [(row["x1"] - x_min, row["y1"] - y_min, x_max - row["x2"], y_max - row["y2"]) for row in rows]
    return Scene(
        label=[row["label"] for row in rows],
        **{name: column(name) for name in MEASURES},
        edge_gap=np.array([min(gap) / side for gap in gaps], np.float64),
        candidate=np.array([row["candidate"] for row in rows], bool),
        classes=noun_by_class,
        domain=image["domain"],
        radiological=image["radiological"],
        zones=tuple(zones),
        shares=np.stack(list(zones.values()), axis=1) if zones else None,
        within=None if facts.boxes_only else within,
        open_classes=frozenset(row["label"] for row in rows if row["open_class"]),
        extent=tuple(edge / side for edge in image["extent"]),
    )


def region_sides(image: Mapping, rows: Sequence[Mapping], side: int) -> list[str]:
    """Return the patient's side, "left" or "right", of each region of an image whose left is the patient's right."""
    middle = (image["extent"][0] + image["extent"][2]) / 2 / side
    return [patient_side(row["cx"], middle) for row in rows]
