"""Affine maps between pixels of the original image and of its frame, the 512 × 512 image that the stages use.

An affine is a float64 (2, 3) matrix from frame to original coordinates: ``x_original = a[0, 0] * x + a[0, 1] * y +
a[0, 2]``. Coordinates are continuous; pixel centres are at integer + 0.5. Frames are upright. If the original is stored
turned or mirrored, the affine includes this turn (:mod:`cxr.geometry.turns`). Affines never shear.
"""

from collections.abc import Sequence

import cv2
import numpy as np

from cxr.geometry.turns import UPRIGHT, Turn

FITS = ("pad", "stretch", "crop")


def fit_affine(shape: tuple[int, int], size: int, fit: str) -> np.ndarray:
    """Return the frame-to-original affine for an image of ``shape`` (rows, columns) in a square frame of ``size`` px.

    ``pad`` keeps the aspect ratio and shows the whole image. ``crop`` keeps the aspect ratio and fills the frame. Both
    are centred. ``stretch`` changes the aspect ratio. Raises ValueError for another ``fit``.
    """
    rows, columns = shape
    if fit == "stretch":
        return np.array([[columns / size, 0.0, 0.0], [0.0, rows / size, 0.0]])
    if fit not in FITS:
        raise ValueError(f"fit must be one of {', '.join(FITS)}, not {fit!r}")
    scale = (max if fit == "pad" else min)(rows, columns) / size
    return np.array([[scale, 0.0, (columns - scale * size) / 2], [0.0, scale, (rows - scale * size) / 2]])


def turn_from_affine(affine: np.ndarray) -> Turn:
    """Return the turn that makes the stored original upright, from its frame-to-original affine."""
    transposed = bool(abs(affine[0, 1]) > abs(affine[0, 0]))
    x, y = (affine[1, 0], affine[0, 1]) if transposed else (affine[0, 0], affine[1, 1])
    return Turn(transposed, bool(x < 0), bool(y < 0))


def affine_to_upright(affine: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the affine from the frame to the upright original, and the shape (rows, columns) of the upright original.

    ``affine`` maps the frame to the stored original, which has ``shape`` (rows, columns).
    """
    turn = turn_from_affine(affine)
    if turn == UPRIGHT:
        return affine, shape
    upright = turn.shape(shape)
    back = cv2.invertAffineTransform(turn.to_stored(upright))
    return _compose(back, affine), upright


def affine_to_stored(affine: np.ndarray, turn: Turn, shape: tuple[int, int]) -> np.ndarray:
    """Return the affine from the frame to the stored original.

    ``affine`` maps the frame to the upright original of ``shape``. ``turn`` makes the stored original upright.
    """
    return affine if turn == UPRIGHT else _compose(turn.to_stored(shape), affine)


def _compose(second: np.ndarray, first: np.ndarray) -> np.ndarray:
    return second[:, :2] @ first + np.pad(second[:, 2:], ((0, 0), (2, 0)))


def frame_scales(affine: np.ndarray) -> np.ndarray:
    """Return the number of original pixels per frame pixel along the frame's x and y axes, float64 (2,)."""
    return np.abs(affine[:, :2]).sum(axis=0)


def to_frame(image: np.ndarray, affine: np.ndarray, size: int, *, nearest: bool = False) -> np.ndarray:
    """Resample an original image (rows, columns) into the (size, size) frame; pixels outside the image are 0.

    Where the image shrinks, the covered pixels are averaged (no aliasing). For masks and labels, set ``nearest``.
    """
    if (turn := turn_from_affine(affine)) != UPRIGHT:
        affine, _ = affine_to_upright(affine, image.shape[:2])
        image = turn.apply(image)
    scale = np.maximum([affine[0, 0], affine[1, 1]], 1.0)
    if scale.max() > 1 and not nearest:
        # warpAffine samples single points, so shrink by area first; an axis that will grow keeps its size.
        shape = (max(1, round(image.shape[1] / scale[0])), max(1, round(image.shape[0] / scale[1])))
        factors = np.array([shape[0] / image.shape[1], shape[1] / image.shape[0]])
        image = cv2.resize(image, shape, interpolation=cv2.INTER_AREA)
        affine = affine * factors[:, None]
    return _warp(image, affine, (size, size), cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR)


def to_original(frame: np.ndarray, affine: np.ndarray, shape: tuple[int, int], *, nearest: bool = True) -> np.ndarray:
    """Resample a mask or map from the frame to an original of ``shape``, bilinearly unless ``nearest`` is true."""
    if (turn := turn_from_affine(affine)) != UPRIGHT:
        affine, upright = affine_to_upright(affine, shape)
        return turn.undo(to_original(frame, affine, upright, nearest=nearest))
    inverse = cv2.invertAffineTransform(np.asarray(affine, np.float64))
    return _warp(frame, inverse, shape, cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR)


def _warp(image: np.ndarray, affine: np.ndarray, shape: tuple[int, int], interpolation: int) -> np.ndarray:
    # OpenCV's pixel centres are integers: x_cv = x - 0.5 in source and target
    shifted = affine.copy()
    shifted[:, 2] += affine[:, :2].sum(axis=1) * 0.5 - 0.5
    flags = interpolation | cv2.WARP_INVERSE_MAP
    warped = cv2.warpAffine(image, shifted, (shape[1], shape[0]), flags=flags, borderMode=cv2.BORDER_REPLICATE)
    # Pixels with their centre outside the image are set to 0; a constant border would darken the outermost pixels.
    for axis, length in ((0, shape[1]), (1, shape[0])):
        along = affine[axis, axis] * (np.arange(length) + 0.5) + affine[axis, 2]
        outside = (along < 0) | (along >= image.shape[1 - axis])
        warped.swapaxes(0, 1 - axis)[outside] = 0
    return warped


def points_to_original(points: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Map (N, 2) points (x, y) from frame to original coordinates."""
    return points @ affine[:, :2].T + affine[:, 2]


def points_to_frame(points: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Map (N, 2) points (x, y) from original to frame coordinates."""
    return points_to_original(points, cv2.invertAffineTransform(np.asarray(affine, np.float64)))


def boxes_to_original(boxes: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Map boxes (N, 4: x1, y1, x2, y2) from frame to original coordinates; x1 <= x2 and y1 <= y2 stay true."""
    corners = points_to_original(np.reshape(boxes, (-1, 2)), affine).reshape(-1, 2, 2)
    reversed_axes = affine[:, :2].sum(axis=1) < 0
    return np.where(reversed_axes, corners[:, ::-1], corners).reshape(-1, 4)


def boxes_to_frame(boxes: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Map boxes (N, 4: x1, y1, x2, y2) from original to frame coordinates; x1 <= x2 and y1 <= y2 stay true."""
    return boxes_to_original(boxes, cv2.invertAffineTransform(np.asarray(affine, np.float64)))


def box_to_frame(box: Sequence[float], affine: np.ndarray) -> np.ndarray:
    """Map one box (x1, y1, x2, y2) from original to frame coordinates, float64 (4,)."""
    return boxes_to_frame(np.array(box, np.float64), affine).ravel()


def boxes_to_upright(boxes: np.ndarray, turn: Turn, shape: tuple[int, int]) -> np.ndarray:
    """Map boxes (N, 4) from a stored image of ``shape`` (rows, columns) to the upright image."""
    return boxes_to_frame(boxes, turn.to_stored(turn.shape(shape)))
