"""Read references (human annotations of the cohort's images) into the frame, with a reason for each exclusion."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cxr.annotations.regions import UNLISTED, Annotation, image_name, lesion_by_label, read_annotations
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import LESIONS as TYPES
from cxr.base.vocabulary import kinds_under
from cxr.geometry.affine import boxes_to_frame, to_frame
from cxr.geometry.boxes import box_iou
from cxr.geometry.masks import component_boxes
from cxr.metrics.edits import mask_from_boxes

PAINTED = "painted"
"""Format of the embedded cohort's ground truth: masks in the frame, one per lesion type."""
ANY = "any"
"""All lesion types except cardiomegaly, together."""
MAX_ASPECT_DIFFERENCE = 0.02
"""Maximum relative difference in aspect ratio between an annotated image and the cohort's image."""
MIN_COMPONENT_PX = 64
"""Minimum area, in frame pixels, of a mask component that gets its own box, as in :mod:`cxr.ils.masks.settings`."""
RESOURCE_FILES = ("agreement/reasons.toml",)
EXCLUSION_REASONS = tomllib.loads((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
"""{code of the reason why an image or a region is not compared: the reason in words}."""


@dataclass
class Region:
    """One region in the frame: lesion type, mask bool (H, W), boxes float (N, 4: x1, y1, x2, y2)."""

    lesion: str
    mask: np.ndarray
    boxes: np.ndarray
    reader: str = ""


@dataclass
class Reference:
    """The content of one annotation file. ``regions``: {image_id: its annotations}, empty for an image without any."""

    regions: dict[str, list[Annotation]] = field(default_factory=dict)
    lesions: tuple[str, ...] = ()
    """Lesion types that are compared."""
    lesion_by_label: dict[str, str] = field(default_factory=dict)
    """{label: lesion type} of the mapped labels."""
    exclusions: list[tuple[str, str, str]] = field(default_factory=list)
    """(image, reason, detail) of each excluded image or region."""


def load_reference(key: str, kind: str, path: str | Path, classes: Mapping[str, str], ids: str) -> Reference:
    """Read an annotation file and map its labels and images to the cohort's. Raises UserError for an unusable file.

    ``key``: the setting that names the file; ``classes``: {label: lesion type}, which overrides the format's table;
    ``ids``: template of the cohort's image_id.
    """
    if kind == PAINTED:
        with Shard(path) as shard:
            return Reference({name: [] for name in shard.ids}, tuple(name for name in TYPES if name in shard.labels()))
    annotations, image_names = read_annotations(key, path, kind)
    names = lesion_by_label(kind) | {lesion: lesion for lesion in TYPES} | dict(classes)
    reference = Reference({image_name(ids, name): [] for name in sorted(image_names)}, lesion_by_label=names)
    for annotation in annotations:
        image = image_name(ids, annotation.image)
        if annotation.image == UNLISTED:
            reference.exclusions.append(("", "not_listed", annotation.label))
        elif annotation.label not in names:
            reference.exclusions.append((image, "class_not_mapped", annotation.label))
        else:
            reference.regions[image].append(annotation)
    mapped_lesions = {names[annotation.label] for group in reference.regions.values() for annotation in group}
    if not mapped_lesions and (annotations or not image_names):
        raise UserError(f"{key} {str(path)!r} has no label that is a lesion type: map its labels in `classes`")
    # without any region, all images are healthy, and every detected box is false
    reference.lesions = tuple(lesion for lesion in TYPES if lesion in mapped_lesions or not annotations)
    return reference


def region_in_frame(
    annotation: Annotation, lesion: str, affine: np.ndarray, shape: tuple[int, int], size: int
) -> tuple[Region | None, str]:
    """Return an annotation as a region in the frame, or None and the reason.

    ``affine``: the frame-to-original affine (2, 3) of the image, ``shape`` its original (rows, columns). A region drawn
    on a smaller or larger copy of the image is scaled; a mask file of the frame's size is already in the frame.
    """
    try:
        annotated_mask = annotation.mask()
    except ValueError:
        return None, "broken_mask"
    if isinstance(annotation.drawn, Path) and annotated_mask is not None and annotated_mask.shape == (size, size):
        region = Region(lesion, annotated_mask, component_boxes(annotated_mask, MIN_COMPONENT_PX))
        return (region, "") if annotated_mask.any() else (None, "no_area")
    annotated_shape = annotated_mask.shape if annotated_mask is not None else annotation.size or shape
    scale = np.array([shape[1] / annotated_shape[1], shape[0] / annotated_shape[0]])
    if abs(scale[0] / scale[1] - 1) > MAX_ASPECT_DIFFERENCE:
        return None, "other_shape"
    box = np.zeros((0, 4))
    if annotation.box is not None and np.isfinite(annotation.box).all():
        corners = np.sort(np.reshape(annotation.box, (2, 2)), axis=0) * scale
        box = np.clip(boxes_to_frame(corners, affine), 0, size)
    if annotated_mask is not None:
        # the affine from the frame to the annotated image
        mask = to_frame(annotated_mask.astype(np.uint8), affine / scale[:, None], size, nearest=True) > 0
        box = box if len(box) else component_boxes(mask, MIN_COMPONENT_PX)
    else:
        mask = mask_from_boxes(box, (size, size))
    return (Region(lesion, mask, box, annotation.reader), "") if mask.any() else (None, "no_area")


def drop_duplicates(regions: Iterable[Region], same: float) -> tuple[list[Region], int]:
    """Drop regions that another reader also drew (IoU of boxes >= ``same``); return the others and the number dropped.

    The first region in the order of the file is kept. Two regions of the same reader are never duplicates.
    """
    distinct_regions: list[Region] = []
    num_duplicates = 0
    for region in regions:
        is_duplicate = any(
            previous.lesion == region.lesion
            and previous.reader != region.reader
            and len(previous.boxes)
            and len(region.boxes)
            and box_iou(previous.boxes, region.boxes).max() >= same
            for previous in distinct_regions
        )
        num_duplicates += is_duplicate
        if not is_duplicate:
            distinct_regions.append(region)
    return distinct_regions, num_duplicates


def included_lesions(lesion: str) -> tuple[str, ...]:
    """Return a lesion type and its subtypes (Appendix B); for ``any``, all types except cardiomegaly."""
    return tuple(name for name in TYPES if name != "cardiomegaly") if lesion == ANY else (lesion, *kinds_under(lesion))


def union_mask(regions: Iterable[Region], lesion: str, size: int) -> np.ndarray:
    """Return the union, bool (size, size), of all regions of a lesion type and its subtypes."""
    masks = [region.mask for region in regions if region.lesion in included_lesions(lesion)]
    return np.logical_or.reduce(masks) if masks else np.zeros((size, size), bool)
