"""Data structures that all annotation formats share, and a reader of files in any format."""

import importlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import NamedTuple

import cv2
import numpy as np

from cxr.annotations.formats import FORMATS
from cxr.base.ids import clean_id
from cxr.base.regular_files import read_regular
from cxr.geometry.rle import decode_rle

ENDINGS = (".png", ".jpg", ".jpeg", ".dcm", ".dicom", ".tif", ".tiff", ".bmp")
UNLISTED = "(an image that the file does not list)"  # image name of a region whose image is not listed


@dataclass(frozen=True)
class Annotation:
    """One region that was annotated in an image: a ``box``, a mask in ``mask_source``, or both.

    Coordinates are continuous, in pixels of the image: the pixel (0, 0) covers 0 to 1. Absent fields are "" or None."""

    image: str  # the image's name in the file
    label: str
    box: tuple[float, float, float, float] | None = None  # x1, y1, x2, y2
    mask_source: dict | list | Path | None = (
        None  # run lengths, polygons (COCO), or a mask image (inside where above 0)
    )
    reader: str = ""  # annotator
    size: tuple[int, int] | None = None  # (rows, columns) of the annotated image
    phrase: str = ""  # text about the region, which several regions may share
    split: str = ""  # split as written in the file

    def mask(self) -> np.ndarray | None:
        """Decode the mask, bool (rows, columns); None if the region has none. Raises ValueError if it is unreadable."""
        if isinstance(self.mask_source, dict):
            return decode_rle(self.mask_source)
        if isinstance(self.mask_source, Path):
            pixels = None
            with suppress(OSError):
                data = np.frombuffer(read_regular(self.mask_source), np.uint8)
                pixels = cv2.imdecode(data, cv2.IMREAD_GRAYSCALE) if data.size else None
            if pixels is None:
                raise ValueError(f"{self.mask_source.name} cannot be read")
            return pixels > 0
        if not self.mask_source:
            return None
        if self.size is None:
            raise ValueError("the file states no height and width of an image with polygons")
        return polygon_mask(self.mask_source, self.size)


class Annotations(NamedTuple):
    """Content of an annotation file."""

    regions: list[Annotation]  # in the file's order
    image_names: set[str]  # names of all annotated images, with or without a region


def image_name(template: str, name: str) -> str:
    r"""Return an image's id in the cohort. ``template`` is its pattern, in which {name} stands for the part of ``name``
    after the last / or \, and {stem} for this part without its ending."""
    base = PurePosixPath(clean_id(name.replace("\\", "/")))
    stem = base.stem if base.suffix.lower() in ENDINGS else base.name
    return template.replace("{name}", base.name).replace("{stem}", stem)


def polygon_mask(flat_polygons: list[list[float]], shape: tuple[int, int]) -> np.ndarray:
    """Return the mask, bool ``shape``, of the pixels whose centre is inside a polygon [x1, y1, x2, y2, …]. Raises
    ValueError if a coordinate is not a number."""
    mask, outlines = np.zeros(shape, bool), [np.array([np.nan])]
    with suppress(TypeError):
        outlines = [np.asarray(flat, np.float64).reshape(-1, 2) for flat in flat_polygons]
    if not all(np.isfinite(points).all() for points in outlines):
        raise ValueError("a polygon has a coordinate that is not a number")
    for points in outlines:
        (x1, y1), (x2, y2) = points.T, np.roll(points, -1, axis=0).T
        for row in range(shape[0]):
            y = row + 0.5
            crosses = (y1 <= y) != (y2 <= y)
            x = np.sort(x1[crosses] + (y - y1[crosses]) * (x2 - x1)[crosses] / (y2 - y1)[crosses])
            # even-odd rule: a pixel row is inside from each odd crossing to the next even crossing
            for first, last in np.clip(np.ceil(x - 0.5), 0, shape[1]).astype(int).reshape(-1, 2).tolist():
                mask[row, first:last] = True
    return mask


def format_module(kind: str) -> ModuleType:
    """Return the module of the annotation format ``kind``, such as ``coco``. Raises ValueError for an unknown name."""
    if kind not in FORMATS:
        raise ValueError(f"there is no annotation format {kind!r}: choose one of {', '.join(FORMATS)}")
    return importlib.import_module(f"cxr.annotations.{kind}")


def read_annotations(key: str, path: str | Path, kind: str) -> Annotations:
    """Read a file of the format ``kind``, which the setting ``key`` names. A region whose image the file does not list
    has the image name UNLISTED. Raises UserError for a file that is not of that format."""
    regions, image_names = format_module(kind).read(key, Path(path))
    return Annotations(regions, (image_names | {region.image for region in regions}) - {UNLISTED})


def lesion_by_label(kind: str) -> dict[str, str]:
    """Return {label: its ILS lesion type} of the annotation format ``kind``, without labels that have no type."""
    return getattr(format_module(kind), "LESIONS", {})
