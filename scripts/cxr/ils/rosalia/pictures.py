"""Convert images to the inputs of SAM and CLIP, and masks to the square of the comparison.

The steps are LISA's. SAM's input: resize the longest side (PIL, bilinear), normalise, pad with zeros at the right and
bottom. CLIP's input: resize the shortest side (bicubic), crop the centre. Masks: resize like SAM's input (nearest),
pad.
"""

import cv2
import numpy as np
import torch
from PIL import Image

FITS = ("pad", "stretch")
"""How an image that is not square fits the model's square: with its aspect kept (pad), or not (stretch)."""
SAM_MEAN, SAM_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""Mean and standard deviation of red, green and blue on the scale 0..255 (SAM)."""
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""The same on the scale 0..1 (CLIP)."""


def fitted(shape: tuple[int, int], side: int, fit: str) -> tuple[int, int]:
    """Return the (rows, columns) of an image of ``shape`` in the square. Raises ValueError for an unknown fit."""
    if fit == "stretch":
        return side, side
    if fit != "pad":
        raise ValueError(f"fit must be one of {', '.join(FITS)}, not {fit!r}")
    scale = side / max(shape)
    return int(shape[0] * scale + 0.5), int(shape[1] * scale + 0.5)


def sam_pixels(image: np.ndarray, side: int, fit: str = "pad") -> tuple[torch.Tensor, tuple[int, int]]:
    """Return SAM's input, float32 (3, side, side), and the (rows, columns) of it that show the image.

    ``image``: uint8 (H, W), or (H, W, 3) in RGB.
    """
    rows, columns = fitted(image.shape[:2], side, fit)
    resized = _resized(image, rows, columns, Image.Resampling.BILINEAR)
    pixels = np.zeros((3, side, side), np.float32)
    _normalise(resized, 1.0, SAM_MEAN, SAM_STD, pixels[:, :rows, :columns])
    return torch.from_numpy(pixels), (rows, columns)


def sam_levels(image: np.ndarray, side: int, fit: str = "pad") -> tuple[torch.Tensor, tuple[int, int]]:
    """Return SAM's input for a grey image before normalising, uint8 (side, side): a twelfth of the bytes.

    :func:`normalised` does the rest on the device.
    """
    rows, columns = fitted(image.shape, side, fit)
    levels = np.zeros((side, side), np.uint8)
    levels[:rows, :columns] = _resized(image, rows, columns, Image.Resampling.BILINEAR)
    return torch.from_numpy(levels), (rows, columns)


def normalised(levels: torch.Tensor, shown: list[tuple[int, int]], dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the result of :func:`sam_pixels`, (I, 3, side, side), from levels (I, side, side) and shown parts."""
    mean, std = (levels.new_tensor(values, dtype=torch.float32)[:, None, None] for values in (SAM_MEAN, SAM_STD))
    pixels = torch.zeros((len(levels), 3, *levels.shape[1:]), dtype=dtype or torch.float32, device=levels.device)
    for out, level, (rows, columns) in zip(pixels, levels, shown, strict=True):
        out[:, :rows, :columns] = (level[:rows, :columns].float() - mean) / std
    return pixels


def clip_pixels(image: np.ndarray, side: int, fit: str = "pad") -> torch.Tensor:
    """Return CLIP's input, float32 (3, side, side): the centre of the image, or the whole image with ``stretch``."""
    rows, columns = image.shape[:2]
    short = min(rows, columns)
    if fit == "stretch":
        size = (side, side)
    else:
        size = tuple(side if length == short else int(side * length / short) for length in (rows, columns))
    resized = _resized(image, *size, Image.Resampling.BICUBIC)
    top, left = (size[0] - side) // 2, (size[1] - side) // 2
    pixels = np.empty((3, side, side), np.float32)
    _normalise(resized[top : top + side, left : left + side], 1 / 255, CLIP_MEAN, CLIP_STD, pixels)
    return torch.from_numpy(pixels)


def _resized(image: np.ndarray, rows: int, columns: int, how: Image.Resampling) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((columns, rows), how))


def _normalise(image: np.ndarray, scale: float, mean: tuple, std: tuple, out: np.ndarray) -> None:
    """Write (image * scale - mean) / std into ``out`` (3, rows, columns); a grey image fills all three channels."""
    levels = np.arange(256, dtype=np.float32) * np.float32(scale)
    for channel in range(3):
        # a table of the 256 levels is several times as fast as arithmetic on every pixel
        table = (levels - np.float32(mean[channel])) / np.float32(std[channel])
        np.take(table, image if image.ndim == 2 else image[..., channel], out=out[channel], mode="clip")


def mask_target(mask: np.ndarray, side: int, fit: str) -> np.ndarray:
    """Return a mask (bool or uint8, foreground > 0) in the square as uint8 (side, side) of 0 and 1."""
    rows, columns = fitted(mask.shape, side, fit)
    target = np.zeros((side, side), np.uint8)
    target[:rows, :columns] = _resized((mask > 0).astype(np.uint8), rows, columns, Image.Resampling.NEAREST)
    return target


def centred(image: np.ndarray) -> np.ndarray:
    """Return the image in the centre of a black square, as in the frames of a padded cohort."""
    rows, columns = image.shape[:2]
    side = max(rows, columns)
    top, left = (side - rows) // 2, (side - columns) // 2
    sides = ((top, side - rows - top), (left, side - columns - left), (0, 0))
    return np.pad(image, sides[: image.ndim])


def equalise(image: np.ndarray) -> np.ndarray:
    """Return a grey image (uint8) with its histogram equalised over all pixels."""
    return cv2.equalizeHist(image)
