"""Input and output of a large detection net: preparing images, and selecting among all boxes (PyTorch)."""

from typing import NamedTuple

import cv2
import numpy as np
import torch

from cxr.geometry.boxes import suppress_overlaps


class ScoredBoxes(NamedTuple):
    """Boxes float64 (N, 4: x1, y1, x2, y2), confidences (N,) and class indices (N,)."""

    boxes: np.ndarray
    confidence: np.ndarray
    classes: np.ndarray


def resize_square(frame: np.ndarray, side: int) -> np.ndarray:
    """Return a square frame uint8 (H, H) as (side, side)."""
    shrinks = side < frame.shape[0]
    return cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def stack_input(pictures: list[np.ndarray], channels: int, device: torch.device) -> torch.Tensor:
    """Return grey images uint8 (H, W) as float32 (N, channels, H, W) between 0 and 1."""
    grey = torch.from_numpy(np.stack(pictures)).to(device)
    return (grey.float() / 255)[:, None].expand(-1, channels, -1, -1)


def split_batch(batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Split a batch into what the net processes at once; on a CPU single images, because their number would change the
    last digits."""
    return batch.split(1) if batch.device.type == "cpu" else (batch,)


def boxes_above(boxes: torch.Tensor, scores: torch.Tensor, classes: np.ndarray, floor: float) -> ScoredBoxes:
    """Return each of the boxes (N, 4) once for each class in which its score (N, C) reaches ``floor``. ``classes``
    (C,): the class of each column, -1 for none. Raises ArithmeticError if a value is NaN."""
    if not (torch.isfinite(boxes).all() and torch.isfinite(scores).all()):
        raise ArithmeticError("the net's output is no number")
    rows, columns = (scores >= floor).nonzero(as_tuple=True)
    used = torch.from_numpy(classes >= 0).to(columns.device)[columns]
    rows, columns = rows[used], columns[used]
    confidence = scores[rows, columns].double().cpu().numpy()
    return ScoredBoxes(boxes[rows].double().cpu().numpy(), confidence, classes[columns.cpu().numpy()])


def apply_nms(proposals: ScoredBoxes, iou: float, most: int) -> ScoredBoxes:
    """Apply non-maximum suppression within each class; return the ``most`` confident boxes, best first."""
    kept_indices = suppress_overlaps(*proposals, iou, most)
    return ScoredBoxes(*(part[kept_indices] for part in proposals))


def to_frame_pixels(proposals: ScoredBoxes, scale: float, border: int, side: int) -> ScoredBoxes:
    """Convert pixels of the net's input to frame pixels: subtract ``border``, multiply by ``scale``, clip."""
    return drop_empty(proposals._replace(boxes=np.clip((proposals.boxes - border) * scale, 0.0, side)))


def drop_empty(proposals: ScoredBoxes) -> ScoredBoxes:
    """Return the boxes that have an area."""
    has_area = (proposals.boxes[:, 2] > proposals.boxes[:, 0]) & (proposals.boxes[:, 3] > proposals.boxes[:, 1])
    return ScoredBoxes(*(part[has_area] for part in proposals))
