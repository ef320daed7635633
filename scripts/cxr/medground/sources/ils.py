"""The source ils: lesion masks of the system ILS, from its files, with lungs and heart as structures."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.base.vocabulary import ORGAN_LABELS, ZONE_LABELS
from cxr.medground.sources.image import Image


def finding_class(word: str, certainty: str) -> str:
    """Return the class of a finding: its word, and whether it is only possible."""
    return word if certainty == "definitive" else f"possible {word}"


def read_ils(
    options: Mapping,
    *,
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
    row_by_image = {row["image_id"]: row for row in read_table(cohort).iter_rows(named=True)}
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
                if options["structures"]:
                    organ_masks = organ.masks(image_id)
                    planes |= {name: organ_masks[name] for name in ORGAN_LABELS}
                zones = zone.masks(image_id)
                yield image_id, Image(
                    image_id, row["subject_id"], row["split"], frame.get("image", image_id), planes,
                    zones={name: zones[name] for name in ZONE_LABELS}, anatomy="found", domain="cxr",
                    to_original=frame.get("to_original", image_id),
                )  # fmt: skip
