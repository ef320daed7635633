"""Drawing a study's images and their truth from its plan."""

from dataclasses import dataclass

import cv2
import numpy as np

from cxr.base.hdf5 import FRAME_SIZE
from cxr.base.vocabulary import ANATOMY_LABELS, CARDIOMEDIASTINUM, LESIONS, SIDES, side_of
from cxr.geometry.affine import fit_affine, to_frame
from cxr.imaging.phantom.chest import Chest, draw_chest
from cxr.imaging.phantom.plan import ImagePlan, StudyPlan, generator
from cxr.imaging.phantom.prose import Finding
from cxr.painting import lesions

TRUTH_LABELS = (*ANATOMY_LABELS, CARDIOMEDIASTINUM, *LESIONS)
"""Labels of an image's truth masks: anatomy, then for each lesion type the union of its painted lesions."""

EXTENT = (1.0, 1.8)
"""Size of a lesion relative to the default of :func:`cxr.painting.lesions.paint`: it fills much of a zone."""


@dataclass
class PhantomImage:
    """One good frontal image float32 (H, W) in 0..1, bright = dense, and its truth.

    painted: one bool mask (H, W) per finding in the plan, then per unreported lesion; empty if nothing was painted.
    """

    image: np.ndarray
    chest: Chest
    painted: list[np.ndarray]

    def truth(self, plan: StudyPlan) -> np.ndarray:
        """Return the truth in the canonical frame, bool (24, 512, 512) in the order of ``TRUTH_LABELS``."""
        mask_by_label = {name: np.zeros(self.image.shape, bool) for name in TRUTH_LABELS} | self.chest.masks
        for lesion, mask in zip(plan.painted, self.painted, strict=True):
            if lesion in LESIONS:
                mask_by_label[lesion] = mask_by_label[lesion] | mask
        affine = fit_affine(self.image.shape, FRAME_SIZE, "pad")
        masks = [mask_by_label[name].astype(np.uint8) for name in TRUTH_LABELS]
        return np.stack([to_frame(mask, affine, FRAME_SIZE, nearest=True) > 0 for mask in masks])


def _shape(rng: np.random.Generator) -> tuple[int, int]:
    short = int(rng.integers(512, 561))
    long = min(700, round(short * float(rng.choice([1.0, 1.0, 1.1, 1.2, 1.25]))))
    return (long, short) if rng.random() < 0.5 else (short, long)


def _regions(finding: Finding, chest: Chest) -> list[np.ndarray]:
    """Return where to paint the finding: one bool mask per side (edema: one over both lungs)."""
    if finding.place == "retrocardiac":
        heart = cv2.dilate(chest.masks["heart"].astype(np.uint8), np.ones((9, 9), np.uint8)) > 0
        return [chest.masks["left lung base"] & heart]
    labels = finding.labels
    if finding.target == "effusion":  # a meniscus climbs along the whole lung
        labels = tuple(f"{side} lung" for side in SIDES if any(side in label.split() for label in labels))
    # A lesion in a zone does not end exactly at the zone's border: it may reach a little beyond, inside the lung.
    reach = np.ones((2 * round(0.025 * chest.image.shape[0]) + 1, 3), np.uint8)
    masks = []
    for label in labels:
        lung = chest.masks[f"{side_of(label)} lung"]
        masks.append(lung & (cv2.dilate(chest.masks[label].astype(np.uint8), reach) > 0))
    return [np.logical_or.reduce(masks)] if finding.target == "edema" else masks


def draw_frontal(plan: StudyPlan, image: ImagePlan, seed: int) -> PhantomImage:
    """Draw one frontal image of the study with its lesions."""
    rng = generator(seed, image.image_id, "chest")
    large = any(finding.target == "cardiomegaly" for finding in plan.findings)
    chest = draw_chest(rng, _shape(rng), cardiomegaly=large, ap=image.view == "AP")
    picture = chest.image
    painted = []
    for number, finding in enumerate((*plan.findings, *plan.unreported)):
        mask = np.zeros(picture.shape, bool)
        if finding.target == "cardiomegaly":
            mask = chest.masks["heart"].copy()
        elif number not in plan.hidden:
            for side, region in enumerate(_regions(finding, chest)):
                brush = generator(seed, image.image_id, number, side)
                strength = plan.strength * (0.7 if finding.hedge == "weak" else 1.0)
                how = {"midline": chest.midline, "extent": float(brush.uniform(*EXTENT))}
                picture, new = lesions.paint(picture, plan.painted[number], region, brush, strength, **how)
                mask |= new
        painted.append(mask)
    return PhantomImage(picture, chest, painted)


def draw_lateral(seed: int, image_id: str, size: int = 512) -> np.ndarray:
    """Draw a rough lateral view, float32 (size, size); it only tests that lateral views are excluded."""
    rng = generator(seed, image_id, "lateral")
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / size
    body = np.clip(1.2 - np.hypot((x - 0.5) / 0.42, (y - 0.6) / 0.75) ** 4, 0, 1)
    lung = np.clip(1.3 - np.hypot((x - 0.5) / 0.30, (y - 0.42) / 0.33) ** 3, 0, 1)
    spine = np.exp(-(((x - 0.76 - 0.06 * np.sin(3 * y)) / 0.05) ** 2)) * (0.8 + 0.2 * np.sin(y * 120))
    heart = np.clip(1.2 - np.hypot((x - 0.40) / 0.14, (y - 0.58) / 0.15) ** 3, 0, 1)
    picture = 0.75 * body - 0.5 * np.clip(lung, 0, 1) * body + 0.25 * spine * body + 0.3 * heart
    picture = cv2.GaussianBlur(picture.astype(np.float32), (0, 0), 3) + 0.01 * rng.standard_normal(x.shape, np.float32)
    return np.clip(picture, 0.0, 1.0).astype(np.float32)
