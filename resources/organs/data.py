"""Training data of the organ net: radiologists' masks, automatic masks, synthetic X-rays and NIH X-rays."""

import csv
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import torch

from cxr.base.vocabulary import CARDIOMEDIASTINUM, ORGAN_LABELS
from cxr.geometry.affine import fit_affine, to_frame
from cxr.nets.map_net import clean_mask

LABELS = (*ORGAN_LABELS, CARDIOMEDIASTINUM)
FRAME, CACHE = 512, 192  # sides of the frame, and of the images from which augmentation starts, pixels
HEART_TOP = 0.30  # fraction of the cardiomediastinum's height (aortic arch to diaphragm) above the heart
MAX_RATIO, MIN_SOLIDITY = 1.9, 0.86  # limits of a teacher's lung masks; others are not used for training
PHANTOMS, PHANTOM_SEED = 150, 7_390_211
SHARED = Path(os.environ.get("CXR_ILS_SHARED", "../shared"))


@dataclass
class Pool:
    """Images with masks: frames uint8 (N, 512, 512), truth bool (N, K, 512, 512), weight (N, K, 192, 192)."""

    names: list[str]
    patients: list[str]
    frames: np.ndarray
    truth: np.ndarray
    weight: np.ndarray

    def __len__(self) -> int:
        return len(self.frames)

    def take(self, chosen: np.ndarray) -> "Pool":
        """Return the pool of the images that ``chosen``, bool (N,), selects."""
        names = [name for name, keep in zip(self.names, chosen, strict=True) if keep]
        patients = [patient for patient, keep in zip(self.patients, chosen, strict=True) if keep]
        return Pool(names, patients, self.frames[chosen], self.truth[chosen], self.weight[chosen])

    def row(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return image (1, 192, 192), target and weight (K, 192, 192) as float tensors."""
        image = shrink(self.frames[index].astype(np.float32) / 255)[None]
        target = np.stack([shrink(mask.astype(np.float32)) for mask in self.truth[index]])
        return torch.from_numpy(image), torch.from_numpy(target), torch.from_numpy(self.weight[index])


def shrink(picture: np.ndarray) -> np.ndarray:
    """Shrink a float image of frame size to the size from which augmentation starts."""
    return cv2.resize(picture, (CACHE, CACHE), interpolation=cv2.INTER_AREA)


def upsample(maps: np.ndarray) -> np.ndarray:
    """Enlarge probabilities (K, S, S) to the size of the frame."""
    return np.stack([cv2.resize(p, (FRAME, FRAME), interpolation=cv2.INTER_LINEAR) for p in maps])


def heart_of(cardiomediastinum: np.ndarray) -> np.ndarray:
    """Return the heart in a cardiomediastinum mask: the part below the fraction HEART_TOP, with a rounded top."""
    rows = np.flatnonzero(cardiomediastinum.any(axis=1))
    if not rows.size:
        return cardiomediastinum.copy()
    height = rows[-1] - rows[0] + 1
    heart = cardiomediastinum.copy()
    heart[: rows[0] + round(HEART_TOP * height)] = False
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (round(0.3 * height) | 1,) * 2)
    rounded = cv2.morphologyEx(heart.astype(np.uint8), cv2.MORPH_OPEN, disc) > 0
    # Only the top is rounded: opening would cut the apex off, and with it the heart's width.
    rounded[rows[0] + round((HEART_TOP + 0.2) * height) :] |= heart[rows[0] + round((HEART_TOP + 0.2) * height) :]
    return rounded


def _frame_of(path: Path, nearest: bool = False) -> np.ndarray:
    picture = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    return to_frame(picture, fit_affine(picture.shape, FRAME, "pad"), FRAME, nearest=nearest)


def _covid_rows() -> list[tuple[dict, dict]]:
    with open(SHARED / "data" / "covid" / "covid.csv", encoding="utf-8", newline="") as file:
        rows = [(row, json.loads(row["masks"])) for row in csv.DictReader(file)]
    return sorted(rows, key=lambda pair: pair[0]["image"])


@cache
def experts() -> Pool:
    """Return the 18 X-rays in which radiologists outlined lungs and cardiomediastinum."""
    folder = SHARED / "data" / "covid"
    rows = [(row, masks) for row, masks in _covid_rows() if "cardiomediastinum" in masks]
    frames = np.stack([_frame_of(folder / "images" / row["image"]) for row, _ in rows])
    truth = []
    for _, masks in rows:
        right, left, middle = (
            _frame_of(folder / masks[name], nearest=True) > 127
            for name in ("lung_right", "lung_left", "cardiomediastinum")
        )
        truth.append(np.stack([right, left, heart_of(middle), middle]))
    weight = np.ones((len(rows), len(LABELS), CACHE, CACHE), np.float32)
    return Pool([r["image"] for r, _ in rows], [r["patient_id"] for r, _ in rows], frames, np.stack(truth), weight)


def _weak_weight(right: np.ndarray, left: np.ndarray, strength: float) -> np.ndarray:
    """Return weights that trust an automatic lung mask inside the lungs and far outside them, and nowhere else.

    The mask excludes white parts and the lung behind the heart, so nothing is known about the space between the lungs.
    """
    both = (right | left).astype(np.uint8)
    points = np.concatenate(cv2.findContours(both, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[0])
    hull = cv2.fillConvexPoly(np.zeros_like(both), cv2.convexHull(points), 1)
    known = 1 - cv2.dilate(hull, np.ones((41, 41), np.uint8))
    known |= cv2.erode(both, np.ones((7, 7), np.uint8))
    weight = np.repeat(shrink(known.astype(np.float32))[None] * strength, len(LABELS), axis=0)
    return weight


@cache
def automatic(strength: float = 0.4) -> Pool:
    """Return the other X-rays of the set with their automatic lung masks, weighted by :func:`_weak_weight`."""
    folder = SHARED / "data" / "covid"
    names, patients, frames, truth, weight = [], [], [], [], []
    for row, masks in _covid_rows():
        if "cardiomediastinum" in masks:
            continue
        lungs = (_frame_of(folder / masks["lungs_lungVAE_auto"], nearest=True) > 127).astype(np.uint8)
        _, labels, stats, centres = cv2.connectedComponentsWithStats(lungs)
        large = [i for i in range(1, len(stats)) if stats[i, cv2.CC_STAT_AREA] > 0.15 * lungs.sum()]
        if len(large) != 2:
            continue
        right, left = (labels == i for i in sorted(large, key=lambda i: centres[i][0]))
        names.append(row["image"])
        patients.append(row["patient_id"])
        frames.append(_frame_of(folder / "images" / row["image"]))
        truth.append(np.stack([right, left, np.zeros_like(right), np.zeros_like(right)]))
        weight.append(_weak_weight(right, left, strength))
    return Pool(names, patients, np.stack(frames), np.stack(truth), np.stack(weight))


@cache
def nih_frames() -> np.ndarray:
    """Return the NIH X-rays, uint8 (N, 512, 512)."""
    return np.stack([_frame_of(path) for path in sorted((SHARED / "data" / "nih" / "images").glob("*.png"))])


def _believable(right: np.ndarray, left: np.ndarray) -> bool:
    """Return True if two lung masks have the shape of lungs: compact, and of similar size."""
    areas = [int(right.sum()), int(left.sum())]
    if min(areas) < 0.03 * right.size or max(areas) > MAX_RATIO * min(areas):
        return False
    for lung, area in zip((right, left), areas, strict=True):
        outline = max(cv2.findContours(lung.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[0], key=len)
        if area < MIN_SOLIDITY * cv2.contourArea(cv2.convexHull(outline)):
            return False
    return True


def self_labelled(predict: Callable[[np.ndarray], np.ndarray], strength: float = 0.7) -> Pool:
    """Return the NIH X-rays with a teacher's masks. Pixels of which the teacher is unsure have a low weight.

    ``predict`` maps frames (N, 512, 512) to probabilities (N, K, S, S). Images with implausible lungs are left out.
    """
    frames = nih_frames()
    maps = [upsample(p) for p in predict(frames)]
    truth = np.stack([[clean_mask(p) for p in image] for image in maps])
    weight = np.stack([[shrink(np.clip(np.abs(p - 0.5) * 4, 0, 1)) for p in image] for image in maps])
    names = [str(index) for index in range(len(frames))]
    pool = Pool(names, names, frames, truth, (strength * weight).astype(np.float32))
    return pool.take(np.array([_believable(*masks[:2]) for masks in truth]))


@cache
def phantoms() -> Pool:
    """Return synthetic X-rays with their true organs. No test or cohort uses their seeds."""
    from cxr.imaging.phantom.chest import draw_chest

    frames, truth = [], []
    for index in range(PHANTOMS):
        shape = ((512, 512), (512, 424), (424, 512))[index % 3]
        chest = draw_chest(
            np.random.default_rng([PHANTOM_SEED, index]), shape, cardiomegaly=index % 4 == 1, ap=index % 2 == 0
        )
        affine = fit_affine(shape, FRAME, "pad")
        frames.append(to_frame(np.round(chest.image * 255).astype(np.uint8), affine, FRAME))
        masks = [to_frame(chest.masks[name].astype(np.uint8), affine, FRAME, nearest=True) > 0 for name in LABELS]
        truth.append(np.stack(masks))
    names = [str(index) for index in range(PHANTOMS)]
    weight = np.ones((PHANTOMS, len(LABELS), CACHE, CACHE), np.float32)
    return Pool(names, names, np.stack(frames), np.stack(truth), weight)


def folds(patients: list[str], count: int) -> list[np.ndarray]:
    """Return for each fold which images it holds out, bool (N,). Patients are not split, and sizes are balanced."""
    sizes = {patient: patients.count(patient) for patient in patients}
    held: list[list[str]] = [[] for _ in range(count)]
    for patient in sorted(sizes, key=lambda p: (-sizes[p], p)):
        min(held, key=lambda group: sum(sizes[p] for p in group)).append(patient)
    return [np.array([patient in group for patient in patients]) for group in held]
