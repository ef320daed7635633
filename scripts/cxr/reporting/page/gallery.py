"""Draw the gallery (cases of each lesion type, with a reason for each box) and the calibration view."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

import numpy as np
import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.hdf5 import Shard
from cxr.base.jobs import progress
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.base.vocabulary import LESIONS
from cxr.ils.masks.box_conditions import BoxJudgement, judge_boxes, thresholds_for
from cxr.plotting.palette import LESION_COLOURS
from cxr.plotting.plots import save_jpeg
from cxr.reporting.page import cases, frame_drawing, sheets

MAX_SENTENCE_LENGTH = 400
"""Maximum length of a quoted sentence, in characters."""


MAX_BOXES = 8
"""Boxes shown per finding; half of them are kept boxes, if there are that many."""
SIDE = 384
"""Side of the page's images, px."""


@dataclass(frozen=True)
class GalleryOptions:
    """Numbers of cases and images, and how they are drawn (sections ``page`` and ``figures``)."""

    thresholds: list[str]
    gallery: int
    calibration: int
    quality: int
    dpi: int
    seed: int
    withheld: bool
    """Whether no text of a report may be shown."""


def run(
    *,
    findings: list[str],
    masks: list[str],
    reports: list[str],
    boxes: list[str],
    frames: list[str],
    organs: list[str],
    anomaly: list[str],
    anatomy: list[str],
    gallery: str,
    calibration: str,
    parts: str,
    cases_lines: str,
    options: GalleryOptions,
) -> None:
    """Draw the gallery of each threshold set and the calibration view, from the stored results only.

    Inputs are lists in the order of the shards; ``findings`` and ``masks`` are in a folder named after their threshold
    set. ``gallery`` and ``calibration`` receive sheets, ``parts`` the single images, and ``cases_lines`` (JSON Lines)
    the page's texts, one line per case or calibration image.
    """
    folders = [Path(path) for path in (gallery, calibration, parts)]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    shards = {
        "reports": reports,
        "boxes": boxes,
        "frames": frames,
        "organs": organs,
        "anomaly": anomaly,
        "anatomy": anatomy,
    }
    tables = {name: [read_table(path) for path in _select_set(findings, name)] for name in options.thresholds}
    stores = {name: _select_set(masks, name) for name in options.thresholds}
    lines = []
    for name in options.thresholds:
        selected_cases = cases.choose_cases(tables[name], options.gallery, options.seed)
        page_lines = _draw_cases(name, selected_cases, shards, stores[name], folders[0], folders[2], options)
        lines += list(progress(page_lines, len(selected_cases), f"gallery {name}"))
    images = cases.choose_images(tables, options.calibration, options.seed)
    page_lines = _draw_calibration(images, tables, shards, stores, folders[1], folders[2], options)
    lines += list(progress(page_lines, len(images), "calibration"))
    write_lines(cases_lines, lines)


def _select_set(paths: Sequence[str], name: str) -> list[str]:
    return [path for path in paths if Path(path).parent.name == name]


def _write_bytes(path: Path, data: bytes) -> None:
    with atomic_file(path) as temporary:
        temporary.write_bytes(data)


def _draw_cases(
    name: str,
    selected_cases: Sequence[tuple[int, dict]],
    shards: dict[str, list[str]],
    masks: Sequence[str],
    gallery: Path,
    parts: Path,
    options: GalleryOptions,
) -> Iterator[dict]:
    """Draw the cases of one threshold set; yield one line per case."""
    numbers: dict[str, int] = {}
    for shard, row in selected_cases:
        lesion, image_id = row["target"], row["image_id"]
        numbers[lesion] = numbers.get(lesion, 0) + 1
        stem = f"{lesion}-{numbers[lesion]}"
        with ExitStack() as stack:
            frames, organs, anomaly, anatomy = (
                stack.enter_context(Shard(shards[stage][shard])) for stage in ("frames", "organs", "anomaly", "anatomy")
            )
            store = stack.enter_context(Shard(masks[shard], key="mask_id"))
            image, zones, lungs = frames.get("image", image_id), anatomy.masks(image_id), organs.masks(image_id)
            settings = json.loads(store.attrs["settings"])
            mask = store.get("mask", row["mask_id"]) if row["mask_id"] is not None else None
            anomalous = anomaly.get("anomaly", image_id)
        taus = thresholds_for(lesion, settings)
        place = np.zeros(image.shape, bool)
        for label in row["reported"]:
            place |= zones[label]
        of_image = read_table(shards["boxes"][shard]).filter((pl.col("image_id") == image_id) & pl.col("kept"))
        boxes, judged = of_image.to_dicts(), []
        if row["box_verdicts"]:
            judged = judge_boxes(boxes, row["reported"], zones, lungs, anomalous, target=lesion, settings=settings)
        shown_boxes = _boxes_to_draw(boxes, row["box_verdicts"], judged, taus, MAX_BOXES)
        mask_picture = frame_drawing.grey_to_rgb(image, SIDE)
        if place.any() and lesion != "cardiomegaly":
            frame_drawing.draw_outline(mask_picture, place, frame_drawing.HALO_COLOUR, width=3)
            frame_drawing.draw_outline(mask_picture, place, frame_drawing.LOCATION_COLOUR, width=1)
        if mask is not None:
            frame_drawing.draw_outline(mask_picture, mask, LESION_COLOURS[lesion], fill=0.25)
        boxes_picture = frame_drawing.grey_to_rgb(image, SIDE)
        frame_drawing.draw_boxes(boxes_picture, shown_boxes, image.shape[0])
        reported = ", ".join(row["reported"]) or "no location"
        title = f"{lesion} ({row['certainty'] or 'no certainty'}), reported: {reported}; {cases.describe_outcome(row)}"
        words = [f"{box['number']}  {box['class_name']}: {box['reason']}" for box in shown_boxes] or [
            "no boxes are needed"
        ]
        box_summary = cases.summarize_boxes(row["box_verdicts"], shown_boxes, name)
        words += [box_summary] if box_summary else []
        sheet = sheets.draw_case(f"study {row['study_id']}\n{title}", mask_picture, boxes_picture, words)
        save_jpeg(sheet, gallery / name / f"{stem}.jpg", options.dpi, options.quality)
        for picture, kind in ((mask_picture, "mask"), (boxes_picture, "boxes")):
            _write_bytes(parts / name / f"{stem}-{kind}.jpg", frame_drawing.encode_jpeg(picture, options.quality))
        sentence = _read_sentence(shards["reports"][shard], row, withheld=options.withheld)
        yield {
            "kind": "case", "thresholds": name, "lesion": lesion, "study_id": row["study_id"], "image_id": image_id,
            "title": title, "sentence": sentence, "counted": box_summary, "has_mask": mask is not None,
            "taus": taus, "mask": f"{name}/{stem}-mask.jpg", "boxes": f"{name}/{stem}-boxes.jpg",
            "judged": [{key: box[key] for key in ("number", "class_name", "kept", "reason")} for box in shown_boxes],
        }  # fmt: skip


def _read_sentence(reports: str, row: dict, *, withheld: bool) -> str:
    """Return the sentence that states a finding, truncated if long; "" if report text is withheld."""
    if withheld:
        return ""
    line = next(line for line in read_lines(reports) if line["study_id"] == row["study_id"])
    return shorten(line["sentences"][row["sentence_index"] - 1], MAX_SENTENCE_LENGTH, placeholder=" …")


def _boxes_to_draw(
    boxes: list[dict], verdicts: Sequence[int], judged: Sequence[BoxJudgement], taus: dict[str, float], number: int
) -> list[dict]:
    """Return the boxes of a finding to draw: the stored rows, with number, kept and reason."""
    if not verdicts:
        return []
    shown_boxes = []
    for at in cases.choose_boxes(verdicts, [box["confidence"] for box in boxes], number):
        reason = cases.describe_verdict(verdicts[at], judged[at], taus)
        shown_boxes.append(boxes[at] | {"number": len(shown_boxes) + 1, "kept": verdicts[at] == 0, "reason": reason})
    return shown_boxes


def _draw_calibration(
    images: Sequence[tuple[int, str]],
    tables: dict[str, list[pl.DataFrame]],
    shards: dict[str, list[str]],
    stores: dict[str, list[str]],
    folder: Path,
    parts: Path,
    options: GalleryOptions,
) -> Iterator[dict]:
    """Draw each image under every threshold set; yield one line per image."""
    for shard, image_id in images:
        with Shard(shards["frames"][shard]) as frames:
            image = frames.get("image", image_id)
        cells, shown_lesions = [], set()
        for name in options.thresholds:
            rows = tables[name][shard].filter((pl.col("image_id") == image_id) & pl.col("mask_id").is_not_null())
            picture, mask_shares = frame_drawing.grey_to_rgb(image, SIDE), []
            mask_keys = {(row["target"], row["mask_id"]) for row in rows.to_dicts() if row["target"] != "cardiomegaly"}
            order = sorted(mask_keys, key=lambda pair: (LESIONS.index(pair[0]), pair[1]))
            with Shard(stores[name][shard], key="mask_id") as store:
                for at, (lesion, mask_id) in enumerate(order):
                    mask = store.get("mask", mask_id)
                    # wider outlines first, so that two equal masks are both visible
                    width = 2 + 4 * (len(order) - 1 - at)
                    frame_drawing.draw_outline(picture, mask, LESION_COLOURS[lesion], fill=0.2, width=width)
                    mask_shares.append({"lesion": lesion, "share": round(100 * float(mask.mean()), 1)})
            shown_lesions |= {lesion for lesion, _ in order}
            _write_bytes(
                parts / "calibration" / f"{image_id}-{name}.jpg", frame_drawing.encode_jpeg(picture, options.quality)
            )
            cells.append((name, picture, mask_shares))
        sheet = sheets.draw_calibration(
            f"image {image_id}",
            [(f"{name}: {_format_shares(mask_shares)}", picture) for name, picture, mask_shares in cells],
            [lesion for lesion in LESIONS if lesion in shown_lesions],
        )
        save_jpeg(sheet, folder / f"{image_id}.jpg", options.dpi, options.quality)
        yield {
            "kind": "calibration",
            "image_id": image_id,
            "cells": [
                {
                    "thresholds": name,
                    "picture": f"calibration/{image_id}-{name}.jpg",
                    "masks": _format_shares(mask_shares),
                }
                for name, _, mask_shares in cells
            ],
        }


def _format_shares(mask_shares: Sequence[dict]) -> str:
    return ", ".join(f"{mask_share['lesion']} {mask_share['share']:.1f} %" for mask_share in mask_shares) or "no mask"
