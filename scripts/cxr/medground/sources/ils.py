"""Results of ILS, the lesion segmentation of this project. Its lesion masks are the source ``ils``, and its anatomy
(lung zones, organs, anomaly map) serves other sources of radiographs.

The anatomy comes from an ILS run over the same images. An image is looked up by its file, otherwise by its id. The
pixels are compared, so that a different image with the same name is never used."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import cv2
import numpy as np

from cxr.base.edited_images import ANOMALY, is_unedited
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.base.vocabulary import ORGAN_LABELS, ZONE_LABELS
from cxr.geometry.affine import to_frame
from cxr.medground.logic.facts import group_by_image, read_images
from cxr.medground.sources.image import Image, ImageReader

PROPORTIONS = 0.01  # largest relative difference between the aspect ratios of an image and of the one in the results
MIN_CORRELATION = 0.95  # correlation of two images' pixels from which they are the same radiograph
ANATOMY_FOUND, ABSENT, DIFFERENT = "found", "absent", "different"  # values of ``Image.anatomy``


def finding_class(word: str, certainty: str) -> str:
    """Return the class of a finding, such as "edema", or "possible edema" unless ``certainty`` is definitive."""
    return word if certainty == "definitive" else f"possible {word}"


def read_ils(cohort: str, findings: str, **shards: Sequence[str]) -> Iterator[tuple[str, ImageReader]]:
    """Yield (image id, function that reads the image) for every image with lung zones. ``cohort`` and ``findings``:
    paths of tables. ``shards``: {stage: paths of its shards} for the stages frames, organs, anatomy and masks."""
    row_by_image, all_findings = read_images(cohort), read_table(findings).iter_rows(named=True)
    findings_by_image = group_by_image(row for row in all_findings if row["mask_id"] and row["word"])
    for paths in zip(*(shards[name] for name in ("frames", "organs", "anatomy", "masks")), strict=True):
        with ExitStack() as stack:
            frames, organs, anatomy = (stack.enter_context(Shard(path)) for path in paths[:3])
            lesions = stack.enter_context(Shard(paths[3], key="mask_id"))
            for image_id in sorted(anatomy.ids):
                row, image_findings = row_by_image[image_id], findings_by_image[image_id]
                yield image_id, partial(_image, row, image_findings, lesions, frames, organs, anatomy)


def _image(row: Mapping, findings: list[dict], lesions: Shard, frames: Shard, organs: Shard, anatomy: Shard) -> Image:
    image_id, masks = row["image_id"], {}
    for finding in findings:
        mask = lesions.get("mask", finding["mask_id"])
        name = finding_class(finding["word"], finding["certainty"])
        masks[name] = masks.get(name, np.zeros_like(mask)) | mask
    organ_masks, zones = organs.masks(image_id), anatomy.masks(image_id)
    return Image(
        image_id, row["subject_id"], row["split"], frames.get("image", image_id),
        masks | {name: organ_masks[name] for name in ORGAN_LABELS},
        zones={name: zones[name] for name in ZONE_LABELS}, anatomy=ANATOMY_FOUND, domain="cxr",
        to_original=frames.get("to_original", image_id),
    )  # fmt: skip


class IlsResults:
    """Results of an ILS run over another source's radiographs. ``inputs``: {"film_{stage}": files of this ILS stage}.
    The files stay open until ``stack`` is closed."""

    def __init__(self, inputs: Mapping, stack: ExitStack):
        self._image_by_path: dict[str, str] = {}
        self._shards_by_image: dict[str, dict[str, Shard]] = {}
        stages = [name for name in ("frames", "organs", "anatomy", "anomaly") if f"film_{name}" in inputs]
        for cohort, *paths in zip(*(inputs[f"film_{name}"] for name in ("cohort", *stages)), strict=True):
            shards = {name: stack.enter_context(Shard(path)) for name, path in zip(stages, paths, strict=True)}
            self._shards_by_image |= dict.fromkeys(shards["anatomy"].ids, shards)
            for image_id, path in read_table(cohort).select("image_id", "path").sort("image_id").iter_rows():
                if image_id in self._shards_by_image:
                    self._image_by_path.setdefault(os.path.realpath(path), image_id)

    def add_anatomy(self, image: Image, shape: tuple[int, int]) -> Image:
        """Return the image with zones, organs and anomaly map of the ILS results, resampled to the image's frame.
        Otherwise only ``anatomy`` is set: to ABSENT if they lack the radiograph, to DIFFERENT if they have another
        image of its name. ``shape``: (rows, columns) before the image was fitted to the frame."""
        name = self._image_by_path.get(os.path.realpath(image.path), image.image_id)
        if name not in self._shards_by_image:
            return replace(image, anatomy=ABSENT)
        shards, side = self._shards_by_image[name], image.picture.shape[0]
        rows, columns = shards["frames"].get("original_shape", name).astype(np.float64) / np.array(shape)
        if abs(columns / rows - 1) > PROPORTIONS:  # a copy of another size counts as the same image
            return replace(image, anatomy=DIFFERENT)
        to_original = np.vstack([np.diag([columns, rows]) @ image.to_original, [0, 0, 1]])
        affine = cv2.invertAffineTransform(shards["frames"].get("to_original", name)) @ to_original
        x_min, y_min, x_max, y_max = image.extent
        frame = to_frame(shards["frames"].get("image", name), affine, side)
        planes = cv2.cvtColor(image.picture, cv2.COLOR_RGB2GRAY), frame
        first, second = (plane[y_min:y_max, x_min:x_max].astype(np.float64).ravel() for plane in planes)
        if not first.std() or not second.std() or np.corrcoef(first, second)[0, 1] < MIN_CORRELATION:
            return replace(image, anatomy=DIFFERENT)
        zones, organs, maps = shards["anatomy"].masks(name), shards["organs"].masks(name), shards.get("anomaly")

        def placed(plane: np.ndarray) -> np.ndarray:
            return to_frame(plane.astype(np.uint8), affine, side, nearest=True)

        is_mapped = maps is not None and name in maps and not is_unedited(maps, name)
        placed_zones = {zone: placed(zones[zone]) > 0 for zone in ZONE_LABELS}
        placed_organs = {organ: placed(organs[organ]) > 0 for organ in ORGAN_LABELS}
        anomaly = placed(maps.get(ANOMALY, name)) if is_mapped else None
        return replace(image, anatomy=ANATOMY_FOUND, zones=placed_zones, organs=placed_organs, anomaly=anomaly)
