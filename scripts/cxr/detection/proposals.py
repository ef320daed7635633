"""What a large net of boxes is given and gives: pictures as its input, and the choice among all boxes (PyTorch)."""

from typing import NamedTuple

import cv2
import numpy as np
import torch

from cxr.geometry.suppression import suppress


class Found(NamedTuple):
    """Boxes float64 (N, 4: x1, y1, x2, y2), confidences (N,) and class indices (N,)."""

    boxes: np.ndarray
    confidence: np.ndarray
    classes: np.ndarray


def resized(frame: np.ndarray, side: int) -> np.ndarray:
    """Return a square frame uint8 (H, H) as (side, side)."""
    shrinks = side < frame.shape[0]
    return cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def as_input(pictures: list[np.ndarray], channels: int, device: torch.device) -> torch.Tensor:
    """Return grey pictures uint8 (H, W) as float32 (N, channels, H, W) between 0 and 1."""
    grey = torch.from_numpy(np.stack(pictures)).to(device)
    return (grey.float() / 255)[:, None].expand(-1, channels, -1, -1)


def parts(batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return a batch as what the net is given at once.

    On a CPU one picture: it gains nothing from more, and how many would change the last digits.
    """
    return batch.split(1) if batch.device.type == "cpu" else (batch,)


def above(boxes: torch.Tensor, scores: torch.Tensor, classes: np.ndarray, floor: float) -> Found:
    """Return each box once for each class in which it reaches ``floor``.

    boxes (N, 4), scores (N, C); ``classes`` (C,): the class that each column stands for, -1 for none.
    Raises ArithmeticError if a number is none.
    """
    if not (torch.isfinite(boxes).all() and torch.isfinite(scores).all()):
        raise ArithmeticError("the net gave what is no number")
    rows, columns = (scores >= floor).nonzero(as_tuple=True)
    used = torch.from_numpy(classes >= 0).to(columns.device)[columns]
    rows, columns = rows[used], columns[used]
    confidence = scores[rows, columns].double().cpu().numpy()
    return Found(boxes[rows].double().cpu().numpy(), confidence, classes[columns.cpu().numpy()])


def thinned(found: Found, iou: float, most: int) -> Found:
    """Return what non-maximum suppression within each class leaves, the ``most`` confident, best first."""
    kept = suppress(*found, iou, most)
    return Found(*(part[kept] for part in found))


def in_frame(found: Found, scale: float, border: int, side: int) -> Found:
    """Turn pixels of a net's picture into those of the frame: less ``border``, times ``scale``, clipped."""
    return solid(found._replace(boxes=np.clip((found.boxes - border) * scale, 0.0, side)))


def solid(found: Found) -> Found:
    """Return the boxes that have an area."""
    kept = (found.boxes[:, 2] > found.boxes[:, 0]) & (found.boxes[:, 3] > found.boxes[:, 1])
    return Found(*(part[kept] for part in found))
