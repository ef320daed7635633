"""Write the tables of the release stage: the pairs as Parquet for Hugging Face ``datasets``, and as COCO.

Images and masks are frames (512 × 512 pixels), so no mask is resampled. For users who have the original images, the
setting ``coco_pixels: original`` maps the COCO masks to the pixels of these images.
"""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from cxr.base.atomic import atomic_folder
from cxr.base.hdf5 import FRAME_SIZE, Shards
from cxr.base.jobs import progress
from cxr.base.vocabulary import LESIONS
from cxr.geometry.affine import to_original
from cxr.instructions import coco
from cxr.reporting.release import parquet
from cxr.reporting.release.parquet import CONFIGS, SPLIT_NAMES, PartWriter, encode_png, image_cell
from cxr.reporting.release.settings import PackageSettings
from cxr.reporting.release.withheld import Withheld, group_units, iterate_studies, read_kept_pairs

COUNTS = "counts.json"
CATEGORIES = coco.make_categories(LESIONS, "lesion")


def run_tables(
    *,
    train: str,
    validate: str,
    test: str,
    filtered: str | Sequence[str],
    salt: str | Sequence[str],
    masks: Sequence[str],
    frames: Sequence[str],
    tables: str,
    options: PackageSettings,
) -> None:
    """Write ``data/``, ``images/`` (Parquet), ``coco/`` and ``counts.json`` into the folder ``tables``.

    ``filtered`` is a file with the test pairs to keep, or empty for all. ``salt`` is the file with the secret key for
    withheld ids, or empty. Only the rows of one Parquet file are in memory at a time.
    """
    withheld, kept_pair_ids = Withheld(options.withhold, salt), read_kept_pairs(filtered)
    counts = {}
    with atomic_folder(tables) as folder, Shards(masks, "mask_id") as mask_shards, Shards(frames) as frame_shards:
        for split, path in {"train": train, "validate": validate, "test": test}.items():
            read = partial(iterate_studies, path, kept_pair_ids, withheld)
            counts[split] = _write_split(folder, split, read, mask_shards, frame_shards, withheld, options)
        text = json.dumps(counts, indent=1, sort_keys=True)
        (folder / COUNTS).write_text(text + "\n", encoding="utf-8")


def _write_split(
    folder: Path, split: str, read, masks: Shards, frames: Shards, withheld: Withheld, options: PackageSettings
) -> dict:
    totals = _count_split(read())
    columns = withheld.published_columns()
    sizes = {"pairs": parquet.PAIRS_PER_FILE, "images": parquet.IMAGES_PER_FILE}
    parts = {
        config: PartWriter(folder / place, split, columns[config], totals[config], sizes[config])
        for config, (place, _) in CONFIGS.items()
    }
    info = {"description": f"{options.name}, {SPLIT_NAMES[split]}", "version": options.version,
            "date_created": options.date, "licence": options.licence, "pixels": options.coco_pixels}  # fmt: skip
    original = options.coco_pixels == "original"
    with ExitStack() as stack:
        writer = stack.enter_context(coco.CocoWriter(folder / "coco" / f"{SPLIT_NAMES[split]}.json", info, CATEGORIES))
        for _, lines in progress(read(), totals["studies"], f"release, {split}"):
            mask_by_id = {line["mask_id"]: masks.get("mask", line["mask_id"]) for line in lines if line["seg"]}
            pictures = {name: encode_png(mask) for name, mask in mask_by_id.items()}
            for line in lines:
                parts["pairs"].add(withheld.publish_line(line) | {"mask": image_cell(pictures.get(line["mask_id"]))})
            for image_id in dict.fromkeys(line["image_id"] for line in lines):
                image_lines = [line for line in lines if line["image_id"] == image_id]
                parts["images"].add(_image_row(image_lines[0], frames, withheld))
                _write_coco(writer, image_lines, mask_by_id, frames, withheld, original)
    for part in parts.values():
        part.flush()
    return totals


def _count_split(study_groups) -> dict:
    fields = {"studies": "study_id", "subjects": "subject_id", "images": "image_id", "masks": "mask_id"}
    ids: dict[str, set] = {name: set() for name in fields}
    pair_counts: dict[str, Counter] = {"types": Counter(), "positive": Counter(), "negative": Counter()}
    for line in (line for _, lines in study_groups for line in lines):
        for name, values in ids.items():
            values.add(line[fields[name]])
        pair_counts["types"][line["type"]] += 1
        pair_counts["positive" if line["seg"] else "negative"][line["target"]] += 1
    numbers = {name: len(values - {None}) for name, values in ids.items()}
    return pair_counts | {"pairs": pair_counts["types"].total()} | numbers


def _image_row(line: dict, frames: Shards, withheld: Withheld) -> dict:
    (rows, columns), affine = read_geometry(frames, line["image_id"])
    row = {name: withheld.publish_id(name, line[name]) for name in ("image_id", "study_id", "subject_id")}
    row |= {"rows": rows, "columns": columns, "to_original": affine.ravel().tolist()}
    return row if withheld.pixels else row | {"image": image_cell(encode_png(frames.get("image", line["image_id"])))}


def _write_coco(
    writer: coco.CocoWriter,
    lines: list[dict],
    masks: dict[str, np.ndarray],
    frames: Shards,
    withheld: Withheld,
    original: bool,
) -> None:
    """Write an image and its annotations, one per distinct (mask, lesion type, location), with the ids of its pairs.
    An image with only negative pairs has no annotation. ``original`` is whether masks are mapped to original pixels."""
    image_id = lines[0]["image_id"]
    (rows, columns), affine = read_geometry(frames, image_id)
    height, width = (rows, columns) if original else (FRAME_SIZE, FRAME_SIZE)
    names = {name: withheld.publish_id(name, lines[0][name]) for name in ("subject_id", "study_id")}
    name = withheld.publish_id("image_id", image_id)
    number = writer.image(
        file_name=f"{name}.png", width=width, height=height, original_width=columns, original_height=rows,
        to_original=affine.tolist(), **names,
    )  # fmt: skip
    annotation_by_mask: dict[str, dict] = {}
    for unit in group_units(lines):
        if unit["mask_id"] not in annotation_by_mask:
            mask = masks[unit["mask_id"]]
            annotation_by_mask[unit["mask_id"]] = coco.mask_annotation(
                map_to_original(mask, frames, image_id) if original else mask
            )
        pair_ids = [withheld.publish_pair_id(pair_id, unit["study_id"]) for pair_id in unit["pair_ids"]]
        writer.add_annotation(
            number, unit["target"], annotation_by_mask[unit["mask_id"]],
            mask_id=withheld.publish_id("mask_id", unit["mask_id"]), location=unit["location"],
            certainty=unit["certainty"], pair_ids=pair_ids,
        )  # fmt: skip


def read_geometry(frames: Shards, image_id: str) -> tuple[tuple[int, int], np.ndarray]:
    """Return (rows, columns) of the original image, and the affine from the frame to it, float64 (2, 3)."""
    rows, columns = (int(side) for side in frames.get("original_shape", image_id))
    return (rows, columns), frames.get("to_original", image_id)


def map_to_original(mask: np.ndarray, frames: Shards, image_id: str) -> np.ndarray:
    """Map a mask from the frame to the original image, bool (rows, columns)."""
    shape, affine = read_geometry(frames, image_id)
    return to_original(mask.astype(np.uint8), affine, shape).astype(bool)
