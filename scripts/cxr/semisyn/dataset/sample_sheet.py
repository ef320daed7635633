"""Draw a sample sheet: for each finding the source, the edited image with its boxes, and the difference."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from cxr.base.atomic import atomic_file
from cxr.base.tables import read_table
from cxr.plotting.encoding import encode_image
from cxr.semisyn.dataset.export import Box, ExportOptions, Shards, select_images

MARGIN = 22
"""Height of a row's line of text, px."""
SIDE, QUALITY = 320, 85
"""Side of an image, px; quality of the JPEG, %."""
AMPLIFIED = 4
"""Factor by which the difference is amplified."""
BOX, PAPER, INK = (0, 170, 255), 255, (40, 40, 40)
"""Colours (blue, green, red)."""


def run(
    *, images: str, boxes: str, edited: Sequence[str], frames: Sequence[str], cohort: Sequence[str], sheet: str | Path,
    options: ExportOptions,
) -> None:  # fmt: skip
    """Draw the first image of each finding to ``sheet`` (JPEG)."""
    table = read_table(images)
    first = table.filter(table["rank"] == 0)
    source = select_images(first, read_table(boxes), edited, frames, cohort, options)
    rows = {}
    with Shards(source.frames) as shards:
        for picture in source:
            facts = picture.facts
            before = shards.shard_of(facts["image_id"]).get("image", facts["image_id"])
            image_boxes = [box for box, _ in picture.boxes]
            title = f"{options.labels[facts['finding']]}: {facts['prompt']}"
            rows[facts["finding"]] = draw_row(before, picture.grey, image_boxes, title, SIDE)
    row_images = [rows[finding] for finding in options.findings if finding in rows]
    page = np.concatenate(row_images) if row_images else np.full((MARGIN, 3 * SIDE, 3), PAPER, np.uint8)
    with atomic_file(sheet) as temporary:
        temporary.write_bytes(encode_image(".jpg", page, [cv2.IMWRITE_JPEG_QUALITY, QUALITY]))


def draw_row(before: np.ndarray, after: np.ndarray, boxes: Sequence[Box], title: str, side: int) -> np.ndarray:
    """Return one row of the sheet, uint8 (side + text, 3 side, 3): source, edited with boxes, difference.

    Middle grey means no change; the difference is amplified by :data:`AMPLIFIED`.
    """
    change = 128 + AMPLIFIED * (after.astype(int) - before.astype(int))
    pictures = (before, after, np.clip(change, 0, 255).astype(np.uint8))
    panels = [cv2.cvtColor(cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA), cv2.COLOR_GRAY2BGR)
             for image in pictures]  # fmt: skip
    scale = side / before.shape[0]
    for box in boxes:
        x1, y1, x2, y2 = (round(edge * scale) for edge in box)
        cv2.rectangle(panels[1], (x1, y1), (x2, y2), BOX, 1)
    text = np.full((MARGIN, 3 * side, 3), PAPER, np.uint8)
    cv2.putText(text, title, (6, MARGIN - 7), cv2.FONT_HERSHEY_SIMPLEX, 0.45, INK, 1, cv2.LINE_AA)
    return np.concatenate([text, np.concatenate(panels, axis=1)])
