"""The X-rays that the anomaly net learns from and those it is tested on, with organ masks by the lite organ net."""

import csv
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np

from cxr.base.vocabulary import HEART, LUNGS
from cxr.geometry.affine import fit_affine, points_to_frame, to_frame
from cxr.geometry.boxes import clip_boxes
from cxr.imaging.phantom import chest, lesions
from cxr.nets.map_net import MapNet
from cxr.workflow.code_digest import RESOURCES

FRAME = 512
SHARED = (RESOURCES.parent / os.environ.get("CXR_ILS_SHARED", "../shared")).resolve()
CONTRADICTED = ("Normal", "No Lung Opacity / Not Normal")
"""RSNA classes beside which a box of the NIH set is no sure lesion."""
UNUSUAL = ("00001986_006.png", "00001986_011.png")
"""Films called "No Finding" that no normal chest should be learnt from."""
MAX_RATIO, MIN_SOLIDITY = 1.9, 0.85  # organ masks beyond these are wrong, and a window around them would be too
TRUTH_LUNGS = ("lung_right", "lung_left")
LESION_MASKS = ("ground_glass_opacity", "consolidation")


@dataclass
class Film:
    """One frontal X-ray in the frame."""

    name: str
    patient: str
    image: np.ndarray
    """uint8 (512, 512)."""
    organs: dict[str, np.ndarray]
    """bool (512, 512): right lung, left lung, heart, as the pipeline finds them."""
    lesion: np.ndarray
    """bool (512, 512): union of boxes or masks, empty for a healthy film."""
    lungs: np.ndarray
    """bool (512, 512): where lesion and rest are compared (the masks above, or a radiologist's)."""


@cache
def _organ_net() -> MapNet:
    return MapNet(RESOURCES / "organs" / "lite.onnx")


def organs_of(image: np.ndarray) -> dict[str, np.ndarray]:
    """Return right lung, left lung and heart of a frame."""
    net = _organ_net()
    masks = dict(zip(net.labels, net.masks(image), strict=True))
    return {label: masks[label] for label in (*LUNGS, HEART)}


def both_lungs(organs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the union of the lungs."""
    return organs[LUNGS[0]] | organs[LUNGS[1]]


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    picture = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    affine = fit_affine(picture.shape, FRAME, "pad")
    return to_frame(picture, affine, FRAME), affine


def _mask(path: Path) -> np.ndarray:
    picture = (cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) > 0).astype(np.uint8)
    return to_frame(picture, fit_affine(picture.shape, FRAME, "pad"), FRAME, nearest=True) > 0


def _boxes(row: dict) -> list[dict]:
    return json.loads(row["nih_boxes"] or "[]") + json.loads(row["rsna_boxes"] or "[]")


def _nih(rows: list[dict]) -> list[Film]:
    films = []
    for row in rows:
        image, affine = _read(SHARED / "data" / "nih" / "images" / row["image"])
        lesion = np.zeros(image.shape, bool)
        for box in _boxes(row):
            corners = np.array([[box["x"], box["y"]], [box["x"] + box["w"], box["y"] + box["h"]]])
            x1, y1, x2, y2 = clip_boxes(points_to_frame(corners, affine).reshape(1, 4), FRAME, FRAME)[0]
            lesion[y1:y2, x1:x2] = True
        organs = organs_of(image)
        films.append(Film(row["image"], row["patient_id"], image, organs, lesion, both_lungs(organs)))
    return films


def _rows(name: str) -> list[dict]:
    with open(SHARED / "data" / name / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def boxed(limit: int | None = None) -> list[Film]:
    """Return the NIH films with boxes that RSNA does not contradict: never learnt from, sorted by name."""
    rows = [row for row in _rows("nih") if _boxes(row) and row["rsna_class"] not in CONTRADICTED]
    return _nih(sorted(rows, key=lambda row: row["image"])[:limit])


def plausible(organs: dict[str, np.ndarray]) -> bool:
    """Tell whether two lungs of like size and compact shape were found."""
    areas, solid = [], []
    for label in LUNGS:
        outlines, _ = cv2.findContours(organs[label].astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        if not outlines:
            return False
        outline = max(outlines, key=cv2.contourArea)
        areas.append(cv2.contourArea(outline))
        solid.append(areas[-1] / max(1.0, cv2.contourArea(cv2.convexHull(outline))))
    return max(areas) <= MAX_RATIO * min(areas) and min(solid) >= MIN_SOLIDITY


def healthy() -> list[Film]:
    """Return NIH films without finding and without box, of patients none of whose films has a box."""
    rows = _rows("nih")
    patients = {row["patient_id"] for row in rows if _boxes(row)}
    chosen = [
        row
        for row in rows
        if row["nih_labels"] == "No Finding"
        and row["rsna_class"] in ("", "Normal")
        and row["patient_id"] not in patients
        and row["image"] not in UNUSUAL
    ]
    return [film for film in _nih(sorted(chosen, key=lambda row: row["image"])) if plausible(film.organs)]


def masked() -> list[Film]:
    """Return the COVID films with radiologists' masks of ground glass or consolidation, compared in their lungs."""
    films = []
    for row in sorted(_rows("covid"), key=lambda row: row["image"]):
        masks = json.loads(row["masks"] or "{}")
        found = [_mask(SHARED / "data" / "covid" / masks[name]) for name in LESION_MASKS if name in masks]
        if not found:
            continue
        image, _ = _read(SHARED / "data" / "covid" / "images" / row["image"])
        lungs = np.logical_or.reduce([_mask(SHARED / "data" / "covid" / masks[name]) for name in TRUTH_LUNGS])
        lesion = np.logical_or.reduce(found)
        films.append(Film(row["image"], row["patient_id"], image, organs_of(image), lesion, lungs))
    return films


def phantom(seed: int, size: int = FRAME) -> chest.Chest:
    """Draw a synthetic healthy chest."""
    random = np.random.default_rng(seed)
    return chest.sample(random, size, cardiomegaly=seed % 4 == 0, ap=seed % 2 == 1)


def painted(seed: int, lesion: str) -> Film:
    """Return a synthetic chest with one painted lesion and its true organ masks."""
    normal = phantom(seed)
    organs = {label: normal.masks[label] for label in (*LUNGS, HEART)}
    random = np.random.default_rng(seed + 1)
    image, mask = lesions.paint(normal.image, lesion, both_lungs(organs), random, midline=normal.midline)
    return Film(f"phantom {seed}", str(seed), np.rint(image * 255).astype(np.uint8), organs, mask, both_lungs(organs))
