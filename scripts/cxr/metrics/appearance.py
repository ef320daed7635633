"""Features that compare a lesion's box with its mirror image, and a two-sample test of real against painted boxes."""

import cv2
import numpy as np

from cxr.base.seeds import stable_hash
from cxr.metrics.edits import mask_from_boxes
from cxr.metrics.labels import auroc

FEATURES = ("contrast", "ratio_fine", "ratio_mid", "ratio_coarse", "core", "spread")
BANDS = ((0.7, 2.0), (2.0, 5.0), (5.0, 12.0))
"""Standard deviations of the two Gaussian blurs whose difference is a detail band, px of the 512 px frame."""
CORE_MARGIN = 4  # width of the rim around a box's core, within the lungs, px
MIN_PIXELS = 400  # minimum number of lung pixels in the box, and in its mirror image
MAX_OVERLAP = 0.10  # maximum fraction of the mirror image that another box may cover
FOLDS = 5  # folds of the cross-validation of :func:`c2st`
RIDGE = 0.01  # ridge penalty of the logistic fit
STEPS = 50  # Newton steps of the logistic fit; it converges in fewer


def lung_midline(lungs: np.ndarray) -> float:
    """Return the column halfway between the centroids of both lungs, px; ``lungs``: bool (2, H, W)."""
    return float(np.mean([np.nonzero(lung)[1].mean() + 0.5 for lung in lungs]))


def lesion_features(image: np.ndarray, box: np.ndarray, lungs: np.ndarray, other_boxes: np.ndarray | None = None):
    """Return a box's six features, float64 (6,) in the order of :data:`FEATURES`, or None if they are undefined.

    ``image`` (512, 512); ``box`` (4,); ``lungs`` bool (2, 512, 512); ``other_boxes`` (N, 4): the image's other boxes.
    Only lung pixels count. The mirror image of the box lies in the other lung.

    * contrast: mean in the box minus mean in the mirror image, in SD of the lungs.
    * core: mean of the box's core minus mean of its rim, in SD of the lungs.
    * ratio_*: logarithm of (SD in the box / SD in the mirror image) of the band-pass filtered image (:data:`BANDS`).
    * spread: logarithm of (SD in the box / SD in the mirror image) of the unfiltered image.

    The features are undefined if the box or its mirror image has fewer than :data:`MIN_PIXELS` pixels, or if other
    boxes cover more than :data:`MAX_OVERLAP` of the mirror image.
    """
    image, both_lungs = np.asarray(image, np.float32), lungs.any(axis=0)
    (x1, y1, x2, y2), width = box, 2 * lung_midline(lungs)
    boxes = box, np.array([width - x2, y1, width - x1, y2]), np.zeros((0, 4)) if other_boxes is None else other_boxes
    box_region, mirrored_region, other_region = (mask_from_boxes(part, both_lungs.shape) & both_lungs for part in boxes)
    taken = mirrored_region & other_region
    if min(box_region.sum(), mirrored_region.sum()) < MIN_PIXELS or taken.sum() > MAX_OVERLAP * mirrored_region.sum():
        return None
    deviation = max(float(image[both_lungs].std()), 1e-6)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * CORE_MARGIN + 1, 2 * CORE_MARGIN + 1))
    core = cv2.erode(box_region.astype(np.uint8), kernel, borderValue=0) > 0
    rim = box_region & ~core
    if not core.any() or not rim.any():
        return None
    bands = (cv2.GaussianBlur(image, (0, 0), fine) - cv2.GaussianBlur(image, (0, 0), far) for fine, far in BANDS)
    textures = [_log_ratio(band[box_region], band[mirrored_region]) for band in bands]
    contrast = float(image[box_region].mean() - image[mirrored_region].mean()) / deviation
    inner = float(image[core].mean() - image[rim].mean()) / deviation
    return np.array([contrast, *textures, inner, _log_ratio(image[box_region], image[mirrored_region])], np.float64)


def _log_ratio(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.log(max(float(first.std()), 1e-6) / max(float(second.std()), 1e-6)))


def c2st(real: np.ndarray, ours: np.ndarray, real_patients: list[str], our_patients: list[str]) -> float:
    """Return the AUROC with which a logistic classifier separates real from painted boxes (0.5: not at all).

    ``real`` (N, K), ``ours`` (M, K): features of the real and the painted boxes. The classifier uses the standardised
    features and their squares, equal total weights of both classes, and the ridge :data:`RIDGE`. A patient's boxes are
    scored by a classifier fitted on the other :data:`FOLDS` - 1 folds of patients. NaN if a fold lacks a class.
    """
    values = np.concatenate([real, ours])
    values = np.concatenate([values, values**2], axis=1)
    label = np.repeat([1.0, 0.0], [len(real), len(ours)])
    # patients are assigned to folds in turn, in the order of their hashes
    patients = sorted({*real_patients, *our_patients}, key=lambda name: (stable_hash("c2st", name), name))
    fold_by_patient = {name: index % FOLDS for index, name in enumerate(patients)}
    fold = np.array([fold_by_patient[name] for name in (*real_patients, *our_patients)])
    scores = np.full(len(label), np.nan)
    for index in range(FOLDS):
        train, test = fold != index, fold == index
        if test.any() and len(set(label[train])) == 2:
            middle, spread = values[train].mean(axis=0), values[train].std(axis=0)
            scaled = (values - middle) / np.where(spread > 0, spread, 1.0)
            weights = _fit_logistic(scaled[train], label[train])
            scores[test] = scaled[test] @ weights[1:] + weights[0]
    return auroc(scores[label == 1], scores[label == 0]) if np.isfinite(scores).all() else float("nan")


def _fit_logistic(values: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Return the weights (K + 1,), the constant first, that minimise the mean log loss plus the ridge penalty."""
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
