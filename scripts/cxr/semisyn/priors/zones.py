"""Fit the zones that prompts name: the position of anatomical boxes in percent of their lung's box."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cxr.annotations.box_table import region_box
from cxr.annotations.regions import Annotation, image_name
from cxr.base.vocabulary import SIDES
from cxr.semisyn.priors.samples import Chest, box_fault, box_to_frame

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
            numbers = 100 * (np.array(box_to_frame(box, chest.to_original)) - np.tile(lung[:2], 2)) / size
            edges[region.label.lower()].append((chest.patient, numbers))
    bounds = {
        label: _percentile_box(rows, percentiles) for label, rows in edges.items() if _num_patients(rows) >= fewest
    }
    zones: dict[tuple[str, str], tuple] = {}
    for side in SIDES:
        for zone, parts in PARTS.items():
            names = [f"{side} {part}" for part in parts]
            if all(name in bounds for name in names):
                zones[side, zone] = (
                    _union([bounds[name] for name in names]),
                    min(_num_patients(edges[name]) for name in names),
                )
        for lobe, parts in LOBES[side].items():
            if all((side, part) in zones for part in parts):
                part_zones = [zones[side, part] for part in parts]
                zones[side, lobe] = _union([box for box, _ in part_zones]), min(patients for _, patients in part_zones)
    return zones


def _num_patients(rows: list) -> int:
    return len({patient for patient, _ in rows})


def _percentile_box(rows: list, percentiles: Sequence[float]) -> tuple[float, ...]:
    numbers = np.stack([box for _, box in rows])
    low, high = (np.percentile(numbers, percentile, axis=0) for percentile in percentiles)
    return float(low[0]), float(low[1]), float(high[2]), float(high[3])


def _union(boxes: list[tuple]) -> tuple[float, ...]:
    edges = np.array(boxes)
    return (*edges[:, :2].min(axis=0).tolist(), *edges[:, 2:].max(axis=0).tolist())
