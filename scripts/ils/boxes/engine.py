"""What every detector offers, and the settings it is given."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np


@dataclass(frozen=True)
class Options:
    """Settings of the boxes stage (section ``boxes`` of the configuration)."""

    engine: str
    table: str | None
    table_pixels: str
    floor: float
    nms_iou: float
    max_boxes: int
    excluded_classes: tuple[str, ...] | list[str]


class Detections(NamedTuple):
    """Boxes of one image: float64 (N, 4: x1, y1, x2, y2) in frame pixels, confidences (N,), class names (N)."""

    boxes: np.ndarray
    confidence: np.ndarray
    class_names: list[str]


class BoxEngine(Protocol):
    """A source of boxes. ``class_names`` are all names it may ever give."""

    class_names: tuple[str, ...]

    def detect(self, image: np.ndarray, image_id: str, to_original: np.ndarray) -> Detections:
        """Return the boxes of one frame, best first.

        ``image`` is uint8 (512, 512), ``to_original`` the frame-to-original affine (2, 3). Called from several
        threads at once.
        """
        ...
