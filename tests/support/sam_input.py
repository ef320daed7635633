"""SAM's input from an image, grey or in colours, in one step."""

import numpy as np
import torch
from PIL import Image

from cxr.segmentation.images import SAM_MEAN, SAM_STD, fit_shape, resize_image


def make_sam_input(image: np.ndarray, side: int, fit: str = "pad") -> tuple[torch.Tensor, tuple[int, int]]:
    """Return float32 (3, side, side), and the (rows, columns) of the image in it; ``image``: uint8 (H, W) or RGB."""
    rows, columns = fit_shape(image.shape[:2], side, fit)
    fitting = resize_image(image, rows, columns, Image.Resampling.BILINEAR)
    channels = [fitting] * 3 if fitting.ndim == 2 else np.moveaxis(fitting, -1, 0)
    pixels = np.zeros((3, side, side), np.float32)
    for out, channel, mean, std in zip(pixels, channels, SAM_MEAN, SAM_STD, strict=True):
        out[:rows, :columns] = (channel.astype(np.float32) - np.float32(mean)) / np.float32(std)
    return torch.from_numpy(pixels), (rows, columns)
