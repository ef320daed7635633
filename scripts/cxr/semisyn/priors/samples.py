"""Convert experts' boxes to samples: percent of the lung's box, left lungs mirrored; heart ratios from masks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cxr.annotations.box_table import region_box
from cxr.annotations.regions import Annotation, image_name
from cxr.base.vocabulary import SIDES
from cxr.geometry.affine import box_to_frame
from cxr.semisyn.references import finding_by_label

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Chest:
    """An image on its frame. right, left, heart: boxes (x1, y1, x2, y2), frame pixels; ``to_original`` (2, 3).

    shape: rows and columns of the original; posed: whether the heart may be measured (PA, erect or unknown position);
    patient: its subject_id.
    """

    right: Box
    left: Box
    heart: Box
    to_original: np.ndarray
    shape: tuple[int, int]
    posed: bool
    patient: str


def nearest_lung(box: Box, chest: Chest) -> str:
    """Return the side of the lung whose nearer vertical edge is closest to the box's centre (authors' code)."""
    centre = (box[0] + box[2]) / 2
    near = {side: min(abs(centre - getattr(chest, side)[edge]) for edge in (0, 2)) for side in SIDES}
    return min(near, key=near.__getitem__)


def lung_percent(box: Box, lung: Box, side: str) -> Box:
    """Return centre x, centre y, width and height in percent of the lung's box, x from its lateral edge."""
    width, height = lung[2] - lung[0], lung[3] - lung[1]
    x = 100 * ((box[0] + box[2]) / 2 - lung[0]) / width
    y = 100 * ((box[1] + box[3]) / 2 - lung[1]) / height
    return (100 - x if side == "left" else x), y, 100 * (box[2] - box[0]) / width, 100 * (box[3] - box[1]) / height


def box_fault(region: Annotation, box: Box | None, chest: Chest | None) -> str:
    """Return why a box cannot be used, "" if it can. ``chest``: of its image, None if the organs are missing."""
    if chest is None:
        return "no organs of its image"
    if box is None:
        return "no box, or not a number"
    if box[0] >= box[2] or box[1] >= box[3]:
        return "no area"
    if region.size is not None and tuple(region.size) != chest.shape:
        return "drawn on another size of picture"
    if box[0] >= chest.shape[1] or box[1] >= chest.shape[0] or box[2] <= 0 or box[3] <= 0:
        return "outside the picture"
    return ""


@dataclass(frozen=True)
class BoxSource:
    """A reference: its name, its format, the template of its image_id, and {label: finding}."""

    name: str
    format: str
    image_id: str
    classes: Mapping[str, str]


def sample_rows(
    regions: Iterable[Annotation],
    source: BoxSource,
    chests: Mapping[str, Chest],
    placements: Mapping[str, str],
    max_outside: float,
) -> list[tuple]:
    """Return rows of ``write_priors.SAMPLES``. ``placements``: {finding: lung or heart}.

    ``max_outside``: percent of the lung's box by which a centre may lie outside it; boxes beyond are excluded.
    """
    names, rows, hearts = finding_by_label(source.format, source.classes, placements), [], set()
    none = (None,) * 4
    for region in regions:
        name = names.get(region.label.lower())
        if name is None:
            continue
        image = image_name(source.image_id, region.image)
        box, chest = region_box(region), chests.get(image)
        reason = box_fault(region, box, chest)
        if placements[name] == "heart":
            if (name, image) not in hearts:
                reason = "no organs of its image" if chest is None else "" if chest.posed else "not PA, or not erect"
                ratio = None
                if chest is not None:  # the heart's width over the thorax's, outer edge to outer edge
                    ratio = 100 * (chest.heart[2] - chest.heart[0]) / (chest.left[2] - chest.right[0])
                rows.append((name, source.name, image, "", *none, ratio, reason))
            hearts.add((name, image))
        elif reason:
            rows.append((name, source.name, image, "", *none, None, reason))
        else:
            frame_box = tuple(box_to_frame(box, chest.to_original).tolist())
            side = nearest_lung(frame_box, chest)
            numbers = lung_percent(frame_box, getattr(chest, side), side)
            outside = not all(-max_outside <= value <= 100 + max_outside for value in numbers[:2])
            rows.append((name, source.name, image, side, *numbers, None, "far outside the lung" if outside else ""))
    return sorted(rows, key=lambda row: tuple(str(cell) for cell in row))


PARTS: dict[str, tuple[str, ...]] = {
    "apical zone": ("apical zone",),
    "hemidiaphragm and costophrenic angle": ("hemidiaphragm", "costophrenic angle"),
    "hilar structures": ("hilar structures",),
    "lower lung zone": ("lower lung zone",),
    "mid lung zone": ("mid lung zone",),
    "upper lung zone": ("upper lung zone",),
}
"""{zone: the Chest ImaGenome boxes, without their side, of which it is the union}."""
LOBES = {
    "right": {"lower lung lobe": ("lower lung zone",), "mid lung lobe": ("mid lung zone",),
              "upper lung lobe": ("upper lung zone",)},
    "left": {"lower lung lobe": ("lower lung zone", "mid lung zone"),
             "upper lung lobe": ("upper lung zone", "mid lung zone")},
}  # fmt: skip
"""{side: {lobe: the zones of which it is the union}}, as in the authors' numbers."""


def fit_zones(
    regions: Iterable[Annotation], image_id: str, chests: Mapping[str, Chest], percentiles: Sequence[float], fewest: int
) -> dict[tuple[str, str], tuple[tuple[float, ...], int]]:
    """Return {(side, zone): (box in percent of the lung's box as displayed, number of patients)}.

    ``percentiles``: of the lower and the upper edges; a box of fewer than ``fewest`` patients is skipped.
    """
    edges: dict[str, list] = defaultdict(list)
    for region in regions:
        side, box = region.label.partition(" ")[0], region_box(region)
        chest = chests.get(image_name(image_id, region.image))
        if side in SIDES and not box_fault(region, box, chest):
            lung = np.array(getattr(chest, side))
            size = np.tile(lung[2:] - lung[:2], 2)
            numbers = 100 * (box_to_frame(box, chest.to_original) - np.tile(lung[:2], 2)) / size
            edges[region.label.lower()].append((chest.patient, numbers))
    bounds = {}
    for label, rows in edges.items():
        if _num_patients(rows) >= fewest:
            low, high = np.percentile(np.stack([numbers for _, numbers in rows]), percentiles, axis=0)
            bounds[label] = float(low[0]), float(low[1]), float(high[2]), float(high[3])
    zones: dict[tuple[str, str], tuple] = {}
    for side in SIDES:
        for zone, parts in PARTS.items():
            names = [f"{side} {part}" for part in parts]
            if all(name in bounds for name in names):
                num_patients = min(_num_patients(edges[name]) for name in names)
                zones[side, zone] = _union([bounds[name] for name in names]), num_patients
        for lobe, parts in LOBES[side].items():
            if all((side, part) in zones for part in parts):
                part_zones = [zones[side, part] for part in parts]
                zones[side, lobe] = _union([box for box, _ in part_zones]), min(patients for _, patients in part_zones)
    return zones


def _num_patients(rows: list) -> int:
    return len({patient for patient, _ in rows})


def _union(boxes: list[tuple]) -> tuple[float, ...]:
    edges = np.array(boxes)
    return (*edges[:, :2].min(axis=0).tolist(), *edges[:, 2:].max(axis=0).tolist())
