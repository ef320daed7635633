"""Pictures as the bytes of a file."""

from collections.abc import Sequence

import cv2
import numpy as np


def encoded(ending: str, image: np.ndarray, parameters: Sequence[int] = ()) -> bytes:
    """Return a picture, uint8 (H, W) or (H, W, 3: blue, green, red), as the file of an ``ending`` such as ``.png``.

    ``parameters``: OpenCV's parameters of the format and their values. Raises ValueError for a picture that cannot be
    encoded.
    """
    done, data = cv2.imencode(ending, np.ascontiguousarray(image), list(parameters))
    if not done:
        raise ValueError(f"a picture cannot be encoded as {ending}")
    return data.tobytes()
