"""A detector's weights file: ONNX, with a :class:`Card` as metadata. The net's input ``image`` is float32 (1, 1, size,
size) in 0..1. The outputs are ``logit`` (1, classes, cells, cells), calibrated, and ``distance`` (1, groups x 4, cells,
cells)."""

import json
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from cxr.base.errors import UserError
from cxr.detection.grid import Grid, decode_boxes
from cxr.nets import onnx


class Card(NamedTuple):
    """Facts about the detector in a weights file: its classes and input size (``grid``), and the licence."""

    grid: Grid
    licence: str

    def notes(self) -> dict[str, str]:
        """Return the metadata for an ONNX file, {key: text}."""
        return {
            "classes": json.dumps(self.grid.classes),
            "groups": json.dumps(self.grid.groups),
            "size": str(self.grid.size),
            "licence": self.licence,
        }


def read_card(path: str | Path) -> Card:
    """Read the card of a weights file. Raises UserError if the file is missing, is not ONNX or has no card."""
    notes = onnx.read_metadata(path)
    if missing := [name for name in ("classes", "groups", "size") if name not in notes]:
        raise UserError(f"{path} lacks the metadata {missing[0]!r}: make it with scripts/tools/detector_onnx.py")
    classes, groups = (tuple(json.loads(notes[name])) for name in ("classes", "groups"))
    return Card(Grid(classes, groups, int(notes["size"])), notes.get("licence", ""))


class DetectorWeights:
    """A detector that predicts with a weights file; safe to call from several threads."""

    def __init__(self, path: str | Path):
        self.path, self.grid = path, read_card(path).grid

    def predict(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (boxes (classes, rows, columns, 4) in px, confidences (classes, rows, columns)) of a square uint8
        image, one box for each class and grid cell."""
        size = self.grid.size
        small = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA)
        logit, distance = onnx.run_model(self.path, image=small.astype(np.float32)[None, None] / 255)
        confidence = 1.0 / (1.0 + np.exp(-logit[0].astype(np.float64)))
        return decode_boxes(distance[0], self.grid.groups, image.shape[0]), confidence
