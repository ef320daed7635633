"""Preparing the input of a large detection net, and selecting among the boxes that it returns (PyTorch)."""

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
    """Resize a square frame, uint8 (H, H), to (side, side)."""
    shrinks = side < frame.shape[0]
    return cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def stack_input(pictures: list[np.ndarray], channels: int, device: torch.device) -> torch.Tensor:
    """Convert grey images, uint8 (H, W), to float32 (N, channels, H, W) in 0..1."""
    grey = torch.from_numpy(np.stack(pictures)).to(device)
    return (grey.float() / 255)[:, None].expand(-1, channels, -1, -1)


def split_batch(batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Split a batch into parts that the net processes at once: single images on a CPU, else the whole batch.

    On a CPU, the number of images would change the last digits of the results.
    """
    return batch.split(1) if batch.device.type == "cpu" else (batch,)


def boxes_above(boxes: torch.Tensor, scores: torch.Tensor, classes: np.ndarray, floor: float) -> ScoredBoxes:
    """Return each box (N, 4) once for every class in which its score (N, C) is at least ``floor``. ``classes`` (C,) is
    the class index of each score column, -1 for an unused column. Raises ArithmeticError for NaN or infinite values."""
    if not (torch.isfinite(boxes).all() and torch.isfinite(scores).all()):
        raise ArithmeticError("an output of the detection net is not a finite number: check its weights and input")
    rows, columns = (scores >= floor).nonzero(as_tuple=True)
    used = torch.from_numpy(classes >= 0).to(columns.device)[columns]
    rows, columns = rows[used], columns[used]
    confidence = scores[rows, columns].double().cpu().numpy()
    return ScoredBoxes(boxes[rows].double().cpu().numpy(), confidence, classes[columns.cpu().numpy()])


def apply_nms(proposals: ScoredBoxes, iou: float, most: int) -> ScoredBoxes:
    """Apply non-maximum suppression within each class. Return at most ``most`` boxes, best first."""
    kept_indices = suppress_overlaps(*proposals, iou, most)
    return ScoredBoxes(*(part[kept_indices] for part in proposals))


def to_frame_pixels(proposals: ScoredBoxes, scale: float, border: int, side: int) -> ScoredBoxes:
    """Convert boxes from pixels of the net's input to pixels of the frame: (box - border) * scale, clipped to 0..side.
    Drop boxes that are empty then."""
    return drop_empty(proposals._replace(boxes=np.clip((proposals.boxes - border) * scale, 0.0, side)))


def drop_empty(proposals: ScoredBoxes) -> ScoredBoxes:
    """Return the boxes that have an area."""
    has_area = (proposals.boxes[:, 2] > proposals.boxes[:, 0]) & (proposals.boxes[:, 3] > proposals.boxes[:, 1])
    return ScoredBoxes(*(part[has_area] for part in proposals))
