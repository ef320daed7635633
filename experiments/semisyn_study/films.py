"""The real X-rays of the study: images with human boxes of opacities, and healthy images, with their organ masks."""

import sys
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import polars as pl

from cxr.base.paths import RESOURCES
from cxr.base.seeds import stable_hash
from cxr.geometry.affine import fit_affine, points_to_frame, to_frame
from cxr.nets.map_net import MapNet

sys.path.append(str(RESOURCES / "boxes"))  # how the boxes of NIH, RSNA and the outlines of COVID are read
import data as boxed_data

FRAME, FOLDS = 512, 3
LEAST_LUNG = 0.03
"""Minimum fraction of the frame that each lung must cover in an image on which lesions are painted."""
NOTHING = "No Finding"


class Film(NamedTuple):
    """An X-ray: name, patient, frame uint8 (512, 512), boxes (N, 4) in frame pixels, name of its set, and view."""

    name: str
    subject: str
    frame: np.ndarray
    boxes: np.ndarray
    set: str
    view: str

    @property
    def fold(self) -> int:
        """The fold of the film's patient."""
        return stable_hash("fold", self.subject) % FOLDS


class Chest(NamedTuple):
    """An X-ray with masks of right lung, left lung and heart, bool (512, 512), and the box of its image without
    padding."""

    film: Film
    right: np.ndarray
    left: np.ndarray
    heart: np.ndarray
    picture: np.ndarray


class Films(NamedTuple):
    """The X-rays of the study: NIH with boxes, healthy from nih, healthy from nih_more, and another hospital's
    (covid)."""

    boxed: list[Film]
    healthy: list[Film]
    more: list[Film]
    covid: list[Film]


def read_films(folder: Path) -> Films:
    """Read nih, nih_more and covid in a folder. Healthy images have no finding by NIH's labels and RSNA's readers."""
    boxed, healthy = [], []
    for row in _rows(folder / "nih" / "nih.csv"):
        if row["nih_labels"] == NOTHING:
            if row["rsna_class"] in (None, boxed_data.NORMAL):
                healthy.append(_film(folder / "nih", row, None, "nih"))
        elif (boxes := boxed_data.opacity_boxes(row)) is not None:
            boxed.append(_film(folder / "nih", row, boxes, "nih"))
    more = [
        _film(folder / "nih_more", row, None, "nih_more")
        for row in _rows(folder / "nih_more" / "nih_more.csv")
        if row["nih_labels"] == NOTHING and row["rsna_class"] in (None, boxed_data.NORMAL)
    ]
    return Films(boxed, healthy, more, _covid(folder / "covid"))


def _rows(path: Path) -> list[dict]:
    return pl.read_csv(path).sort("image").rows(named=True) if path.is_file() else []


def _film(folder: Path, row: dict, boxes: np.ndarray | None, name: str) -> Film:
    picture = cv2.imread(str(folder / "images" / row["image"]), cv2.IMREAD_GRAYSCALE)
    affine = fit_affine(picture.shape, FRAME, "pad")
    # boxes are in pixels of the size that the table tells
    scale = np.array([picture.shape[1] / row["width"], picture.shape[0] / row["height"]])
    corners = (np.zeros((0, 2)) if boxes is None else boxes.reshape(-1, 2)) * scale
    framed = points_to_frame(corners, affine).reshape(-1, 4)
    return Film(row["image"], str(row["patient_id"]), to_frame(picture, affine, FRAME), framed, name, row["view"] or "")


def _covid(folder: Path) -> list[Film]:
    if not folder.is_dir():
        return []
    films = []
    for labelled in boxed_data.external(folder):
        picture = cv2.imread(str(folder / "images" / labelled.name), cv2.IMREAD_GRAYSCALE)
        frame = to_frame(picture, fit_affine(picture.shape, FRAME, "pad"), FRAME)
        boxes = np.array([box[1:] for box in labelled.boxes]) * boxed_data.CELL
        films.append(Film(labelled.name, labelled.patient, frame, boxes, "covid", ""))
    return films


def read_chests(films: list[Film], folder: Path) -> list[Chest]:
    """Return the X-rays in which the organ net finds lungs and heart; ``folder`` caches the masks, one file per
    image."""
    net, chests_found = MapNet(RESOURCES / "organs" / "lite.onnx"), []
    for film in films:
        path = folder / f"{Path(film.name).stem}.npz"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            masks = dict(zip(net.labels, net.masks(film.frame), strict=True))
            np.savez_compressed(path, **{name.replace(" ", "_"): np.packbits(mask) for name, mask in masks.items()})
        with np.load(path) as packed:
            right, left, heart = (
                np.unpackbits(packed[name]).reshape(FRAME, FRAME).astype(bool)
                for name in ("right_lung", "left_lung", "heart")
            )
        if min(right.sum(), left.sum()) > LEAST_LUNG * FRAME**2 and heart.any():
            chests_found.append(Chest(film, right, left, heart, _covered(film.frame)))
    return chests_found


def _covered(frame: np.ndarray) -> np.ndarray:
    """Return the box (4,) in frame pixels of the image without padding."""
    rows, columns = np.flatnonzero(frame.any(axis=1)), np.flatnonzero(frame.any(axis=0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], np.float64)
