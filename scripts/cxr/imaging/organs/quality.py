"""Checking by the organ masks that an image shows a complete chest in its upright position and with enough contrast.

The paper excludes severe truncation and images without a chest (section D.1), but gives no limits; we chose the limits.
"""

import cv2
import numpy as np

from cxr.base.vocabulary import HEART, LUNGS
from cxr.base.workers import Fault
from cxr.geometry.affine import boxes_to_frame, turn_from_affine
from cxr.geometry.turns import UPRIGHT
from cxr.imaging.organs import upright
from cxr.imaging.organs.settings import OrgansSettings

MIN_LUNG_SHARE = 0.02  # minimum fraction of the image that each lung covers, else no_lungs
MAX_LUNG_RATIO = 5.0  # maximum ratio of the areas of larger and smaller lung mask, else no_lungs
MIN_MIRRORED_SHARE = 0.5  # minimum fraction of the visible lung's mirror image inside the image, for white_out
BORDER_MARGIN = 0.027  # an outline within this distance of the image's edge touches it, frame widths
MAX_BORDER_SHARE = 0.17  # maximum fraction of a lung's outline that touches the image's edge, else cut_off
MIN_CONTRAST = 8.0  # minimum standard deviation inside the chest, grey levels, else extreme_contrast
MAX_SATURATED = 0.5  # maximum fraction of pure black or white pixels in the chest, else extreme_contrast

Rectangle = tuple[float, float, float, float]  # x1, y1, x2, y2 in pixels


def content_rectangle(to_original: np.ndarray, original_shape: tuple[int, int], size: int) -> Rectangle:
    """Return the rectangle that the image, without its padding, covers in a frame of ``size`` px."""
    rows, columns = (float(side) for side in original_shape)
    corners = np.clip(boxes_to_frame(np.array([0.0, 0.0, columns, rows]), to_original), 0, size)
    return tuple(float(value) for value in corners.ravel())


def border_share(mask: np.ndarray, rectangle: Rectangle, margin: float) -> float:
    """Return the fraction of a mask's outline within ``margin`` pixels of the image's edge, 0 for an empty mask.

    The margin is needed because a net trained on complete lungs ends a truncated lung shortly before the edge.
    """
    outline = mask & (cv2.erode(mask.astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=0) == 0)
    ys, xs = np.nonzero(outline)
    if not xs.size:
        return 0.0
    x1, y1, x2, y2 = rectangle
    touches = (xs < x1 + margin) | (xs >= x2 - margin) | (ys < y1 + margin) | (ys >= y2 - margin)
    return float(touches.mean())


def find_posture_fault(
    image: np.ndarray, to_original: np.ndarray, original_shape: tuple[int, int], options: OrgansSettings
) -> Fault | None:
    """Return (reason code, detail) if the image is not an upright, unmirrored chest X-ray, otherwise None."""
    if options.max_mirrored >= 1 and options.min_upright <= 0:
        return None
    x1, y1, x2, y2 = (round(edge) for edge in content_rectangle(to_original, original_shape, image.shape[0]))
    version_probabilities = upright.predict_versions(image[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)])
    # the frames stage has already turned the image by its header, which may be wrong
    after = "" if turn_from_affine(to_original) == UPRIGHT else ", after it was turned as its PatientOrientation says"
    if version_probabilities[1] > options.max_mirrored:
        return "heart_on_right", f"the image looks mirrored, probability {version_probabilities[1]:.3f}{after}"
    if version_probabilities[:2].sum() < options.min_upright:
        return "not_a_radiograph", upright.describe_posture(version_probabilities) + after
    return None


def _lost_lung_fault(image: np.ndarray, lungs: list[np.ndarray], areas: list[float], rectangle: Rectangle) -> Fault:
    lost = int(np.argmin(areas))
    if max(areas) >= MIN_LUNG_SHARE and _is_white_opposite(image, lungs[1 - lost], lost == 1, rectangle):
        return "white_out", f"the {LUNGS[lost]} is not visible, and its side of the chest is white"
    for name, share in zip(LUNGS, areas, strict=True):
        if share < MIN_LUNG_SHARE:
            return "no_lungs", f"{name} covers {share:.3f} of the image"
    return "no_lungs", f"one lung is {max(areas) / min(areas):.1f} times as large as the other"


def _is_white_opposite(image: np.ndarray, visible_lung: np.ndarray, is_right: bool, rectangle: Rectangle) -> bool:
    """Return True if the side opposite the visible lung is in the image and white: if the 25th percentile of its grey
    levels exceeds the lung's 75th percentile. ``is_right``: whether the visible lung is the right one."""
    ys, xs = np.nonzero(visible_lung)
    medial = xs.max() if is_right else xs.min()
    x1, _, x2, _ = rectangle
    mirrored = 2 * medial - xs
    is_inside = (mirrored >= max(0, x1)) & (mirrored < min(x2, image.shape[1]))
    if is_inside.mean() < MIN_MIRRORED_SHARE:
        return False
    opposite = image[ys[is_inside], mirrored[is_inside]]
    return bool(np.percentile(opposite, 25) > np.percentile(image[ys, xs], 75))


def find_fault(
    image: np.ndarray, masks: dict[str, np.ndarray], to_original: np.ndarray, original_shape: tuple[int, int]
) -> Fault | None:
    """Return (reason code, detail) if lungs are missing or cut off or the contrast is extreme, otherwise None."""
    x1, y1, x2, y2 = rectangle = content_rectangle(to_original, original_shape, image.shape[0])
    image_area = max(1.0, (x2 - x1) * (y2 - y1))
    areas = [float(masks[name].sum()) / image_area for name in LUNGS]
    if min(areas) < MIN_LUNG_SHARE or max(areas) > MAX_LUNG_RATIO * min(areas):
        return _lost_lung_fault(image, [masks[name] for name in LUNGS], areas, rectangle)
    right_centre, left_centre = (np.array([axis.mean() for axis in np.nonzero(masks[name])]) for name in LUNGS)
    down, across = left_centre - right_centre
    if across <= abs(down):
        return "no_lungs", "the lungs do not lie side by side"
    for name in LUNGS:
        share = border_share(masks[name], rectangle, BORDER_MARGIN * image.shape[0])
        if share > MAX_BORDER_SHARE:
            return "cut_off", f"{share:.2f} of the outline of the {name} lies at the image's edge"
    values = image[np.logical_or.reduce([masks[name] for name in (*LUNGS, HEART)])]
    if (contrast := float(values.std())) < MIN_CONTRAST:
        return "extreme_contrast", f"the standard deviation inside the chest is {contrast:.1f} grey levels"
    saturated = float(((values == 0) | (values == 255)).mean())
    if saturated > MAX_SATURATED:
        return "extreme_contrast", f"{saturated:.2f} of the chest is pure black or white"
    return None
