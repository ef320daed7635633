"""What the engines with a YOLO net share: pictures of frames, class names, and the choice among all boxes it gives."""

from typing import NamedTuple

import cv2
import numpy as np
import torch

from cxr.base.errors import UserError
from cxr.base.vocabulary import BOX_CLASSES
from cxr.geometry.suppression import suppress
from cxr.imaging.boxes.engine import CONFIDENCE_DIGITS, PIXEL_DIGITS, Detections
from cxr.nets import tensors


class Found(NamedTuple):
    """Boxes float64 (N, 4: x1, y1, x2, y2), confidences (N,) and indices of ``BOX_CLASSES`` (N,)."""

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


def indices(names: list[str], renamed: dict[str, str], path: str) -> np.ndarray:
    """Return the index in ``BOX_CLASSES`` of each class of a checkpoint, -1 for one that is renamed to "".

    Raises UserError for a name that is no VinBigData class, or a renamed one that the checkpoint does not have.
    """
    if strange := sorted(renamed.keys() - set(names)):
        raise UserError(
            f"boxes.ultralytics.class_names holds {strange[0]!r}, which {path} does not have: "
            f"its classes are {', '.join(names)}"
        )
    called = [renamed.get(name, name) for name in names]
    for name in called:
        if name and name not in BOX_CLASSES:
            raise UserError(
                f"{path} has a class {name!r}, which is none of VinBigData's: say in boxes.ultralytics.class_names "
                f"what it is called there, or '' to leave it out; the names are {', '.join(BOX_CLASSES)}"
            )
    return np.array([BOX_CLASSES.index(name) if name else -1 for name in called])


def above(boxes: torch.Tensor, scores: torch.Tensor, classes: np.ndarray, floor: float) -> Found:
    """Return each box once for each class in which it reaches ``floor``.

    boxes (N, 4), scores (N, C); ``classes`` (C,) as of :func:`indices`. Raises ArithmeticError if a number is none.
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
    return _solid(found._replace(boxes=np.clip((found.boxes - border) * scale, 0.0, side)))


def _solid(found: Found) -> Found:
    """Return the boxes that have an area."""
    kept = (found.boxes[:, 2] > found.boxes[:, 0]) & (found.boxes[:, 3] > found.boxes[:, 1])
    return Found(*(part[kept] for part in found))


def detections(found: Found) -> Detections:
    """Return boxes in the order they are in, with rounded numbers and the names of their classes."""
    found = _solid(found._replace(boxes=found.boxes.round(PIXEL_DIGITS)))
    names = [BOX_CLASSES[index] for index in found.classes]
    return Detections(found.boxes, found.confidence.round(CONFIDENCE_DIGITS), names)


def set_eps(net: torch.nn.Module, eps: float, path: str) -> None:
    """Give every batch normalisation what its checkpoint adds to the variance. Raises UserError for no such number."""
    if not isinstance(eps, float) or not 0 < eps < 1:
        tensors.refuse(path, f"says {eps!r} for what is added to a variance")
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eps = eps
