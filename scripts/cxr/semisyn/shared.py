"""Names, sizes and messages that the settings, the driver and several stages of SemiSynCXR share."""

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from cxr.base.columns import read_columns
from cxr.base.settings import Limits

FindingName = Annotated[str, Limits(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of a finding, of the seven or of a user's file."""
RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
"""Name of a run of detectors."""
ReferenceName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
CHOSEN_CONFIG = "chosen"
"""Stands for the configuration that each finding has chosen; the dataset uses its images."""
SELECTION = "selection"
"""Value of ``choice``: the stage semisyn_selection chooses the configurations."""
DEFAULT_CONFIG = "lite"
"""Configuration of a finding without a choice."""
WARPED_FINDING = "cardiomegaly"
"""Finding that moves organs: it also changes pixels outside its box, so leak, edges and visible box do not apply."""
TRAIN_SUBSET = "train"
"""The dataset's subset for training."""
RESOURCE_FILES = ("columns/semisyn_editing.toml",)
MEASURES = read_columns("semisyn_editing", "measures")
"""Columns of the boxes of edited images."""
BLURS: dict[str, tuple[str, float, float]] = {
    "none": ("none", 1.0, 4.0),
    "gauss_r0.5": ("gauss", 0.5, 4.0),
    "gauss_r1": ("gauss", 1.0, 4.0),
    "gauss_r2": ("gauss", 2.0, 4.0),
    "ggauss_b4": ("ggauss", 1.0, 4.0),
    "ggauss_b6": ("ggauss", 1.0, 6.0),
    "ggauss_b8": ("ggauss", 1.0, 8.0),
}
"""Appendix E's soft masks: {name: (kind, r, exponent)}. It prints r = 0.1 for the last three, which gives flat masks;
the authors' code has 1.0."""
AP_IOUS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""IoUs over which AP is averaged (paper)."""
AP_RECALLS = 101
"""Recall points over which precision is averaged."""
INTERVAL = 0.95
"""Coverage of all confidence intervals."""
READERS_SEED = 2026
"""Seed of the reader study: its selection of images, each reader's order and the bootstrap."""
PARTS = {"fifth": 5, "half": 2, "all": 1}
"""{size: divisor of the whole dataset}; the paper's 7,000, 17,500 and 35,000 images."""


def images_per_finding(size: int | str, quota: int, num_findings: int) -> int:
    """Return the number of images of each finding in a size. ``quota``: images of each in the whole dataset."""
    return max(1, quota // PARTS[size]) if size in PARTS else int(size) // num_findings


YOLO_DIGITS = 8
"""Decimal digits of YOLO's fractions; with six, a box could move by 5e-4 px of the frame."""


def yolo_line(box: Sequence[float], number: int, shape: Sequence[int]) -> str:
    """Return a YOLO label line: class, centre, width and height as fractions of the image ``shape``, clipped to it."""
    x1, y1, x2, y2 = np.clip(np.array(box) / np.tile(shape[::-1], 2), 0, 1)
    cells = ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)
    return " ".join([str(number), *(f"{cell:.{YOLO_DIGITS}f}" for cell in cells)]) + "\n"


def describe_shortfalls(rows: Iterable[Mapping]) -> list[str]:
    """Return a sentence for each finding with fewer images than requested. ``rows``: of the conservation table."""
    return [
        f"semisyn: {row['finding']} has {row['exported']} of {row['requested']} images: {row['planned']} jobs were "
        f"planned, {row['not_placed']} found no room, {row['not_edited']} were refused after the edit"
        for row in rows
        if row["finding"] != "all" and int(row["exported"]) < int(row["requested"])
    ]


def print_shortfalls(conservation: Path) -> None:
    """Print :func:`describe_shortfalls` of a conservation table to stderr; do nothing if it cannot be read."""
    try:
        with open(conservation, newline="", encoding="utf-8") as file:
            messages = describe_shortfalls(list(csv.DictReader(file, delimiter="\t")))
    except (OSError, KeyError, ValueError):
        return
    for line in messages:
        print(f"cxr-ils: {line} ({conservation})", file=sys.stderr)
