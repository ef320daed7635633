"""Converting images to the inputs of SAM and CLIP, and masks to targets of SAM's size, as LISA does.

For SAM, the longest side is resized (PIL, bilinear), grey levels are normalised, and zeros are padded at the right and
bottom. For CLIP, the shortest side is resized (PIL, bicubic), and the centre is cropped. Masks are resized (nearest)
and padded like images for SAM.
"""

import cv2
import numpy as np
import torch
from PIL import Image

SAM_MEAN, SAM_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""Mean and standard deviation of red, green and blue on the scale 0..255 (SAM)."""
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Mean and standard deviation of red, green and blue on the scale 0..1 (CLIP)."""


def fit_shape(shape: tuple[int, int], side: int, fit: str) -> tuple[int, int]:
    """Return an image's (rows, columns) in a square of ``side`` px, which it fills if ``fit`` is stretch."""
    if fit == "stretch":
        return side, side
    scale = side / max(shape)
    return int(shape[0] * scale + 0.5), int(shape[1] * scale + 0.5)


def make_sam_levels(image: np.ndarray, side: int, fit: str = "pad") -> tuple[torch.Tensor, tuple[int, int]]:
    """Resize and pad a grey image; return uint8 (side, side), and the (rows, columns) of the image in it.

    The result has a twelfth of the bytes of SAM's input; :func:`normalise_levels` converts it on the device.
    """
    rows, columns = fit_shape(image.shape, side, fit)
    levels = np.zeros((side, side), np.uint8)
    levels[:rows, :columns] = resize_image(image, rows, columns, Image.Resampling.BILINEAR)
    return torch.from_numpy(levels), (rows, columns)


def normalise_levels(
    levels: torch.Tensor, content_shapes: list[tuple[int, int]], dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Convert levels (I, side, side) to SAM's input (I, 3, side, side). ``content_shapes``: shapes without padding."""
    mean, std = (levels.new_tensor(values, dtype=torch.float32)[:, None, None] for values in (SAM_MEAN, SAM_STD))
    pixels = torch.zeros((len(levels), 3, *levels.shape[1:]), dtype=dtype or torch.float32, device=levels.device)
    for out, level, (rows, columns) in zip(pixels, levels, content_shapes, strict=True):
        out[:, :rows, :columns] = (level[:rows, :columns].float() - mean) / std
    return pixels


def resize_image(image: np.ndarray, rows: int, columns: int, how: Image.Resampling) -> np.ndarray:
    """Resize an image, uint8 (H, W) or (H, W, 3), with PIL."""
    return np.asarray(Image.fromarray(image).resize((columns, rows), how))


def make_mask_target(mask: np.ndarray, side: int, fit: str) -> np.ndarray:
    """Resize and pad a mask (bool or uint8, foreground > 0) to uint8 (side, side), values 0 and 1."""
    rows, columns = fit_shape(mask.shape, side, fit)
    target = np.zeros((side, side), np.uint8)
    target[:rows, :columns] = resize_image((mask > 0).astype(np.uint8), rows, columns, Image.Resampling.NEAREST)
    return target


def pad_to_square(image: np.ndarray) -> np.ndarray:
    """Pad an image with black to a square with the image in its centre, as frames are made with ``fit: pad``."""
    rows, columns = image.shape[:2]
    side = max(rows, columns)
    y_start, x_start = (side - rows) // 2, (side - columns) // 2
    sides = ((y_start, side - rows - y_start), (x_start, side - columns - x_start), (0, 0))
    return np.pad(image, sides[: image.ndim])


def make_clip_input(image: np.ndarray, side: int, fit: str = "pad") -> torch.Tensor:
    """Convert an image to CLIP's input, float32 (3, side, side): its centre, or with ``stretch`` the whole image."""
    rows, columns = image.shape[:2]
    short = min(rows, columns)
    size = [side if length == short or fit == "stretch" else int(side * length / short) for length in (rows, columns)]
    resized_image = resize_image(image, size[0], size[1], Image.Resampling.BICUBIC)
    y_start, x_start = (size[0] - side) // 2, (size[1] - side) // 2
    centre = resized_image[y_start : y_start + side, x_start : x_start + side]
    channels = [centre] * 3 if centre.ndim == 2 else np.moveaxis(centre, -1, 0)
    levels = np.arange(256, dtype=np.float32) * np.float32(1 / 255)
    # a lookup table of 256 levels is several times faster than arithmetic on every pixel
    tables = [(levels - np.float32(mean)) / np.float32(std) for mean, std in zip(CLIP_MEAN, CLIP_STD, strict=True)]
    return torch.from_numpy(np.stack([table[channel] for table, channel in zip(tables, channels, strict=True)]))


def equalise(image: np.ndarray) -> np.ndarray:
    """Equalise the histogram of a grey image (uint8) over all pixels."""
    return cv2.equalizeHist(image)
