"""Images of the exports: the edited frames, or the originals with the change added, as labelled PNG."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from cxr.base.hdf5 import Shard, Shards
from cxr.base.tables import read_table
from cxr.geometry.affine import boxes_to_original, to_original
from cxr.imaging.frames.decoding import grey_of, of_its_frame
from cxr.semisyn.dataset.columns import CORNERS, SYNTHETIC

FRAME, ORIGINAL = "frame", "original"
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class ExportImage:
    """One edited image of an export. ``facts``: its row of the image table; ``grey`` uint8 (rows, columns).

    ``lesion`` bool (rows, columns); ``boxes``: [((x1, y1, x2, y2) in image pixels, row of the box table)].
    """

    facts: dict
    grey: np.ndarray
    lesion: np.ndarray
    boxes: list[tuple[Box, dict]]

    def png(self) -> bytes:
        """Return the image as PNG; a text chunk says that its finding is synthetic."""
        return encode_png(self.grey, f"{SYNTHETIC}: {self.facts['finding']}, job {self.facts['job_id']}")


def encode_png(grey: np.ndarray, text: str) -> bytes:
    """Return a grey image uint8 (rows, columns) as PNG with ``text`` as its description."""
    info, file = PngInfo(), io.BytesIO()
    info.add_text("Description", text)
    Image.fromarray(grey).save(file, "png", pnginfo=info, compress_level=6)
    return file.getvalue()


@dataclass(frozen=True)
class ImageSource:
    """Iterable of the images of an export.

    images, boxes: the selected rows of the dataset's tables; edited, frames, cohort: paths of shards; pixels: ``frame``
    or ``original``; decoding: settings for decoding the originals.
    """

    images: pl.DataFrame
    boxes: pl.DataFrame
    edited: Sequence[str]
    frames: Sequence[str]
    cohort: Sequence[str]
    pixels: str
    decoding: dict

    def __iter__(self) -> Iterator[ExportImage]:
        """Yield the images in order of job_id."""
        boxes = {job: part.to_dicts() for (job,), part in self.boxes.partition_by("job_id", as_dict=True).items()}
        paths = _path_by_image(self.cohort) if self.pixels == ORIGINAL else {}
        with Shards(self.edited) as edited, Shards(self.frames if self.pixels == ORIGINAL else ()) as frames:
            for facts in self.images.sort("job_id").iter_rows(named=True):
                box_rows = boxes.get(facts["job_id"], [])
                source = frames.shard_of(facts["image_id"]) if self.pixels == ORIGINAL else None
                yield self._picture(facts, edited.shard_of(facts["job_id"]), source, paths, box_rows)

    def _picture(
        self, facts: dict, edited: Shard, sources: Shard | None, paths: Mapping[str, str], boxes: list[dict]
    ) -> ExportImage:
        grey, lesion = edited.get("image", facts["job_id"]), edited.get("lesion", facts["job_id"])
        affine = np.reshape(facts["to_original"], (2, 3))
        corners = np.array([[row[name] for name in CORNERS] for row in boxes], np.float64).reshape(-1, 4)
        if sources is not None:
            shape = (facts["rows"], facts["columns"])
            original = of_its_frame(grey_of(paths[facts["image_id"]], self.decoding), facts["image_id"], shape)
            grey = add_change(original, sources.get("image", facts["image_id"]), grey, affine)
            lesion = to_original(lesion.astype(np.uint8), affine, shape) > 0
            corners = boxes_to_original(corners, affine)
        return ExportImage(
            facts, grey, lesion, [(tuple(box), row) for box, row in zip(corners.tolist(), boxes, strict=True)]
        )


def add_change(original: np.ndarray, frame: np.ndarray, edited: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Return the original image uint8 (rows, columns) plus the change of the frame, resampled to its pixels."""
    change = edited.astype(np.float32) - frame.astype(np.float32)
    large = to_original(change, affine, original.shape, nearest=False)
    return np.clip(np.rint(original + large), 0, 255).astype(np.uint8)


def _path_by_image(cohort: Sequence[str]) -> dict[str, str]:
    tables = [read_table(path).select("image_id", "path") for path in cohort]
    return {image: path for table in tables for image, path in table.iter_rows()}
