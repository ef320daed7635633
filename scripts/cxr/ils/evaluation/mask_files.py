"""Read masks from image files and arrays. An unusable file raises :class:`MaskFault`."""

from pathlib import Path

import cv2
import numpy as np

from cxr.base.errors import refuse_machine_fault
from cxr.base.hdf5 import pack
from cxr.geometry.masks import resize_mask


class MaskFault(Exception):
    """Raised for an unusable mask: ``reason`` is one of ``predictions.REASONS``; ``detail`` has no patient text."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def read_mask_image(path: Path, above: int = 0) -> np.ndarray:
    """Return bool (H, W): where a grey image (PNG, JPEG) exceeds ``above``. Raises Fault."""
    if not path.is_file():
        raise MaskFault("missing_mask", path.name)
    encoded = np.fromfile(path, np.uint8)
    image = cv2.imdecode(encoded, cv2.IMREAD_GRAYSCALE) if encoded.size else None
    if image is None:
        raise MaskFault("damaged_mask", path.name)
    return image > above


def read_map(path: Path, threshold: float) -> np.ndarray:
    """Return bool (H, W): where any of the maps in a .npy file, (H, W) or (n, H, W), exceeds ``threshold``.

    n may be 0, which gives an empty mask. Raises Fault.
    """
    try:
        maps = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        refuse_machine_fault(path, error)
        raise MaskFault("damaged_mask" if path.is_file() else "missing_mask", path.name) from None
    if not isinstance(maps, np.ndarray) or maps.dtype.kind not in "fiub" or maps.ndim not in (2, 3):
        raise MaskFault("damaged_mask", f"{path.name}: no map of numbers (H, W) or (n, H, W)")
    if maps.dtype.kind == "f" and not np.isfinite(maps).all():
        raise MaskFault("damaged_mask", f"{path.name}: values that are not numbers")
    return unite_masks(list(np.atleast_3d(maps) > threshold)) if maps.ndim == 3 else maps > threshold


def unite_masks(masks: list[np.ndarray]) -> np.ndarray | None:
    """Return the union of masks of one shape, None without masks. Raises Fault if the shapes differ."""
    if not masks:
        return None
    if len({mask.shape for mask in masks}) > 1:
        raise MaskFault("wrong_size", "the masks of one pair differ in size")
    return np.logical_or.reduce(masks)


def fit_mask(mask: np.ndarray, size: int) -> np.ndarray:
    """Return a square mask packed, uint8 (size, size / 8), resized by nearest neighbour. Raises Fault."""
    if mask.ndim != 2 or mask.shape[0] != mask.shape[1] or not mask.size:
        raise MaskFault("wrong_size", f"the mask is {' x '.join(map(str, mask.shape))}, not a square frame")
    return pack(resize_mask(mask, size))
