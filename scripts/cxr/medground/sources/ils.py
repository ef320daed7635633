"""Results of the system ILS: the source ils, its lesion masks, and the anatomy of other sources' radiographs.

The anatomy of a radiograph (zones, organs, anomaly map) comes from a run over the same images. An image is looked up by
its file, else by its id. Its pixels are compared, so that another image of the same name is never used.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import cv2
import numpy as np

from cxr.base.edited_images import ANOMALY, is_unedited
from cxr.base.errors import StoreError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.base.vocabulary import ORGAN_LABELS, ZONE_LABELS
from cxr.geometry.affine import to_frame
from cxr.medground.logic.facts import read_images
from cxr.medground.sources.image import Image

PROPORTIONS = 0.01
"""Largest relative difference between the aspect ratios of an image and of the one in the results."""
MIN_CORRELATION = 0.95
"""Correlation of two images' pixels from which they are the same radiograph."""
NONE, FOUND, ABSENT, DIFFERENT = "none", "found", "absent", "different"
"""State of an image's anatomy: not requested; found; not in the results; the results have another image of its name."""


def finding_class(word: str, certainty: str) -> str:
    """Return the class of a finding: its word, and whether it is only possible."""
    return word if certainty == "definitive" else f"possible {word}"


def read_ils(
    cohort: str,
    findings: str,
    masks: Sequence[str],
    frames: Sequence[str],
    organs: Sequence[str],
    anatomy: Sequence[str],
) -> Iterator[tuple[str, Image]]:
    """Yield (image_id, image) of every image with zones in some shards, whose files are given in the same order.

    Raises StoreError for a damaged file.
    """
    row_by_image = read_images(cohort)
    stated: dict[str, list[dict]] = {}
    for row in read_table(findings).iter_rows(named=True):
        if row["mask_id"] and row["word"]:
            stated.setdefault(row["image_id"], []).append(row)
    for paths in zip(frames, organs, anatomy, masks, strict=True):
        with ExitStack() as stack:
            frame, organ, zone = (stack.enter_context(Shard(path)) for path in paths[:3])
            lesions = stack.enter_context(Shard(paths[3], key="mask_id"))
            for image_id in sorted(zone.ids):
                row = row_by_image[image_id]
                planes: dict[str, np.ndarray] = {}
                for finding in stated.get(image_id, []):
                    mask = lesions.get("mask", finding["mask_id"])
                    name = finding_class(finding["word"], finding["certainty"])
                    planes[name] = planes.get(name, np.zeros_like(mask)) | mask
                organ_masks, zones = organ.masks(image_id), zone.masks(image_id)
                planes |= {name: organ_masks[name] for name in ORGAN_LABELS}
                yield image_id, Image(
                    image_id, row["subject_id"], row["split"], frame.get("image", image_id), planes,
                    zones={name: zones[name] for name in ZONE_LABELS}, anatomy=FOUND, domain="cxr",
                    to_original=frame.get("to_original", image_id),
                )  # fmt: skip


@dataclass(frozen=True)
class ShardFiles:
    """The files of one shard of ILS; ``anomaly`` is None if the maps are not requested."""

    cohort: str
    frames: str
    organs: str
    anatomy: str
    anomaly: str | None = None


@dataclass
class _Open:
    frames: Shard
    organs: Shard
    anatomy: Shard
    anomaly: Shard | None


@dataclass
class IlsResults:
    """The results of a run, shard by shard. Use inside ``with``. Raises StoreError for a damaged file."""

    parts: Sequence[ShardFiles]
    _by_path: dict[str, str] = field(default_factory=dict)
    _of: dict[str, _Open] = field(default_factory=dict)

    def __enter__(self) -> "IlsResults":
        with ExitStack() as entered:
            for part in self.parts:
                paths = (part.frames, part.organs, part.anatomy)
                shards = [entered.enter_context(Shard(path)) for path in paths]
                maps = entered.enter_context(Shard(part.anomaly)) if part.anomaly else None
                self._of |= dict.fromkeys(shards[-1].ids, _Open(*shards, maps))
                path_table = read_table(part.cohort).select("image_id", "path").sort("image_id")
                for image_id, path in path_table.iter_rows():
                    if image_id in self._of:
                        self._by_path.setdefault(os.path.realpath(path), image_id)
            self._opened = entered.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.__exit__(*error)

    def add_anatomy(self, image: Image, shape: tuple[int, int]) -> Image:
        """Return an image with ``anatomy``, ``zones``, ``organs`` and ``anomaly`` from the results, in its frame.

        ``shape``: (rows, columns) of the image before it was fitted to the frame.
        """
        name = self._by_path.get(os.path.realpath(image.path), image.image_id)
        shards = self._of.get(name)
        if shards is None:
            return replace(image, anatomy=ABSENT)
        affine = _affine(image, shape, shards.frames, name)
        side = image.picture.shape[0]
        if affine is None or not self._is_same(image, to_frame(shards.frames.get("image", name), affine, side)):
            return replace(image, anatomy=DIFFERENT)
        zones, organs = shards.anatomy.masks(name), shards.organs.masks(name)

        def placed(plane: np.ndarray) -> np.ndarray:
            return to_frame(plane.astype(np.uint8), affine, side, nearest=True)

        mapped = shards.anomaly is not None and name in shards.anomaly and not is_unedited(shards.anomaly, name)
        return replace(
            image,
            anatomy=FOUND,
            zones={zone: placed(zones[zone]) > 0 for zone in ZONE_LABELS},
            organs={organ: placed(organs[organ]) > 0 for organ in ORGAN_LABELS},
            anomaly=placed(shards.anomaly.get(ANOMALY, name)) if mapped else None,
        )

    def _is_same(self, image: Image, frame: np.ndarray) -> bool:
        x_min, y_min, x_max, y_max = image.extent
        grey = image.picture if image.picture.ndim == 2 else cv2.cvtColor(image.picture, cv2.COLOR_RGB2GRAY)
        mine, its = (plane[y_min:y_max, x_min:x_max].astype(np.float64).ravel() for plane in (grey, frame))
        if mine.std() == 0 or its.std() == 0:
            return False
        return float(np.corrcoef(mine, its)[0, 1]) >= MIN_CORRELATION


def _affine(image: Image, shape: tuple[int, int], frames: Shard, name: str) -> np.ndarray | None:
    """Return the affine from a source's frame to that of ILS; None if the aspect ratios differ.

    A copy of another size counts as the same image.
    """
    original_shape = frames.get("original_shape", name).astype(np.float64)
    rows, columns = original_shape / np.array(shape)
    if abs(columns / rows - 1) > PROPORTIONS:
        return None
    to_original = np.diag([columns, rows]) @ image.to_original
    back = cv2.invertAffineTransform(frames.get("to_original", name))
    return back @ np.vstack([to_original, [0, 0, 1]])


def take_shard_files(inputs: dict) -> list[ShardFiles]:
    """Remove the files of ILS from a rule's inputs and return them by shard. Raises StoreError if a stage lacks one."""
    names = ("film_cohort", "film_frames", "film_organs", "film_anatomy", "film_anomaly")
    lists = [list(inputs.pop(name, ())) for name in names]
    maps = lists[-1] or [None] * len(lists[0])
    if len({len(paths) for paths in (*lists[:-1], maps)}) > 1:
        raise StoreError("the results of ILS have other shards in some stages: run snakemake anatomy there again")
    return [ShardFiles(*paths) for paths in zip(*lists[:-1], maps, strict=True)]
