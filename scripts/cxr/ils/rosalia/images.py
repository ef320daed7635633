"""Convert images to CLIP's input, and equalise them. SAM's input is made in :mod:`cxr.segmentation`.

The steps are LISA's: resize the shortest side (PIL, bicubic), crop the centre.
"""

import cv2
import numpy as np
import torch
from PIL import Image

from cxr.segmentation.images import resize_image, write_normalised

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Mean and standard deviation of red, green and blue on the scale 0..1 (CLIP)."""


def make_clip_input(image: np.ndarray, side: int, fit: str = "pad") -> torch.Tensor:
    """Return CLIP's input, float32 (3, side, side): the centre of the image, or the whole image with ``stretch``."""
    rows, columns = image.shape[:2]
    short = min(rows, columns)
    if fit == "stretch":
        size = (side, side)
    else:
        size = tuple(side if length == short else int(side * length / short) for length in (rows, columns))
    resized_image = resize_image(image, *size, Image.Resampling.BICUBIC)
    y_start, x_start = (size[0] - side) // 2, (size[1] - side) // 2
    pixels = np.empty((3, side, side), np.float32)
    write_normalised(
        resized_image[y_start : y_start + side, x_start : x_start + side], 1 / 255, CLIP_MEAN, CLIP_STD, pixels
    )
    return torch.from_numpy(pixels)


def equalise(image: np.ndarray) -> np.ndarray:
    """Return a grey image (uint8) with its histogram equalised over all pixels."""
    return cv2.equalizeHist(image)
