"""Augment a detector's training images: small affine transformations, mirroring, exposure, blur and noise."""

from collections.abc import Sequence

import cv2
import numpy as np

MIN_VISIBLE = 0.4  # minimum fraction of a box that must stay in the image; other boxes are dropped


def augment_image(
    image: np.ndarray, boxes: Sequence[tuple], cells: int, rng: np.random.Generator
) -> tuple[np.ndarray, list[tuple]]:
    """Return an augmented copy of a square uint8 image, float32 in 0..1, and the boxes after the same transformation.
    Boxes are (class index, x1, y1, x2, y2), measured in grid cells. The image is ``cells`` cells wide and high."""
    side = image.shape[0]
    angle, scale = rng.normal(0, 5), np.exp(rng.normal(0, 0.10))
    affine = cv2.getRotationMatrix2D((side / 2, side / 2), angle, scale)
    affine[:, 2] += rng.normal(0, 0.04 * side, 2)
    flip = rng.random() < 0.5
    if flip:
        affine = affine @ np.array([[-1, 0, side], [0, 1, 0], [0, 0, 1.0]])
    border = cv2.BORDER_CONSTANT if rng.random() < 0.6 else cv2.BORDER_REPLICATE
    picture = cv2.equalizeHist(image) if rng.random() < 0.12 else image
    new = cv2.warpAffine(picture, affine, (side, side), flags=cv2.INTER_LINEAR, borderMode=border)
    new = new.astype(np.float32) / 255
    new = new ** np.exp(rng.normal(0, 0.25)) * rng.uniform(0.7, 1.15) + rng.uniform(-0.05, 0.1)
    if rng.random() < 0.3:
        new = cv2.GaussianBlur(new, (0, 0), rng.uniform(0.3, 1.0))
    new += rng.normal(0, rng.uniform(0, 0.025), new.shape).astype(np.float32)
    return np.clip(new, 0, 1).astype(np.float32), _warp_boxes(boxes, affine, cells, cells / side)


def _warp_boxes(boxes: Sequence[tuple], affine: np.ndarray, cells: int, scale: float) -> list[tuple]:
    moved_boxes = []
    for label, x1, y1, x2, y2 in boxes:
        # Rotate the midpoints of the sides, because the bounding box of rotated corners would be too large.
        middle = np.array([[x1, (y1 + y2) / 2], [x2, (y1 + y2) / 2], [(x1 + x2) / 2, y1], [(x1 + x2) / 2, y2]])
        turned = middle @ affine[:, :2].T + affine[:, 2] * scale
        low, high = turned.min(axis=0), turned.max(axis=0)
        seen_low, seen_high = np.clip(low, 0, cells), np.clip(high, 0, cells)
        if np.prod(seen_high - seen_low) >= MIN_VISIBLE * np.prod(high - low):
            moved_boxes.append((label, *seen_low, *seen_high))
    return moved_boxes
