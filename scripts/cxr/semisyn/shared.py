"""Names, sizes and messages that the settings, the Snakefile and several stages of SemiSynCXR share."""

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from cxr.base.columns import read_columns
from cxr.base.settings import Limits

FindingName = Annotated[str, Limits(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of a finding: one of the paper's seven, or one of the user's findings file."""
RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
"""Name of a run: the detectors that are trained on the same images with different seeds."""
ReferenceName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
CHOSEN_CONFIG = "chosen"
"""Name that stands for the configuration chosen for each finding. Its images form the dataset."""
SELECTION = "selection"
"""Value of the setting ``choice`` with which the stage semisyn_selection chooses the configurations."""
DEFAULT_CONFIG = "lite"
"""Configuration of a finding that the setting ``choice`` does not list."""
WARPED_FINDING = "cardiomegaly"
"""Finding whose edit changes pixels outside its box, so leak, edges and visible box are not measured."""
TRAIN_SUBSET = "train"
"""Name of the dataset's subset for training."""
RESOURCE_FILES = ("columns/semisyn_editing.toml",)
MEASURES = read_columns("semisyn_editing", "measures")
"""Columns with the measures of an edit, in all tables of the boxes of edited images."""
BLURS: dict[str, tuple[str, float, float]] = {
    "none": ("none", 1.0, 4.0),
    "gauss_r0.5": ("gauss", 0.5, 4.0),
    "gauss_r1": ("gauss", 1.0, 4.0),
    "gauss_r2": ("gauss", 2.0, 4.0),
    "ggauss_b4": ("ggauss", 1.0, 4.0),
    "ggauss_b6": ("ggauss", 1.0, 6.0),
    "ggauss_b8": ("ggauss", 1.0, 8.0),
}
"""Soft masks of the paper's Appendix E, {name: (kind, r, exponent)}. The paper prints r = 0.1 for the last three, which
gives flat masks. The authors' code has 1.0."""
AP_IOUS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""IoU thresholds over which AP is averaged (paper)."""
AP_RECALLS = 101
"""Number of recall points over which AP averages the precision."""
INTERVAL = 0.95
"""Coverage of all confidence intervals."""
READERS_SEED = 2026
"""Seed of the reader study: its selection of images, each reader's order and the bootstrap."""
PARTS = {"fifth": 5, "half": 2, "all": 1}
"""{name of a dataset size: divisor of the whole dataset}. In the paper: 7,000, 17,500 and 35,000 images."""


def images_per_finding(size: int | str, quota: int, num_findings: int) -> int:
    """Return the number of images per finding for a ``size``: a total, "fifth", "half" or "all" (``quota`` images)."""
    return max(1, quota // PARTS[size]) if size in PARTS else int(size) // num_findings


YOLO_DIGITS = 8
"""Decimal digits of fractions in YOLO labels. With six digits, a box could move by 5e-4 px of the frame."""


def yolo_line(box: Sequence[float], number: int, shape: Sequence[int]) -> str:
    """Return a YOLO label line: the class ``number``, then the box's centre x, y, width and height as fractions of the
    image. The box is in pixels and is clipped to the image ``shape`` (rows, columns)."""
    x1, y1, x2, y2 = np.clip(np.array(box) / np.tile(shape[::-1], 2), 0, 1)
    cells = ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)
    return " ".join([str(number), *(f"{cell:.{YOLO_DIGITS}f}" for cell in cells)]) + "\n"


def describe_shortfalls(rows: Iterable[Mapping]) -> list[str]:
    """Return a sentence for each finding with fewer images than requested. ``rows``: rows of conservation.tsv."""
    return [
        f"semisyn: {row['finding']} has {row['exported']} of {row['requested']} images: of {row['planned']} planned "
        f"jobs, {row['not_placed']} had no room for a box and {row['not_edited']} were refused after the edit"
        for row in rows
        if row["finding"] != "all" and int(row["exported"]) < int(row["requested"])
    ]


def print_shortfalls(conservation: Path) -> None:
    """Print the sentences of :func:`describe_shortfalls` to stderr. Do nothing if the table cannot be read."""
    try:
        with open(conservation, newline="", encoding="utf-8") as file:
            messages = describe_shortfalls(list(csv.DictReader(file, delimiter="\t")))
    except (OSError, KeyError, ValueError):
        return
    for line in messages:
        print(f"cxr-ils: {line} ({conservation})", file=sys.stderr)
