"""A cohort of real X-rays (films) without a finding, on which the lesions of a synthetic cohort are painted."""

import csv
import os
from functools import cache
from pathlib import Path
from unittest.mock import patch

import cv2
import numpy as np

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import CARDIOMEDIASTINUM, HEART, LUNGS
from cxr.geometry.affine import fit_affine, to_frame
from cxr.imaging.anatomy.zones import zone_masks
from cxr.imaging.phantom import make_phantom
from cxr.imaging.phantom.chest import Chest
from cxr.imaging.phantom.settings import PhantomSettings
from cxr.nets.map_net import MapNet

SHARED = (RESOURCES.parent / os.environ.get("CXR_ILS_SHARED", "../shared")).resolve()
FRAME = 512
LARGEST = 0.1
"""Fraction of the films, those with the widest hearts, that get reports of a large heart."""
MAX_RATIO, MIN_SOLIDITY = 1.9, 0.85
"""Limits for usable lung masks: ratio of the larger to the smaller lung, and of a lung's area to its convex hull's."""


@cache
def chests() -> tuple[tuple[str, Chest], ...]:
    """Return (view, film) of a film of nih_more without a finding by RSNA, or by text mining without RSNA's label."""
    folder = SHARED / "data/nih_more"
    with open(folder / "nih_more.csv", encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["image"])
    plain = [row for row in rows if row["nih_labels"] == "No Finding" and not row["rsna_class"]]
    chosen = plain + [row for row in rows if row["rsna_class"] == "Normal"]
    films = [(row["view"], _chest(folder / "images" / row["image"])) for row in chosen]
    return tuple((view, chest) for view, chest in films if chest is not None)


def _chest(path: Path) -> Chest | None:
    """Return a film with the zones that the lite engines find; None if its lung masks are not usable."""
    picture = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    frame = to_frame(picture, fit_affine(picture.shape, FRAME, "pad"), FRAME)
    net = _net()
    organs = dict(zip(net.labels, net.masks(frame), strict=True))
    lungs = [organs[lung] for lung in LUNGS]
    if not all(map(_solid, lungs)) or max(one.sum() for one in lungs) > MAX_RATIO * min(one.sum() for one in lungs):
        return None
    heart = organs[HEART]
    masks = zone_masks(*lungs) | {HEART: heart, CARDIOMEDIASTINUM: heart}
    wide = np.flatnonzero((lungs[0] | lungs[1]).any(0))
    middle = float((np.flatnonzero(lungs[0].any(0)).mean() + np.flatnonzero(lungs[1].any(0)).mean()) / 2)
    ratio = heart.any(0).sum() / (wide[-1] - wide[0] + 1)
    return Chest(frame.astype(np.float32) / 255, masks, middle, float(ratio))


@cache
def _net() -> MapNet:
    return MapNet(RESOURCES / "organs/lite.onnx")


def _solid(mask: np.ndarray) -> bool:
    outlines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    if not outlines:
        return False
    outline = max(outlines, key=cv2.contourArea)
    return cv2.contourArea(outline) >= MIN_SOLIDITY * max(1.0, cv2.contourArea(cv2.convexHull(outline)))


def paint(folder: Path, seed: int, studies: int) -> None:
    """Write a cohort of painted films with reports, and its manifest.csv, into ``folder``.

    Findings, reports and lesions are those of the synthetic cohort with this seed. Only the chests are films. Reports
    of a large heart get films with one of the widest hearts.
    """
    films = chests()
    width = float(np.quantile([chest.ctr for _, chest in films], 1 - LARGEST))

    def pick(random: np.random.Generator, size: object, *, cardiomegaly: bool, ap: bool) -> Chest:
        wide_enough = [(view, chest) for view, chest in films if (chest.ctr >= width) == cardiomegaly]
        same_view = [film for film in wide_enough if film[0] == ("AP" if ap else "PA")]
        candidates = same_view or wide_enough
        return candidates[int(random.integers(len(candidates)))][1]

    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "manifest.csv"
    options = PhantomSettings(subjects=studies * 5 // 8, studies=studies)
    with patch.object(make_phantom, "draw_chest", pick):  # replaces the function that draws the synthetic chest
        make_phantom.run(
            manifest=str(manifest), truth=str(folder / "truth.jsonl"), truth_masks=str(folder / "truth.h5"),
            options=options, seed=seed, attrs={},
        )  # fmt: skip
