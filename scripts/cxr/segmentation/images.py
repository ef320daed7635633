"""Converting images to SAM's input, and masks to targets of its size, as LISA does.

Images: resize the longest side (PIL, bilinear), normalise, pad with zeros at the right and bottom. Masks: resize to the
same size (nearest), pad.
"""

import numpy as np
import torch
from PIL import Image

FITS = ("pad", "stretch")
"""Ways to fit an image into the model's square: keep its aspect ratio (pad) or not (stretch)."""
SAM_MEAN, SAM_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""Mean and standard deviation of red, green and blue on the scale 0..255 (SAM)."""


def fit_shape(shape: tuple[int, int], side: int, fit: str) -> tuple[int, int]:
    """Return the (rows, columns) that an image of ``shape`` has in the square. Raises ValueError for an unknown fit."""
    if fit == "stretch":
        return side, side
    if fit != "pad":
        raise ValueError(f"fit must be one of {', '.join(FITS)}, not {fit!r}")
    scale = side / max(shape)
    return int(shape[0] * scale + 0.5), int(shape[1] * scale + 0.5)


def make_sam_input(image: np.ndarray, side: int, fit: str = "pad") -> tuple[torch.Tensor, tuple[int, int]]:
    """Return SAM's input, float32 (3, side, side), and the (rows, columns) of the image in it.

    ``image``: uint8 (H, W), or (H, W, 3) in RGB.
    """
    rows, columns = fit_shape(image.shape[:2], side, fit)
    fitting = resize_image(image, rows, columns, Image.Resampling.BILINEAR)
    pixels = np.zeros((3, side, side), np.float32)
    write_normalised(fitting, 1.0, SAM_MEAN, SAM_STD, pixels[:, :rows, :columns])
    return torch.from_numpy(pixels), (rows, columns)


def make_sam_levels(image: np.ndarray, side: int, fit: str = "pad") -> tuple[torch.Tensor, tuple[int, int]]:
    """Return a grey image resized and padded, uint8 (side, side), and the (rows, columns) of the image in it.

    It has a twelfth of the bytes of SAM's input; :func:`normalise_levels` completes it on the device.
    """
    rows, columns = fit_shape(image.shape, side, fit)
    levels = np.zeros((side, side), np.uint8)
    levels[:rows, :columns] = resize_image(image, rows, columns, Image.Resampling.BILINEAR)
    return torch.from_numpy(levels), (rows, columns)


def normalise_levels(
    levels: torch.Tensor, content_shapes: list[tuple[int, int]], dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return SAM's input (I, 3, side, side) of levels (I, side, side) from :func:`make_sam_levels`."""
    mean, std = (levels.new_tensor(values, dtype=torch.float32)[:, None, None] for values in (SAM_MEAN, SAM_STD))
    pixels = torch.zeros((len(levels), 3, *levels.shape[1:]), dtype=dtype or torch.float32, device=levels.device)
    for out, level, (rows, columns) in zip(pixels, levels, content_shapes, strict=True):
        out[:, :rows, :columns] = (level[:rows, :columns].float() - mean) / std
    return pixels


def resize_image(image: np.ndarray, rows: int, columns: int, how: Image.Resampling) -> np.ndarray:
    """Return an image, uint8 (H, W) or (H, W, 3), resized by PIL."""
    return np.asarray(Image.fromarray(image).resize((columns, rows), how))


def write_normalised(image: np.ndarray, scale: float, mean: tuple, std: tuple, out: np.ndarray) -> None:
    """Write (image * scale - mean) / std into ``out`` (3, rows, columns); a grey image fills all three channels."""
    levels = np.arange(256, dtype=np.float32) * np.float32(scale)
    for channel in range(3):
        # a table of the 256 levels is several times as fast as arithmetic on every pixel
        table = (levels - np.float32(mean[channel])) / np.float32(std[channel])
        np.take(table, image if image.ndim == 2 else image[..., channel], out=out[channel], mode="clip")


def make_mask_target(mask: np.ndarray, side: int, fit: str) -> np.ndarray:
    """Resize and pad a mask (bool or uint8, foreground > 0) to uint8 (side, side) of 0 and 1."""
    rows, columns = fit_shape(mask.shape, side, fit)
    target = np.zeros((side, side), np.uint8)
    target[:rows, :columns] = resize_image((mask > 0).astype(np.uint8), rows, columns, Image.Resampling.NEAREST)
    return target


def pad_to_square(image: np.ndarray) -> np.ndarray:
    """Pad an image to a centred black square, as in the frames of a padded cohort."""
    rows, columns = image.shape[:2]
    side = max(rows, columns)
    y_start, x_start = (side - rows) // 2, (side - columns) // 2
    sides = ((y_start, side - rows - y_start), (x_start, side - columns - x_start), (0, 0))
    return np.pad(image, sides[: image.ndim])
