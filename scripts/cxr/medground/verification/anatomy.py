"""Verification of chest X-rays by rules (the judge, stage III in the paper). Contrast on radiographs says little, so
the judge uses results of ILS, the lesion segmentation of this project. Lungs and zones test a position that a text
names. The anomaly map is brighter in lesions. The source's masks are not used."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cxr.base.vocabulary import LUNGS, ORGAN_LABELS, ZONE_LABELS
from cxr.geometry.boxes import bounding_box, paired_iou
from cxr.medground.logic.atoms import NO, UNCLEAR, YES, atom_at_least
from cxr.medground.logic.decide import Decider
from cxr.medground.verification.claims import Claims


@dataclass(frozen=True)
class JudgeThresholds:
    """Thresholds of the judge by rules, on radiographs and on other images. All are our choices."""

    contrast: float = 0.8  # effect size against the surroundings from which a region stands out
    blob_iou: float = 0.5  # IoU of a box and the blob in it from which a region stands out
    enlarge: float = 0.25  # margin of the crop around a box, as a fraction of the box's longer side
    zone_no: float = 0.1  # fraction of a box's lung pixels in a place below which the box does not lie there
    least_lung: float = 0.1  # fraction of a box that is lung below which its zones are unknown
    anomaly_level: int = 26  # value of the anomaly map from which a pixel counts as anomalous, grey levels
    anomaly_yes: float = 0.1  # value of excess_anomaly from which a region stands out
    anomaly_no: float = -0.1  # value below which a region counts as normal; between the two the judge abstains
    slack: float = 2.0  # factor on the margins of LogicOptions, because boxes are measured less exactly than masks


@dataclass(frozen=True)
class Anatomy:
    """ILS results for a radiograph. ``zones`` and ``organs``: {name: bool (S, S)}. There are no organs if the source's
    masks derive from them. ``anomaly``: anomaly map, uint8 (S, S), or None. ``opaque``: classes that the anomaly map
    can show."""

    zones: Mapping[str, np.ndarray]
    organs: Mapping[str, np.ndarray] = field(default_factory=dict)
    anomaly: np.ndarray | None = None
    opaque: frozenset[str] = frozenset()

    @property
    def lungs(self) -> np.ndarray:
        """Both lungs, bool (S, S)."""
        return self.zones[LUNGS[0]] | self.zones[LUNGS[1]]


def zone_fractions(film: Anatomy, box: Sequence[int], least: float) -> dict[str, float]:
    """Return {zone: fraction of the box's lung pixels in this zone}; {} if less than ``least`` of the box is lung."""
    x1, y1, x2, y2 = box
    lungs = film.lungs[y1:y2, x1:x2]
    lung_area = int(lungs.sum())
    if lung_area == 0 or lung_area < least * lungs.size:
        return {}
    return {zone: float((mask[y1:y2, x1:x2] & lungs).sum() / lung_area) for zone, mask in film.zones.items()}


def excess_anomaly(film: Anatomy, boxes: Sequence[Sequence[int]], level: float) -> list[float | None]:
    """Return for each box the fraction of its lung pixels that are anomalous, minus that of the lung outside all boxes.
    Pixels are anomalous if the anomaly map is at least ``level``. Without a map or lung pixels, the value is None."""
    lungs = film.lungs
    windows, outside = [np.s_[y1:y2, x1:x2] for x1, y1, x2, y2 in boxes], lungs.copy()
    for window in windows:
        outside[window] = False
    if film.anomaly is None or not outside.any():
        return [None] * len(boxes)
    is_anomalous = film.anomaly >= level
    elsewhere, parts = float(is_anomalous[outside].mean()), [is_anomalous[window][lungs[window]] for window in windows]
    return [float(part.mean()) - elsewhere if part.size else None for part in parts]


def organ_iou(film: Anatomy, name: str, box: Sequence[int]) -> float | None:
    """Return the IoU of a box and the bounding box of the organ ``name``, or None if there is no such organ."""
    mask = film.organs.get(name)
    has_organ = mask is not None and mask.any()
    return float(paired_iou(np.array(box, float), np.array(bounding_box(mask), float))) if has_organ else None


def measure_boxes(
    film: Anatomy, decider: Decider, boxes: Sequence[Sequence[int]], regions: Sequence[int], claims: Claims,
    thresholds: JudgeThresholds,
) -> tuple[dict[str, int], tuple[dict, ...]]:  # fmt: skip
    """Return ({check: verdict}, measurements of each region) for an answer, which is the regions numbered ``regions``.

    The check ``place`` tests whether the boxes lie where the text says, ``organ`` whether they match an organ's box,
    and ``anomaly`` whether the anomaly map is brighter inside. A verdict is NO, UNCLEAR or YES, the lowest of all
    boxes. A check that does not apply is absent. ``boxes``: boxes of all regions of the image, px."""
    scene, numbers = decider.scene, decider.numbers
    region_boxes = [boxes[region] for region in regions]
    shares = [zone_fractions(film, box, thresholds.least_lung) for box in region_boxes]
    maps = excess_anomaly(film, region_boxes, thresholds.anomaly_level)
    organs = [organ_iou(film, scene.classes[scene.label[region]].one, boxes[region]) for region in regions]
    verdicts: dict[str, list[int]] = defaultdict(list)
    limits = thresholds.zone_no, numbers.zone_yes
    for name in claimed_places(claims):
        mask = film.organs.get(name, np.zeros((0, 0)))
        fractions: list[float | None] = [zones.get(name) for zones in shares]
        if name not in film.zones and mask.any():
            fractions = [float(mask[y1:y2, x1:x2].mean()) for x1, y1, x2, y2 in region_boxes]
        verdicts["place"] += [_at_least(fraction, *limits) for fraction in fractions]
    if claims.both:
        verdicts["place"] += [max(_at_least(zones.get(lung), *limits) for zones in shares) for lung in LUNGS]
    for region, organ, excess in zip(regions, organs, maps, strict=True):
        if organ is not None:
            verdicts["organ"].append(YES if organ >= thresholds.blob_iou else NO)
        elif excess is not None and scene.label[region] in film.opaque:
            verdicts["anomaly"].append(_at_least(excess, thresholds.anomaly_no, thresholds.anomaly_yes))
    observed = tuple(
        {"zones": [name for name, share in zones.items() if share >= numbers.zone_yes]}
        | ({} if organ is None else {"organ_iou": round(organ, 3)})
        | ({} if excess is None else {"anomaly": round(excess, 3)})
        for zones, organ, excess in zip(shares, organs, maps, strict=True)
    )
    return {name: min(values) for name, values in verdicts.items()}, observed


def claimed_places(claims: Claims) -> list[str]:
    """Return the zones, lungs and organs in which a text places its answer, as in "the opacity in the left lung"."""
    query, places = claims.query, []
    for atom in claims.atoms:
        family, _, value = atom.partition(":")
        places += [value] if family == "zone" else [f"{value} lung"] if family == "side" else []
    if query.reference and query.relation == "inside":
        places += [atom.partition(":")[2] for atom in query.reference.atoms]
    return [name for name in places if name in (*ZONE_LABELS, *ORGAN_LABELS)]


def _at_least(value: float | None, no: float, yes: float) -> int:
    return UNCLEAR if value is None else int(atom_at_least(np.array([value]), no, yes)[0])
