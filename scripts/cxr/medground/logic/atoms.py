"""Atoms: statements about a region, such as "size:small". The value of an atom for a region is no, unclear or yes."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cxr.medground.logic.scene import Scene

NO, UNCLEAR, YES = 0, 1, 2  # values of an atom for a region. A conjunction of atoms is their minimum
DOMAINS_WITHOUT_APPEARANCE = ("cxr",)
"""Image domains in which contrast says little about findings, so that no query mentions appearance."""
OPPOSITE_SIDE = {"left": "right", "right": "left"}


@dataclass(frozen=True)
class LogicOptions:
    """Thresholds of attributes, and margins around them within which an attribute is unclear. All are our choices."""

    tiny: float = 0.005  # areas below this fraction of the image are tiny
    small: float = 0.03  # areas from tiny up to this fraction are small
    medium: float = 0.15  # areas from small up to this fraction are medium-sized; above it, large
    size_margin: float = 0.15  # sizes are unclear within this fraction of a threshold
    relative_from: int = 4  # fewest regions of a class for which "larger" and "smaller" are defined
    round: float = 0.25  # elongation below which a region is round
    elongated: float = 0.5  # elongation from which a region is elongated; below it, oval
    oval_solidity: float = 0.9  # smallest solidity of an oval region
    irregular: float = 0.8  # solidity below which a region is irregular
    shape_margin: float = 0.05  # elongations and solidities this near to a threshold are unclear
    shape_min_px: int = 64  # area below which a region's shape is unclear, px
    position_margin: float = 0.05  # positions this near to a boundary, as a fraction of the side, are unclear
    zone_yes: float = 0.5  # fraction of a region in a zone from which it lies there
    zone_no: float = 0.3  # fraction in a zone below which it does not lie there; between the two it is unclear
    area_gap: float = 0.2  # fraction by which the largest region's area must exceed the next one's
    position_gap: float = 0.03  # smallest distance to the next region for leftmost, topmost, …, fraction of the side
    farthest_nth: int = 3  # highest n of "the n-th from the left"
    relation_gap: float = 0.05  # smallest distance of two centroids for relations such as left_of, fraction of the side
    nearest_gap: float = 0.2  # fraction by which the next region must be farther away than the nearest one
    contrast_yes: float = 0.8  # contrast from which a region is bright, or dark if negative
    contrast_no: float = 0.3  # contrast below which it is neither bright nor dark; between the two limits it is unclear
    texture_rough: float = 1.3  # texture from which a region is heterogeneous
    texture_even: float = 0.77  # texture up to which a region is homogeneous; between the two it is unclear


def atom_family(atom: str) -> str:
    """Return the family of an atom, such as "size" for "size:small". The family of "side:left" (patient) is "zone"."""
    name = atom.partition(":")[0]
    return "zone" if name == "side" else name


def atom_in_range(value: np.ndarray, low: float, high: float, margins: tuple[float, float]) -> np.ndarray:
    """Return for each value, uint8 (N,), YES if low <= value < high, otherwise NO. NaN, and values within a margin of a
    finite bound, give UNCLEAR. ``margins``: (margin around ``low``, margin around ``high``)."""
    under, over = margins
    sure = (value >= low + under) & (value < high - over)
    ruled_out = (value < low - under) | (value >= high + over)
    return np.where(sure, YES, np.where(ruled_out, NO, UNCLEAR)).astype(np.uint8)


def atom_at_least(value: np.ndarray, no: float, yes: float) -> np.ndarray:
    """Return YES for values from ``yes`` upwards, NO for values below ``no``, otherwise UNCLEAR, uint8 (N,)."""
    return np.where(value >= yes, YES, np.where(value < no, NO, UNCLEAR)).astype(np.uint8)


def evaluate_atoms(scene: Scene, numbers: LogicOptions) -> dict[str, np.ndarray]:
    """Return {atom: NO, UNCLEAR or YES for each region, uint8 (N,)} for all atoms of a scene, such as "size:small"."""
    words = {word for noun in scene.classes.values() for word in (noun.one, *noun.parents)}
    atoms = {f"class:{word}": np.where(scene.of_class(word), YES, NO).astype(np.uint8) for word in sorted(words)}
    parts = (_size_atoms, _shape_atoms, _place_atoms, _appearance_atoms)
    return atoms | {name: values for part in parts for name, values in part(scene, numbers).items()}


def _size_atoms(scene: Scene, numbers: LogicOptions) -> dict[str, np.ndarray]:
    slack, edges = numbers.size_margin, (0.0, numbers.tiny, numbers.small, numbers.medium, np.inf)
    margins = [0.0, *(edge * slack for edge in edges[1:-1]), 0.0]
    ranges = zip(("tiny", "small", "medium", "large"), pairwise(edges), pairwise(margins), strict=True)
    atoms = {f"size:{name}": atom_in_range(scene.area_ratio, *ends, margin) for name, ends, margin in ranges}
    larger, smaller = np.full((2, len(scene)), UNCLEAR, np.uint8)
    for name in sorted(set(scene.label)):
        class_mask = np.array([label == name for label in scene.label], bool)
        if class_mask.sum() >= numbers.relative_from:
            area = scene.area[class_mask]
            low, high = np.quantile(area, (1 / 3, 2 / 3))
            larger[class_mask] = atom_in_range(area, high, np.inf, (high * slack, 0.0))
            smaller[class_mask] = atom_in_range(area, -np.inf, low, (0.0, low * slack))
    return atoms | {"size:larger": larger, "size:smaller": smaller}


def _shape_atoms(scene: Scene, numbers: LogicOptions) -> dict[str, np.ndarray]:
    slack, long, solid = numbers.shape_margin, scene.elongation, scene.solidity
    not_long = atom_in_range(long, numbers.round, numbers.elongated, (slack, slack))
    atoms = {
        "round": atom_in_range(long, -np.inf, numbers.round, (0.0, slack)),
        "oval": np.minimum(not_long, atom_in_range(solid, numbers.oval_solidity, np.inf, (slack, 0.0))),
        "elongated": atom_in_range(long, numbers.elongated, np.inf, (slack, 0.0)),
        "irregular": atom_in_range(solid, -np.inf, numbers.irregular, (0.0, slack)),
    }
    small = scene.area < numbers.shape_min_px
    return {f"shape:{name}": np.where(small, UNCLEAR, values).astype(np.uint8) for name, values in atoms.items()}


def _place_atoms(scene: Scene, numbers: LogicOptions) -> dict[str, np.ndarray]:
    x_min, y_min, x_max, y_max = scene.extent
    x, y = (scene.cx - x_min) / (x_max - x_min), (scene.cy - y_min) / (y_max - y_min)
    slack, gap, atoms = numbers.position_margin, scene.edge_gap, {}
    for low_half, high_half, place in (("left", "right", x), ("upper", "lower", y)):
        atoms[f"position:{low_half}"] = atom_in_range(place, -np.inf, 0.5, (slack, slack))
        atoms[f"position:{high_half}"] = atom_in_range(place, 0.5, np.inf, (slack, slack))
    atoms["position:middle"] = np.minimum(*(atom_in_range(place, 1 / 3, 2 / 3, (slack, slack)) for place in (x, y)))
    atoms["position:border"] = np.where(gap <= 0, YES, np.where(gap < slack, UNCLEAR, NO)).astype(np.uint8)
    for at, zone in enumerate(scene.zones if scene.shares is not None else ()):
        atoms[f"zone:{zone}"] = atom_at_least(scene.shares[:, at], numbers.zone_no, numbers.zone_yes)
    if scene.radiological is not None:  # the patient's sides, from the image's halves
        for side, opposite in OPPOSITE_SIDE.items():
            atoms[f"side:{side}"] = atoms[f"position:{opposite if scene.radiological else side}"]
    return atoms


def _appearance_atoms(scene: Scene, numbers: LogicOptions) -> dict[str, np.ndarray]:
    if scene.domain in DOMAINS_WITHOUT_APPEARANCE:
        return {}
    is_rough = np.where(scene.texture >= numbers.texture_rough, YES, UNCLEAR)
    rough = np.where(scene.texture <= numbers.texture_even, NO, is_rough).astype(np.uint8)
    limits = numbers.contrast_no, numbers.contrast_yes
    atoms = {"bright": atom_at_least(scene.contrast, *limits), "dark": atom_at_least(-scene.contrast, *limits)}
    atoms |= {"even": (YES - rough).astype(np.uint8), "rough": rough}
    return {f"appearance:{name}": values for name, values in atoms.items()}


def evaluate_relation(kind: str, reference: int, scene: Scene, numbers: LogicOptions) -> np.ndarray:
    """Return NO, UNCLEAR or YES for each region, uint8 (N,): whether it has the relation ``kind``, such as ``left_of``,
    to the region with the number ``reference``. The value of the reference itself is NO."""
    if kind != "inside":
        place = scene.cx if kind in ("left_of", "right_of") else scene.cy
        distance = (place - place[reference]) * (-1 if kind in ("left_of", "above") else 1)
        values = atom_in_range(distance, 0.0, np.inf, (numbers.relation_gap, 0.0))
    elif scene.within is None:
        values = np.full(len(scene), UNCLEAR, np.uint8)
    else:
        share = np.array([scene.within.get((region, reference), 0.0) for region in range(len(scene))])
        values = atom_at_least(share, numbers.zone_no, numbers.zone_yes)
    values[reference] = NO
    return values
