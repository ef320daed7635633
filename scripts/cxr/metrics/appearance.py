"""What a lesion's box looks like beside the mirrored place of the same film, and whether two kinds of boxes differ.

The six numbers of a box and the test that tells real boxes from painted ones are this project's; they need no model.
"""

import cv2
import numpy as np

from cxr.base.seeds import stable_hash
from cxr.metrics.edits import box_mask
from cxr.metrics.ranking import auroc

FEATURES = ("contrast", "ratio_fine", "ratio_mid", "ratio_coarse", "core", "spread")
BANDS = ((0.7, 2.0), (2.0, 5.0), (5.0, 12.0))
"""Deviations of the two Gaussians whose difference is a band of detail, px of the 512 px frame."""
ERODED = 4
"""Distance from the border of a box's part in the lungs at which its core begins, px."""
FEWEST = 400
"""Pixels that the box and the mirrored place must have inside the lungs."""
OTHER = 0.10
"""Largest fraction of the mirrored place that may lie in another box."""
FOLDS = 5
RIDGE = 0.01
STEPS = 50
"""Newton steps of the logistic fit; it converges in fewer."""


def midline(lungs: np.ndarray) -> float:
    """Return the column halfway between the centroids of the two lungs, bool (2, H, W)."""
    return float(np.mean([np.nonzero(lung)[1].mean() + 0.5 for lung in lungs]))


def mirrored(box: np.ndarray, column: float) -> np.ndarray:
    """Return a box (4,) mirrored about a column."""
    x1, y1, x2, y2 = box
    return np.array([2 * column - x2, y1, 2 * column - x1, y2])


def bands(image: np.ndarray) -> np.ndarray:
    """Return the three bands of detail of a picture, float32 (3, H, W)."""
    image = np.asarray(image, np.float32)
    return np.stack(
        [cv2.GaussianBlur(image, (0, 0), fine) - cv2.GaussianBlur(image, (0, 0), far) for fine, far in BANDS]
    )


def features(image: np.ndarray, box: np.ndarray, lungs: np.ndarray, other_boxes: np.ndarray | None = None):
    """Return the six numbers of a box, float64 (6,) in the order of :data:`FEATURES`, or None where they have no sense.

    ``image`` (512, 512); ``box`` (4,); ``lungs`` bool (2, 512, 512); ``other_boxes`` (N, 4): the film's other boxes.
    contrast: mean inside less mean at the mirrored place; core: mean of the core less mean of the rim, both in
    deviations of the lungs. The ratios: natural logarithm of the deviation of a band of detail inside over that at the
    mirrored place. spread: the same of the picture itself. A place is its part inside the lungs. None: a place has
    under :data:`FEWEST` pixels, or over :data:`OTHER` of the mirrored one lies in another box.
    """
    image, both_lungs = np.asarray(image, np.float32), lungs.any(axis=0)
    box_region = box_mask(box, both_lungs.shape) & both_lungs
    mirrored_region = box_mask(mirrored(box, midline(lungs)), both_lungs.shape) & both_lungs
    taken = mirrored_region & box_mask(np.zeros((0, 4)) if other_boxes is None else other_boxes, both_lungs.shape)
    if min(box_region.sum(), mirrored_region.sum()) < FEWEST or taken.sum() > OTHER * mirrored_region.sum():
        return None
    deviation = max(float(image[both_lungs].std()), 1e-6)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * ERODED + 1, 2 * ERODED + 1))
    core = cv2.erode(box_region.astype(np.uint8), kernel, borderValue=0) > 0
    rim = box_region & ~core
    if not core.any() or not rim.any():
        return None
    textures = [_log_ratio(band[box_region], band[mirrored_region]) for band in bands(image)]
    contrast = float(image[box_region].mean() - image[mirrored_region].mean()) / deviation
    inner = float(image[core].mean() - image[rim].mean()) / deviation
    return np.array([contrast, *textures, inner, _log_ratio(image[box_region], image[mirrored_region])], np.float64)


def _log_ratio(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.log(max(float(first.std()), 1e-6) / max(float(second.std()), 1e-6)))


def largest_gap(first: np.ndarray, second: np.ndarray) -> float:
    """Return the Kolmogorov-Smirnov distance of two samples (N,), (M,): the largest gap of their distributions."""
    at = np.concatenate([first, second])
    shares = [np.searchsorted(np.sort(sample), at, "right") / len(sample) for sample in (first, second)]
    return float(np.abs(shares[0] - shares[1]).max())


def c2st(real: np.ndarray, ours: np.ndarray, real_patients: list[str], our_patients: list[str]) -> float:
    """Return the AUROC with which a logistic test tells real boxes from ours; 0.5 = it cannot.

    ``real`` (N, K) and ``ours`` (M, K): features of boxes, with the patient of each. The test sees the features and
    their squares, standardised, each class with the same weight in all, ridge :data:`RIDGE`. A patient is scored by the
    test that was fitted on the patients of the other :data:`FOLDS` - 1 folds. NaN where a fold lacks a class.
    """
    values = np.concatenate([real, ours])
    values = np.concatenate([values, values**2], axis=1)
    label = np.repeat([1.0, 0.0], [len(real), len(ours)])
    fold = _folds([*real_patients, *our_patients])
    scores = np.full(len(label), np.nan)
    for index in range(FOLDS):
        train, test = fold != index, fold == index
        if test.any() and len(set(label[train])) == 2:
            middle, spread = values[train].mean(axis=0), values[train].std(axis=0)
            scaled = (values - middle) / np.where(spread > 0, spread, 1.0)
            weights = _logistic(scaled[train], label[train])
            scores[test] = scaled[test] @ weights[1:] + weights[0]
    return auroc(scores[label == 1], scores[label == 0]) if np.isfinite(scores).all() else float("nan")


def _folds(patients: list[str]) -> np.ndarray:
    """Return the fold of each row (N,): patients in the order of their hashes take turns."""
    order = sorted(set(patients), key=lambda name: (stable_hash("c2st", name), name))
    turn = {name: index % FOLDS for index, name in enumerate(order)}
    return np.array([turn[name] for name in patients])


def _logistic(values: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Return the weights (K + 1,), the constant first, that make the mean loss plus the ridge smallest."""
    inputs = np.concatenate([np.ones((len(values), 1)), values], axis=1)
    share = np.where(label == 1, 0.5 / (label == 1).sum(), 0.5 / (label == 0).sum())
    ridge = np.diag([0.0, *np.full(values.shape[1], RIDGE)])
    weights = np.zeros(inputs.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        slope = inputs.T @ (share * (chance - label)) + ridge @ weights
        curve = (inputs * (share * chance * (1 - chance))[:, None]).T @ inputs + ridge
        step = np.linalg.solve(curve + 1e-9 * np.eye(len(curve)), slope)
        weights = weights - step
        if np.abs(step).max() < 1e-9:
            break
    return weights
