"""Constructed chests for the masks stage, in which every pixel is known, and a run of the stage on them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.base.vocabulary import LOBE_ZONES, SIDES, ZONE_LEVELS
from cxr.ils.masks import make_masks
from cxr.ils.masks.settings import MasksSettings
from masks_shard import RULES, outputs, write_inputs

SIZE = 64
LUNG_ROWS, ZONE_ROWS = (4, 60), 14
COLUMNS = {"right": (4, 28), "left": (36, 60)}
ON_IMAGE = {"right": (3, 27), "left": (37, 61)}, (6, 62)
"""Columns and rows of the organs stage's lungs: as large as those of the zones, two rows lower and one further out."""
TAUS = {"ano": 0.1, "anatomy": 0.04, "conf": 0.2, "signal": 0.2, "size": 0.04}
R_BASE, L_BASE = "right lung base", "left lung base"
EFFUSION = {"entity": "effusion", "lesion": "effusion", "category": "pleura"}
HEART = {"entity": "cardiomegaly", "lesion": "cardiomegaly", "category": "heart"}


def chest() -> dict[str, np.ndarray]:
    """Two rectangular lungs of 56 x 24 pixels, each cut into four zones of 14 rows; lobes are unions of zones."""
    masks = {}
    for side in SIDES:
        for number, level in enumerate(ZONE_LEVELS):
            zone = np.zeros((SIZE, SIZE), bool)
            zone[LUNG_ROWS[0] + ZONE_ROWS * number :][:ZONE_ROWS, slice(*COLUMNS[side])] = True
            masks[f"{side} {level}"] = zone
        masks[f"{side} lung"] = np.logical_or.reduce([masks[f"{side} {level}"] for level in ZONE_LEVELS])
    for lobe, parts in LOBE_ZONES.items():
        masks[lobe] = np.logical_or.reduce([masks[part] for part in parts])
    return masks


def lungs_on_image() -> dict[str, np.ndarray]:
    """The lungs of the organs stage, Algorithm 1's L_r and L_l; the zones are other masks, of another image."""
    columns, rows = ON_IMAGE
    masks = {f"{side} lung": np.zeros((SIZE, SIZE), bool) for side in SIDES}
    for side in SIDES:
        masks[f"{side} lung"][slice(*rows), slice(*columns[side])] = True
    return masks


def heart() -> np.ndarray:
    mask = np.zeros((SIZE, SIZE), bool)
    mask[40:56, 24:44] = True
    return mask


def blob(zone: str, *, rows: int = 10, columns: int = 16, down: int = 2) -> tuple[int, int, int, int]:
    """A rectangle (x1, y1, x2, y2) inside a zone, 10 x 16 pixels unless told."""
    side = zone.split()[0]
    top = LUNG_ROWS[0] + ZONE_ROWS * ZONE_LEVELS.index(zone.removeprefix(f"{side} ")) + down
    left = COLUMNS[side][0] + 4
    return left, top, left + columns, top + rows


def study(name, tuples, blobs, *, boxes=None, **more) -> dict:
    """A study whose anomaly map holds the blobs; each has a box of its own unless boxes are given."""
    anomaly = np.zeros((SIZE, SIZE), np.uint8)
    for x1, y1, x2, y2 in blobs:
        anomaly[y1:y2, x1:x2] = 60
    return {
        "study_id": name,
        "image_id": f"i-{name}",
        "zones": chest(),
        "lungs": lungs_on_image(),
        "heart": heart(),
        "anomaly": anomaly,
        "image": np.full((SIZE, SIZE), 100, np.uint8),
        "boxes": [(*box, 0.9) for box in (blobs if boxes is None else boxes)],
        "tuples": tuples,
    } | more


@dataclass
class Result:
    """The stage's tables as lists of dicts, and its masks."""

    folder: Path
    findings: list[dict] = field(default_factory=list)
    units: list[dict] = field(default_factory=list)
    studies: list[dict] = field(default_factory=list)
    excluded: list[dict] = field(default_factory=list)

    def mask(self, row: dict) -> np.ndarray:
        with Shard(self.folder / "00.h5", key="mask_id") as shard:
            return shard.get("mask", row["mask_id"])

    def basics(self) -> list[dict]:
        return [unit for unit in self.units if unit["kind"] == "basic"]

    def globals(self) -> dict[str, dict]:
        return {unit["target"]: unit for unit in self.units if unit["kind"] == "global"}

    def made(self) -> list[tuple]:
        """(kind, word, location) of the units that make a pair."""
        return [(unit["kind"], unit["word"], unit["location"]) for unit in self.units if unit["dropped"] is None]


def segmenter(folder: Path) -> Callable[..., Result]:
    """Return a function that runs the stage on studies under rules that differ from RULES as told.

    ``edit`` changes the input files before the run; ``taus`` is a threshold set (default: TAUS for all targets).
    """
    number = iter(range(100))

    def segment(*studies: dict, edit=None, taus=None, **rules) -> Result:
        of_run = folder / str(next(number))
        inputs, made = write_inputs(of_run / "in", list(studies)), outputs(of_run)
        if edit:
            edit(inputs)
        chosen = taus or {"general": TAUS, "edema": TAUS}
        options = MasksSettings.from_dict({"thresholds": chosen} | RULES | rules)
        make_masks.run_shard(**inputs, **made, options=options, attrs={"stage": "masks"})
        tables = ("findings", "units", "studies", "excluded")
        return Result(of_run, **{name: read_table(made[name]).to_dicts() for name in tables})

    return segment
