"""The X-rays for training and testing the anomaly net, with organ masks from the organ engine ``lite``."""

import csv
import hashlib
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import HEART, LUNGS
from cxr.geometry.affine import fit_affine, points_to_frame, to_frame
from cxr.geometry.boxes import clip_boxes
from cxr.imaging.phantom import chest
from cxr.nets.map_net import MapNet
from cxr.painting import lesions

FRAME = 512
SHARED = (RESOURCES.parent / os.environ.get("CXR_ILS_SHARED", "../shared")).resolve()
CONTRADICTED = ("Normal", "No Lung Opacity / Not Normal")
"""RSNA classes of an X-ray whose NIH box may be no lesion."""
NORMAL = ("", "Normal")
"""RSNA classes that do not contradict the NIH label "No Finding"."""
NOT_HEALTHY = RESOURCES / "boxes" / "not_healthy.csv"
"""X-rays with the label "No Finding" that are not healthy on inspection. The detector uses this list too."""
FOLDS = 3
MAX_RATIO, MIN_SOLIDITY = 1.9, 0.85  # organ masks beyond these limits are wrong, so a window around them would be wrong
TRUTH_LUNGS = ("lung_right", "lung_left")
LESION_MASKS = ("ground_glass_opacity", "consolidation")


@dataclass
class Film:
    """A frontal X-ray as a frame."""

    name: str
    patient: str
    image: np.ndarray
    """uint8 (512, 512)."""
    organs: dict[str, np.ndarray]
    """bool (512, 512) each: right lung, left lung and heart, as the pipeline segments them."""
    lesion: np.ndarray
    """bool (512, 512): the union of boxes or masks of lesions, empty for a healthy X-ray."""
    lungs: np.ndarray
    """bool (512, 512): the lungs in which the lesion is compared with the rest, from ``organs`` or a radiologist."""
    fold: int = -1
    """Fold of the patient; -1 for a synthetic chest."""


@cache
def _organ_net() -> MapNet:
    return MapNet(RESOURCES / "organs" / "lite.onnx")


def organs_of(image: np.ndarray) -> dict[str, np.ndarray]:
    """Return the masks of right lung, left lung and heart of a frame."""
    net = _organ_net()
    masks = dict(zip(net.labels, net.masks(image), strict=True))
    return {label: masks[label] for label in (*LUNGS, HEART)}


def both_lungs(organs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the union of both lungs."""
    return organs[LUNGS[0]] | organs[LUNGS[1]]


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    picture = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    affine = fit_affine(picture.shape, FRAME, "pad")
    return to_frame(picture, affine, FRAME), affine


def _mask(path: Path) -> np.ndarray:
    picture = (cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) > 0).astype(np.uint8)
    return to_frame(picture, fit_affine(picture.shape, FRAME, "pad"), FRAME, nearest=True) > 0


def _boxes(row: dict) -> list[dict]:
    return json.loads(row.get("nih_boxes") or "[]") + json.loads(row.get("rsna_boxes") or "[]")


def _rows(name: str) -> list[dict]:
    with open(SHARED / "data" / name / f"{name}.csv", encoding="utf-8", newline="") as file:
        people = f"{name.split('_')[0]}:"
        return [row | {"set": name, "patient": people + row["patient_id"]} for row in csv.DictReader(file)]


@cache
def _not_healthy() -> dict[str, bool]:
    """Return {X-ray: whether the nets were trained with it as a healthy X-ray before it was listed}."""
    with open(NOT_HEALTHY, encoding="utf-8", newline="") as file:
        return {row["image"]: row["anomaly net"] == "learnt from" for row in csv.DictReader(file)}


@cache
def chosen() -> dict[str, list[dict]]:
    """Return {set: its rows}.

    ``boxed``: NIH X-rays with boxes that RSNA does not contradict. ``masked``: COVID X-rays with radiologists' outlines
    of ground glass or consolidation. ``healthy``: NIH X-rays without a finding that RSNA does not contradict, of
    patients without any box, and not in :data:`NOT_HEALTHY`. ``doubtful``: X-rays of this list that the nets were
    trained with as healthy; no score uses them. ``labelled``: X-rays of which text mining or a note says only that the
    patient has an opacity.
    """
    nih, covid = _rows("nih") + _rows("nih_more"), _rows("covid") + _rows("covid_more")
    sick = {row["patient"] for row in nih if _boxes(row)}
    free = [row for row in nih if row["patient"] not in sick]
    masked = [row for row in covid if any(name in json.loads(row.get("masks") or "{}") for name in LESION_MASKS)]
    unfound = [row for row in free if row["nih_labels"] == "No Finding" and row["rsna_class"] in NORMAL]
    listed = {row["image"]: _not_healthy().get(Path(row["image"]).stem) for row in unfound}
    found = {
        "boxed": [row for row in nih if _boxes(row) and row["rsna_class"] not in CONTRADICTED],
        "masked": masked,
        "healthy": [row for row in unfound if listed[row["image"]] is None],
        "doubtful": [row for row in unfound if listed[row["image"]]],
        "labelled": [row for row in free if row["nih_labels"] != "No Finding" and row["rsna_class"] not in CONTRADICTED]
        + [row for row in covid if row not in masked and row["finding"] not in ("No Finding", "todo")],
    }
    return {name: sorted(rows, key=lambda row: row["image"]) for name, rows in found.items()}


def _shuffled(patient: str) -> str:
    return hashlib.sha256(patient.encode()).hexdigest()


def folds() -> dict[str, int]:
    """Return {patient: fold}, as folds.csv lists them.

    In each set, the patients that no earlier set has are sorted by the SHA-256 of their names and assigned to the folds
    in turn. Healthy and doubtful X-rays are one set. A test compares this rule with the list.
    """
    found: dict[str, int] = {}
    sets = dict(chosen())
    sets["healthy"] = sets["healthy"] + sets.pop("doubtful")
    for rows in sets.values():
        new = sorted({row["patient"] for row in rows} - set(found), key=_shuffled)
        found |= {patient: turn % FOLDS for turn, patient in enumerate(new)}
    return found


def _lesion_boxes(row: dict, shape: tuple[int, int], affine: np.ndarray) -> np.ndarray:
    lesion = np.zeros(shape, bool)
    for box in _boxes(row):
        corners = np.array([[box["x"], box["y"]], [box["x"] + box["w"], box["y"] + box["h"]]])
        x1, y1, x2, y2 = clip_boxes(points_to_frame(corners, affine).reshape(1, 4), FRAME, FRAME)[0]
        lesion[y1:y2, x1:x2] = True
    return lesion


def _film(row: dict) -> Film:
    folder = SHARED / "data" / row["set"]
    image, affine = _read(folder / "images" / row["image"])
    organs = organs_of(image)
    lungs, lesion = both_lungs(organs), _lesion_boxes(row, image.shape, affine)
    masks = json.loads(row.get("masks") or "{}")
    found = [_mask(folder / masks[name]) for name in LESION_MASKS if name in masks]
    if found:
        lesion = np.logical_or.reduce(found)
        lungs = np.logical_or.reduce([_mask(folder / masks[name]) for name in TRUTH_LUNGS])
    return Film(row["image"], row["patient"], image, organs, lesion, lungs, folds()[row["patient"]])


def boxed(limit: int | None = None) -> list[Film]:
    """Return the NIH films with boxes."""
    return [_film(row) for row in chosen()["boxed"][:limit]]


def masked() -> list[Film]:
    """Return the COVID X-rays with radiologists' outlines. Their lungs are also the radiologists' lungs."""
    return [_film(row) for row in chosen()["masked"]]


def healthy() -> list[Film]:
    """Return the NIH X-rays without a finding whose lung masks are plausible."""
    return [film for film in map(_film, chosen()["healthy"]) if plausible(film.organs)]


def called_healthy() -> list[Film]:
    """Return the X-rays with which the nets are trained as healthy: ``healthy`` and ``doubtful``, sorted by name."""
    rows = sorted(chosen()["healthy"] + chosen()["doubtful"], key=lambda row: row["image"])
    return [film for film in map(_film, rows) if plausible(film.organs)]


def labelled() -> list[Film]:
    """Return the X-rays of which only the label is known, and whose lungs the organ net finds."""
    return [film for film in map(_film, chosen()["labelled"]) if film.lungs.any()]


def plausible(organs: dict[str, np.ndarray]) -> bool:
    """Return True if both lungs have a mask, of similar areas and compact shapes."""
    areas, solid = [], []
    for label in LUNGS:
        outlines, _ = cv2.findContours(organs[label].astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        if not outlines:
            return False
        outline = max(outlines, key=cv2.contourArea)
        areas.append(cv2.contourArea(outline))
        solid.append(areas[-1] / max(1.0, cv2.contourArea(cv2.convexHull(outline))))
    return max(areas) <= MAX_RATIO * min(areas) and min(solid) >= MIN_SOLIDITY


def phantom(seed: int, size: int = FRAME) -> chest.Chest:
    """Draw a synthetic healthy chest."""
    random = np.random.default_rng(seed)
    return chest.draw_chest(random, size, cardiomegaly=seed % 4 == 0, ap=seed % 2 == 1)


def painted(seed: int, lesion: str) -> Film:
    """Return a synthetic chest with a painted lesion and its true organ masks."""
    normal = phantom(seed)
    organs = {label: normal.masks[label] for label in (*LUNGS, HEART)}
    random = np.random.default_rng(seed + 1)
    image, mask = lesions.paint(normal.image, lesion, both_lungs(organs), random, midline=normal.midline)
    return Film(f"phantom {seed}", str(seed), np.rint(image * 255).astype(np.uint8), organs, mask, both_lungs(organs))
