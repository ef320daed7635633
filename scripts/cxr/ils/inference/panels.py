"""Draw panels of some images with instructions, reference masks and predictions, as in Figures 6, 7 and 12."""

import textwrap
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from cxr.base.hdf5 import Shard, Shards
from cxr.base.jobs import progress
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines
from cxr.base.vocabulary import LESIONS
from cxr.metrics import masks as metrics
from cxr.plotting.overlay import PREDICTED, REFERENCE, draw_mask
from cxr.plotting.plots import save_jpeg

MAX_ROWS = 6  # maximum number of pairs shown per image, positives first
MAX_LETTERS = 52  # maximum number of characters in a line of text
FIELDS = ("pair_id", "image_id", "target", "instruction", "answer", "seg", "mask_id")


class Row(NamedTuple):
    """One pair, as a row of a panel shows it. Masks are bool (H, W) in frame pixels; None for no mask."""

    instruction: str
    answer: str
    model_answer: str
    reference: np.ndarray | None
    predicted: np.ndarray | None


def run_panels(
    *,
    lines: str,
    masks: list[str],
    frames: list[str],
    predictions: str,
    prediction_masks: str,
    panels: str,
    studies: int,
    dpi: int,
    quality: int,
    seed: int,
) -> None:
    """Write a panel <image_id>.jpg for each chosen image of a split (``studies`` is their number) into ``panels``."""
    folder = Path(panels)
    folder.mkdir(parents=True, exist_ok=True)
    pairs_by_image = choose_pairs(lines, studies, seed)
    pair_ids = {row["pair_id"] for rows in pairs_by_image.values() for row in rows}
    entry_by_pair = {entry["pair_id"]: entry for entry in read_lines(predictions) if entry["pair_id"] in pair_ids}
    with (
        Shards(masks, "mask_id") as mask_shards,
        Shards(frames) as frame_shards,
        Shard(prediction_masks, key="pair_id") as predicted_masks,
    ):
        for image_id, rows in progress(pairs_by_image.items(), len(pairs_by_image), "panels"):
            if image_id not in frame_shards:  # its pairs have no predictions either
                continue
            image = frame_shards.get("image", image_id)
            sheet = []
            for pair in rows:
                predicted, entry = None, entry_by_pair.get(pair["pair_id"], {})
                reference = mask_shards.get("mask", pair["mask_id"]) if pair["seg"] else None
                if entry.get("mask") is not None:
                    large = predicted_masks.get("mask", entry["mask"]).astype(np.uint8)
                    predicted = cv2.resize(large, image.shape[::-1], interpolation=cv2.INTER_NEAREST) > 0
                words = entry.get("answer") or entry.get("detail") or entry.get("note") or "(no answer was asked for)"
                sheet.append(Row(pair["instruction"], pair["answer"], words, reference, predicted))
            save_jpeg(draw_panel(image_id, image, sheet), folder / f"{image_id}.jpg", dpi, quality)


def choose_pairs(lines: str, studies: int, seed: int) -> dict[str, list[dict]]:
    """Choose as many images as ``studies`` says, with all lesion types; return {image_id: up to ``MAX_ROWS`` pairs}."""
    targets: dict[str, set[str]] = {}
    for line in read_lines(lines):
        targets.setdefault(line["image_id"], set()).update({line["target"]} if line["seg"] else ())
    candidates = sorted(targets, key=lambda image_id: stable_hash(seed, "inference", image_id))
    lesion_counts: Counter[str] = Counter()
    image_ids: list[str] = []
    while candidates and len(image_ids) < studies:
        rarest = sorted(LESIONS, key=lambda lesion: (lesion_counts[lesion], LESIONS.index(lesion)))
        match = next((i for lesion in rarest for i in candidates if lesion in targets[i]), candidates[0])
        candidates.remove(match)
        image_ids.append(match)
        lesion_counts.update(targets[match])
    pairs: dict[str, list[dict]] = {image_id: [] for image_id in sorted(image_ids)}
    for line in read_lines(lines):
        if line["image_id"] in pairs:
            pairs[line["image_id"]].append({name: line[name] for name in FIELDS})
    return {image_id: sorted(rows, key=lambda row: not row["seg"])[:MAX_ROWS] for image_id, rows in pairs.items()}


def draw_panel(title: str, image: np.ndarray, rows: list[Row]) -> Figure:
    """Return a figure with one row per pair that shows the image, the reference, the prediction and their texts."""
    figure = Figure(figsize=(13, 3.4 * len(rows) + 0.8), layout="constrained")
    grid = figure.subplots(len(rows), 4, squeeze=False, width_ratios=(1, 1, 1, 1.25))
    figure.suptitle(f"image {title}", fontsize=12)
    for axes, row in zip(grid, rows, strict=True):
        draw_mask(axes[0], image, None, REFERENCE)
        draw_mask(axes[1], image, row.reference, REFERENCE)
        draw_mask(axes[2], image, row.predicted, PREDICTED)
        _draw_text(axes[3], row)
    for axes, name in zip(grid[0], ("image", "reference", "prediction"), strict=False):
        axes.set_title(name, fontsize=10)
    handles = [Patch(color=REFERENCE, label="reference"), Patch(color=PREDICTED, label="prediction")]
    grid[0, 3].legend(handles=handles, loc="lower left", fontsize=8)
    return figure


def _draw_text(axes: Axes, row: Row) -> None:
    parts = {
        "instruction": row.instruction,
        "reference": f"{row.answer}{'' if row.reference is not None else '   (no lesion)'}",
        "model": row.model_answer,
        "overlap": describe_overlap(row.reference, row.predicted),
    }
    lines = [textwrap.fill(f"{name}: {words}", MAX_LETTERS, subsequent_indent="   ") for name, words in parts.items()]
    axes.set_axis_off()
    axes.text(0, 1, "\n\n".join(lines), va="top", fontsize=8.5, family="monospace", transform=axes.transAxes)


def describe_overlap(reference: np.ndarray | None, predicted: np.ndarray | None) -> str:
    """Return a short text on two masks: their IoU, or a remark if one or both are empty."""
    empty = predicted is None or not predicted.any()
    if reference is None or not reference.any():
        return "both empty" if empty else "a mask where there is no lesion"
    return "no mask" if empty else f"IoU {metrics.iou(*metrics.overlap(reference, predicted)):.2f}"
