"""A detector's file of weights: ONNX with a card in its metadata, which says what the net looks at and tells.

Input ``image`` float32 (1, 1, size, size) in 0..1; outputs ``logit`` (1, classes, cells, cells), calibrated, and
``distance`` (1, groups x 4, cells, cells).
"""

import json
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from cxr.detection.grid import Grid, decode
from cxr.nets import onnx


class Card(NamedTuple):
    """What a file says of itself: its grid, and the terms under which it may be used."""

    grid: Grid
    licence: str

    def notes(self) -> dict[str, str]:
        """Return the card as metadata of a file."""
        return {
            "classes": json.dumps(self.grid.classes),
            "groups": json.dumps(self.grid.groups),
            "size": str(self.grid.size),
            "licence": self.licence,
        }


def read_card(path: str | Path) -> Card:
    """Return the card of a file. Raises UserError for a file that is missing or no ONNX."""
    notes = onnx.metadata(path)
    classes, groups = (tuple(json.loads(notes[name])) for name in ("classes", "groups"))
    return Card(Grid(classes, groups, int(notes["size"])), notes.get("licence", ""))


class Weights:
    """A file of weights that is asked about frames; safe to call from several threads."""

    def __init__(self, path: str | Path):
        self.path, self.grid = path, read_card(path).grid

    def predict(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all boxes (classes, rows, columns, 4) in pixels of a square frame uint8, and confidences of each."""
        size = self.grid.size
        small = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA)
        logit, distance = onnx.run(self.path, image=small.astype(np.float32)[None, None] / 255)
        confidence = 1.0 / (1.0 + np.exp(-logit[0].astype(np.float64)))
        return decode(distance[0], self.grid.groups, image.shape[0]), confidence
