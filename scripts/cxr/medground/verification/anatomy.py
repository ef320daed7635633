"""Stage III by rules on chest X-rays: positions of the boxes in the anatomy, and the anomaly map inside them.

Contrast is meaningless on radiographs, so the judge uses results of ILS: lungs and zones, to check a position that a
text names, and the anomaly map, which is brighter in lesions. The source's masks are not used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cxr.base.vocabulary import LUNGS, ORGAN_LABELS, ZONE_LABELS
from cxr.geometry.boxes import paired_iou
from cxr.medground.logic.atoms import NO, UNCLEAR, YES, atom_at_least
from cxr.medground.logic.decide import Decider
from cxr.medground.verification.claims import Claims
from cxr.medground.verification.thresholds import JudgeThresholds


@dataclass(frozen=True)
class Anatomy:
    """Results of ILS for a radiograph.

    zones, organs: {name: bool (S, S)}, organs empty if the source's masks derive from them; anomaly: uint8 (S, S), grey
    levels, or None; opaque: classes that the anomaly map can show.
    """

    zones: Mapping[str, np.ndarray]
    organs: Mapping[str, np.ndarray] = field(default_factory=dict)
    anomaly: np.ndarray | None = None
    opaque: frozenset[str] = frozenset()

    @property
    def lungs(self) -> np.ndarray:
        """Both lungs, bool (S, S)."""
        return self.zones[LUNGS[0]] | self.zones[LUNGS[1]]


def zone_fractions(film: Anatomy, box: Sequence[int], least: float) -> dict[str, float]:
    """Return each zone's fraction of the lung pixels in a box; empty if less than ``least`` of the box is lung."""
    x1, y1, x2, y2 = (int(edge) for edge in box)
    lungs = film.lungs[y1:y2, x1:x2]
    lung_area = int(lungs.sum())
    if lung_area == 0 or lung_area < least * lungs.size:
        return {}
    return {zone: float((mask[y1:y2, x1:x2] & lungs).sum() / lung_area) for zone, mask in film.zones.items()}


def fraction_in_place(film: Anatomy, place: str, box: Sequence[int], least: float) -> float | None:
    """Return the fraction of a box's lung pixels in a zone or lung, or of the box in another organ; None if unknown."""
    if place in film.zones:
        return zone_fractions(film, box, least).get(place)
    x1, y1, x2, y2 = (int(edge) for edge in box)
    mask = film.organs.get(place)
    return None if mask is None or not mask.any() else float(mask[y1:y2, x1:x2].mean())


def excess_anomaly(film: Anatomy, boxes: Sequence[Sequence[int]], level: float) -> list[float | None]:
    """Return each box's fraction of anomalous lung pixels minus that of the lungs outside all boxes.

    None without a map, or if a box or the remainder has no lung. ``level``: grey level from which a pixel is anomalous.
    """
    if film.anomaly is None:
        return [None] * len(boxes)
    lungs, is_anomalous = film.lungs, film.anomaly >= level
    inside = np.zeros(lungs.shape, bool)
    for x1, y1, x2, y2 in boxes:
        inside[y1:y2, x1:x2] = True
    outside = lungs & ~inside
    if not outside.any():
        return [None] * len(boxes)
    elsewhere = float(is_anomalous[outside].mean())
    shares = []
    for x1, y1, x2, y2 in boxes:
        part = is_anomalous[y1:y2, x1:x2][lungs[y1:y2, x1:x2]]
        shares.append(float(part.mean()) - elsewhere if part.size else None)
    return shares


def organ_iou(film: Anatomy, name: str, box: Sequence[int]) -> float | None:
    """Return the IoU of a box and the box of the organ ``name``; None without such an organ."""
    mask = film.organs.get(name)
    if mask is None or not mask.any():
        return None
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    organ_box = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    return float(paired_iou(np.array(box, np.float64), np.array(organ_box, np.float64)))


@dataclass(frozen=True)
class Measurements:
    """Measurements in an answer's boxes: verdicts by kind (place, organ, anomaly), and values."""

    verdicts: Mapping[str, int]
    observed: tuple[dict, ...]


def measure_boxes(
    film: Anatomy, decider: Decider, boxes: Sequence[Sequence[int]], regions: Sequence[int], claims: Claims,
    thresholds: JudgeThresholds,
) -> Measurements:  # fmt: skip
    """Measure the boxes of an answer. ``boxes``: of all regions, px."""
    scene, numbers = decider.scene, decider.numbers
    region_boxes = [boxes[region] for region in regions]
    shares = [zone_fractions(film, box, thresholds.least_lung) for box in region_boxes]
    maps = excess_anomaly(film, region_boxes, thresholds.anomaly_level)
    organs = [organ_iou(film, scene.classes[scene.label[region]].one, boxes[region]) for region in regions]
    verdicts: dict[str, list[int]] = {}
    for name in claimed_places(claims):
        place_verdicts = [
            _at_least(fraction_in_place(film, name, box, thresholds.least_lung), thresholds.zone_no, numbers.zone_yes)
            for box in region_boxes
        ]
        verdicts.setdefault("place", []).extend(place_verdicts)
    if claims.both:
        lung_verdicts = [
            max(_at_least(zone_shares.get(lung), thresholds.zone_no, numbers.zone_yes) for zone_shares in shares)
            for lung in LUNGS
        ]
        verdicts.setdefault("place", []).extend(lung_verdicts)
    for at, region in enumerate(regions):
        if organs[at] is not None:
            verdicts.setdefault("organ", []).append(YES if organs[at] >= thresholds.blob_iou else NO)
        elif maps[at] is not None and scene.label[region] in film.opaque:
            value = _at_least(maps[at], thresholds.anomaly_no, thresholds.anomaly_yes)
            verdicts.setdefault("anomaly", []).append(value)
    observed = tuple(
        _describe_box(zones, organ, excess, numbers.zone_yes)
        for zones, organ, excess in zip(shares, organs, maps, strict=True)
    )
    return Measurements({name: min(values) for name, values in verdicts.items()}, observed)


def claimed_places(claims: Claims) -> list[str]:
    """Return the zones, lungs and organs in which a text places its answer.

    If a lung is a class of the source, "in the left lung" is a relation to it.
    """
    query, places = claims.query, []
    within = query.reference.atoms if query.reference and query.relation == "inside" else ()
    for atom in (*claims.atoms, *(f"in:{inner_atom.partition(':')[2]}" for inner_atom in within)):
        family, _, value = atom.partition(":")
        if family in ("zone", "side", "in"):
            places.append(f"{value} lung" if family == "side" else value)
    return [name for name in places if name in (*ZONE_LABELS, *ORGAN_LABELS)]


def _at_least(value: float | None, no: float, yes: float) -> int:
    return UNCLEAR if value is None else int(atom_at_least(np.array([value]), no, yes)[0])


def _describe_box(zones: Mapping[str, float], organ: float | None, excess: float | None, yes: float) -> dict:
    observation: dict = {"zones": [name for name, share in zones.items() if share >= yes]}
    observation |= {} if organ is None else {"organ_iou": round(organ, 3)}
    return observation | ({} if excess is None else {"anomaly": round(excess, 3)})
