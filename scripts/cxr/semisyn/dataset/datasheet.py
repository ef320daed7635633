"""Write the dataset's datasheet (sources, contents, licences and warnings), and draw a page of sample images."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import yaml

from cxr.base.atomic import atomic_file
from cxr.base.hdf5 import Shards
from cxr.base.resources import load_resource
from cxr.base.tables import read_table
from cxr.plotting.encoding import encode_image
from cxr.semisyn.dataset.export import Box, ExportOptions, ImageSource

RESOURCE_FILES = ("weights.yaml",)
WEIGHTS_BY_ENGINE = {"radedit": ("radedit", "sdxl_vae", "biovil_t")}
"""{editing engine: names in resources/weights.yaml of the weights that the engine reads}."""
ENGINE_NOTES = {
    "lite": "`lite` paints and reads no weights.",
    "diffusion": "`diffusion` reads a model of your own: its licence holds for the images too.",
}
WARNING = """\
**The findings are synthetic.** They are not findings of the patients whose X-rays were used, and no image is evidence
of a patient's disease. Every image says so in a PNG text chunk, and every table row in the column `says`.

**Edited images are derived data.** A data-use agreement for the source images also applies to the edited images. For
example, images made from MIMIC-CXR may only be passed on to people who have access to MIMIC-CXR. With
`semisyn.dataset.withhold: true`, exports leave out what `release.withhold` lists (pixels, ids).

**Circularity.** The `lite` detector and the net of the anomaly maps learnt from lesions that an earlier painter of this
project drew. Their scores on images of the engine `lite` say nothing about realism.
"""


def run(
    *, images: str, funnel: str, conservation: str, counts: str, priors: str, sheet: str | Path, source: str,
    labels: dict[str, str],
) -> None:  # fmt: skip
    """Write the datasheet ``sheet`` (Markdown). ``source``: setting cohort.source; ``labels``: {finding: class}."""
    image_table = read_table(images)
    healthy_funnel = markdown_table(read_table(funnel))
    origins = yaml.safe_load(Path(priors).read_text(encoding="utf-8"))["findings"]
    sources = "No image was made."
    if len(image_table):
        images_count, patients = image_table["image_id"].n_unique(), image_table["subject_id"].n_unique()
        most = image_table.group_by("image_id").len()["len"].max()
        sources = (
            f"{len(image_table)} edited images of {images_count} healthy ones of {patients} patients; one image was "
            f"used up to {most} times."
        )
    licences, entries = [], load_resource(RESOURCE_FILES[0])
    for engine in sorted(set(image_table["engine"])):
        licences += [f"* {ENGINE_NOTES[engine]}"] if engine in ENGINE_NOTES else []
        weights = (entries[name] for name in WEIGHTS_BY_ENGINE.get(engine, ()))
        licences += [f"* `{engine}` reads {entry['source']}: {entry['licence']}." for entry in weights]
    parts = [
        "# Datasheet: semi-synthetic X-rays with boxes\n",
        WARNING,
        f"## Sources\n\nCohort: `{source}`. {sources}\n\n{healthy_funnel}",
        f"## Jobs\n\n{markdown_table(read_table(conservation))}",
        f"## Images by finding, side and zone\n\n{markdown_table(read_table(counts))}",
        "## Priors\n\n" + "\n".join(f"* {label}: {origins[name]['origin']}" for name, label in labels.items()) + "\n",
        "## Engines and licences\n\n" + "\n".join(licences) + "\n",
    ]
    with atomic_file(sheet) as temporary:
        temporary.write_text("\n".join(parts), encoding="utf-8", newline="\n")


def markdown_table(table: pl.DataFrame) -> str:
    """Return a table as Markdown; null cells are empty."""
    rows = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * table.width]
    rows += ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in table.iter_rows()]
    return "\n".join(rows) + "\n"


MARGIN = 22
"""Height of the line of text above each row, px."""
SIDE, QUALITY = 320, 85
"""Side of a sample image in px, and quality of the JPEG file in percent."""
AMPLIFIED = 4
"""Factor by which the difference image is amplified."""
BOX, PAPER, INK = (0, 170, 255), 255, (40, 40, 40)
"""Colours of boxes, background and text, each as (blue, green, red) or as a grey level."""


def run_samples(
    *, images: str, boxes: str, edited: Sequence[str], frames: Sequence[str], cohort: Sequence[str], sheet: str | Path,
    options: ExportOptions,
) -> None:  # fmt: skip
    """Write ``sheet`` (JPEG). For each finding it shows one source image, the edited image and their difference."""
    table = read_table(images)
    first = table.filter(table["rank"] == 0)
    source = ImageSource(first, read_table(boxes), edited, frames, cohort, options)
    rows = {}
    with Shards(source.frames) as shards:
        for picture in source:
            facts = picture.facts
            before = shards.get("image", facts["image_id"])
            image_boxes = [box for box, _ in picture.boxes]
            title = f"{options.labels[facts['finding']]}: {facts['prompt']}"
            rows[facts["finding"]] = draw_row(before, picture.grey, image_boxes, title, SIDE)
    row_images = [rows[finding] for finding in options.findings if finding in rows]
    page = np.concatenate(row_images) if row_images else np.full((MARGIN, 3 * SIDE, 3), PAPER, np.uint8)
    with atomic_file(sheet) as temporary:
        temporary.write_bytes(encode_image(".jpg", page, [cv2.IMWRITE_JPEG_QUALITY, QUALITY]))


def draw_row(before: np.ndarray, after: np.ndarray, boxes: Sequence[Box], title: str, side: int) -> np.ndarray:
    """Return a row of the page, uint8 (MARGIN + side, 3 * side, 3). Below the ``title`` are three images of ``side``
    px: the source, the edited image with its boxes, and their difference, which is grey where nothing changed."""
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
