"""Conversion of human annotations in any format to a table of boxes with VinBigData's detector classes."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl

from cxr.annotations.regions import Annotation, image_name, lesion_by_label, read_annotations
from cxr.base.lesions import LESION_TYPES
from cxr.base.vocabulary import BOX_CLASSES
from cxr.geometry.boxes import bounding_box

CLASS_BY_LESION = {lesion.name: lesion.box_class for lesion in LESION_TYPES}
"""{lesion type: nearest detector class}, for human boxes that replace a detector's boxes."""
CONFIDENCE = 1.0  # confidence of a human box
CLASS_BY_NIH_LABEL = {"Mass": "Nodule/Mass", "Nodule": "Nodule/Mass", "Infiltrate": "Infiltration"}
"""{NIH label: detector class} for labels that are not a lesion type, or that have their own detector class."""
NUMBERS = dict.fromkeys(("x1", "y1", "x2", "y2", "confidence"), pl.Float64)
SCHEMA = {"image_id": pl.String, **NUMBERS, "class_name": pl.String}


def detector_class(label: str, kind: str, classes: Mapping[str, str]) -> str | None:
    """Return VinBigData's class for a label in a file of the format ``kind``, such as ``nih``; None if it has none. The
    label is looked up in ``classes``, {label: class}, then in NIH's labels, VinBigData's classes and lesion types."""
    class_by_lower_name = {name.lower(): name for name in BOX_CLASSES}
    detector_class = classes.get(label) or CLASS_BY_NIH_LABEL.get(label) or class_by_lower_name.get(label.lower())
    return detector_class or CLASS_BY_LESION.get(lesion_by_label(kind).get(label, label))


def region_box(region: Annotation) -> tuple[float, float, float, float] | None:
    """Return a region's box, or the bounding box of its mask; None if the region has neither, or an invalid one."""
    if region.box is not None:
        return region.box if np.isfinite(region.box).all() else None
    mask = None
    with suppress(ValueError):
        mask = region.mask()
    if mask is None or not mask.any():
        return None
    x1, y1, x2, y2 = map(float, bounding_box(mask))
    return x1, y1, x2, y2


def read_box_table(path: str | Path, kind: str, image_id: str, classes: Mapping) -> tuple[pl.DataFrame, Counter[str]]:
    """Return the boxes in a file of the format ``kind``, in original pixels, and {reason: number of excluded regions}.
    ``image_id``: pattern for :func:`image_name`. ``classes``: {label: class}. Raises UserError for a damaged file."""
    rows: list = []
    omitted_by_reason: Counter[str] = Counter()
    for region in read_annotations("the file", path, kind)[0]:
        class_name, box = detector_class(region.label, kind, classes), region_box(region)
        if class_name is None:
            omitted_by_reason[f"no class for {region.label}"] += 1
        elif box is None:
            omitted_by_reason["no box"] += 1
        else:
            rows.append((image_name(image_id, region.image), *box, CONFIDENCE, class_name))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort(*SCHEMA), omitted_by_reason
