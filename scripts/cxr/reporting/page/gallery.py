"""Draw the page's gallery (findings of each lesion type with their boxes) and its calibration view, which compares the
masks of all threshold sets on some images."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from textwrap import shorten

import numpy as np
import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.exclusions import MAP_STAGES
from cxr.base.hdf5 import Shard
from cxr.base.jobs import progress
from cxr.base.paths import group_by_folder
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.base.vocabulary import LESIONS
from cxr.ils.masks.box_conditions import judge_boxes, thresholds_for
from cxr.plotting.panels import LESION_COLOURS
from cxr.reporting.page import cases, drawing
from cxr.reporting.settings import PageSettings

MAX_SENTENCE_LENGTH = 400
"""Maximum length of a quoted sentence, in characters."""
MAX_BOXES = 8
"""Maximum number of boxes shown per finding: half of them kept and half dropped boxes, if there are enough."""
SIDE = 384
"""Side of the images on the page, in pixels."""


def run(
    *, findings: list[str], masks: list[str], reports: list[str], boxes: list[str], maps: list[str], parts: str,
    cases_lines: str, options: PageSettings, thresholds: list[str], quality: int, seed: int, withheld: bool,
) -> None:  # fmt: skip
    """Draw the gallery of each threshold set and the calibration view, from the stored results only.

    Inputs are lists in the order of the shards. ``findings`` and ``masks`` are in folders named after threshold sets,
    ``maps`` in folders named after the stages :data:`cxr.base.exclusions.MAP_STAGES`. Images are written to the
    folder ``parts``, and the page's texts to ``cases_lines`` (JSON Lines, one line per gallery finding or calibration
    image). If ``withheld``, sentences of reports are omitted.
    """
    tables = {name: list(map(read_table, paths)) for name, paths in group_by_folder(findings).items()}
    stores, map_paths = group_by_folder(masks), group_by_folder(maps)
    lines = []

    def save_part(picture: np.ndarray, name: str) -> str:
        with atomic_file(Path(parts, name)) as temporary:
            temporary.write_bytes(drawing.encode_jpeg(picture, quality))
        return name

    for name in thresholds:
        selected_cases = cases.choose_cases(tables[name], options.gallery, seed)
        numbers: Counter[str] = Counter()
        for shard, row in progress(selected_cases, len(selected_cases), f"gallery {name}"):
            numbers[row["target"]] += 1
            case_maps = [map_paths[stage][shard] for stage in MAP_STAGES]
            line, pictures = _draw_case(name, row, case_maps, boxes[shard], stores[name][shard])
            stem = f"{name}/{row['target']}-{numbers[row['target']]}"
            files = {kind: save_part(picture, f"{stem}-{kind}.jpg") for kind, picture in pictures.items()}
            lines.append(line | files | {"sentence": "" if withheld else _read_sentence(reports[shard], row)})
    images = cases.choose_images(tables, 2 * options.gallery, seed)
    for shard, image_id in progress(images, len(images), "calibration"):
        sets = {name: (tables[name][shard], stores[name][shard]) for name in thresholds}
        page_cells = [
            {"thresholds": name, "picture": save_part(picture, f"calibration/{image_id}-{name}.jpg"), "masks": shares}
            for name, picture, shares in _draw_calibration(image_id, map_paths["frames"][shard], sets)
        ]
        lines.append({"kind": "calibration", "image_id": image_id, "cells": page_cells})
    Path(parts).mkdir(parents=True, exist_ok=True)  # also if there is no case
    write_lines(cases_lines, lines)


def _draw_case(name: str, row: dict, maps: Sequence[str], boxes: str, masks: str) -> tuple[dict, dict]:
    """Draw a finding under the threshold set ``name``. Return its texts and its images, {"mask": …, "boxes": …}."""
    lesion, image_id = row["target"], row["image_id"]
    with ExitStack() as stack:
        frames, organs, anomaly, anatomy = (stack.enter_context(Shard(path)) for path in maps)
        store = stack.enter_context(Shard(masks, key="mask_id"))
        image, zones, lungs = frames.get("image", image_id), anatomy.masks(image_id), organs.masks(image_id)
        settings = json.loads(store.attrs["settings"])
        mask = store.get("mask", row["mask_id"]) if row["mask_id"] is not None else None
        anomalous = anomaly.get("anomaly", image_id)
    taus = thresholds_for(lesion, settings)
    place = np.logical_or.reduce([np.zeros(image.shape, bool), *(zones[label] for label in row["reported"])])
    image_boxes = read_table(boxes).filter((pl.col("image_id") == image_id) & pl.col("is_used")).to_dicts()
    shown_boxes = []
    if row["box_verdicts"]:
        judged = judge_boxes(image_boxes, row["reported"], zones, lungs, anomalous, target=lesion, settings=settings)
        verdicts = row["box_verdicts"]
        order = cases.choose_boxes(verdicts, [box["confidence"] for box in image_boxes], MAX_BOXES)
        shown_boxes = [
            image_boxes[at] | {"number": number, "kept": verdicts[at] == 0}
            | {"reason": cases.describe_verdict(verdicts[at], judged[at], taus)}
            for number, at in enumerate(order, start=1)
        ]  # fmt: skip
    mask_picture, boxes_picture = (drawing.grey_to_rgb(image, SIDE) for _ in range(2))
    if place.any() and lesion != "cardiomegaly":
        drawing.draw_outline(mask_picture, place, drawing.HALO_COLOUR, width=3)
        drawing.draw_outline(mask_picture, place, drawing.LOCATION_COLOUR, width=1)
    if mask is not None:
        drawing.draw_outline(mask_picture, mask, LESION_COLOURS[lesion], fill=0.25)
    drawing.draw_boxes(boxes_picture, shown_boxes, image.shape[0])
    reported = ", ".join(row["reported"]) or "no location"
    title = f"{lesion} ({row['certainty'] or 'no certainty'}), reported: {reported}; {cases.describe_outcome(row)}"
    line = {
        "kind": "case", "thresholds": name, "lesion": lesion, "study_id": row["study_id"], "image_id": image_id,
        "title": title, "sentence": "", "counted": cases.summarize_boxes(row["box_verdicts"], shown_boxes, name),
        "has_mask": mask is not None, "taus": taus, "mask": "", "boxes": "",
        "judged": [{key: box[key] for key in ("number", "class_name", "kept", "reason")} for box in shown_boxes],
    }  # fmt: skip
    return line, {"mask": mask_picture, "boxes": boxes_picture}


def _read_sentence(reports: str, row: dict) -> str:
    line = next(line for line in read_lines(reports) if line["study_id"] == row["study_id"])
    return shorten(line["sentences"][row["sentence_index"] - 1], MAX_SENTENCE_LENGTH, placeholder=" …")


def _draw_calibration(
    image_id: str, frames: str, sets: dict[str, tuple[pl.DataFrame, str]]
) -> Iterator[tuple[str, np.ndarray, str]]:
    """Yield (threshold set, image with the set's masks, text with their areas) for each set.
    ``sets`` is {threshold set: (table of findings, path of the masks)} of the image's shard."""
    with Shard(frames) as shard:
        image = shard.get("image", image_id)
    for name, (findings, masks) in sets.items():
        rows = findings.filter((pl.col("image_id") == image_id) & pl.col("mask_id").is_not_null())
        mask_keys = {(row["target"], row["mask_id"]) for row in rows.to_dicts() if row["target"] != "cardiomegaly"}
        order = sorted(mask_keys, key=lambda pair: (LESIONS.index(pair[0]), pair[1]))
        picture, shares = drawing.grey_to_rgb(image, SIDE), []
        with Shard(masks, key="mask_id") as store:
            for at, (lesion, mask_id) in enumerate(order):
                mask = store.get("mask", mask_id)
                # wider outlines first, so that two equal masks are both visible
                width = 2 + 4 * (len(order) - 1 - at)
                drawing.draw_outline(picture, mask, LESION_COLOURS[lesion], fill=0.2, width=width)
                shares.append(f"{lesion} {100 * float(mask.mean()):.1f} %")
        yield name, picture, ", ".join(shares) or "no mask"
