"""Read files of human annotations (*references*), map their regions into the frame, and list what is excluded."""

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
"""Format of the ground truth of the project's own synthetic cohort: one mask per lesion type, in the frame."""
ANY = "any"
"""Name of the union of all lesion types except cardiomegaly."""
MAX_ASPECT_DIFFERENCE = 0.02
"""Maximum relative difference in aspect ratio between an annotated image and the cohort's image."""
MIN_COMPONENT_PX = 64
"""Minimum area, in frame pixels, of a mask component that gets its own box, as in :mod:`cxr.ils.masks.settings`."""
RESOURCE_FILES = ("agreement/reasons.toml",)
EXCLUSION_REASONS = tomllib.loads((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
"""{code: meaning} of the reasons why an image or a region is not compared."""


@dataclass
class Region:
    """A region that ``reader`` annotated: mask, bool (H, W), and boxes (N, 4: x1, y1, x2, y2) in frame pixels."""

    lesion: str
    mask: np.ndarray
    boxes: np.ndarray
    reader: str = ""


@dataclass
class Reference:
    """The content of one annotation file. ``regions`` is {image_id: annotations}, with [] for an image without one."""

    regions: dict[str, list[Annotation]] = field(default_factory=dict)
    lesions: tuple[str, ...] = ()
    """Lesion types that are compared."""
    lesion_by_label: dict[str, str] = field(default_factory=dict)
    """{label of the file: lesion type}."""
    exclusions: list[tuple[str, str, str]] = field(default_factory=list)
    """(image id, code of the reason, label) for each excluded region."""


def load_reference(key: str, kind: str, path: str | Path, classes: Mapping[str, str], ids: str) -> Reference:
    """Read an annotation file, and map its labels to lesion types and its image names to image ids of the cohort.

    ``key`` is the settings key that names the file, for errors, and ``kind`` is the file's format. ``classes`` is the
    setting {label: lesion type}, which has priority over the mapping of the format. ``ids`` is the template that turns
    image names into image ids. Raises UserError for an unusable file.
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
    # if the file lists images but no region, all images are healthy and every detected box is false
    reference.lesions = tuple(lesion for lesion in TYPES if lesion in mapped_lesions or not annotations)
    return reference


def region_in_frame(
    annotation: Annotation, lesion: str, affine: np.ndarray, shape: tuple[int, int], size: int
) -> tuple[Region | None, str]:
    """Return (region in the frame, "") for an annotation, or (None, code of the reason) if it cannot be compared.

    ``affine`` (2, 3) maps the frame to the original image, whose (rows, columns) are ``shape``. The frame has ``size``
    × ``size`` pixels. A region that was drawn on a smaller or larger copy of the image is scaled. A mask file of the
    frame's size is taken to be in the frame.
    """
    try:
        annotated_mask = annotation.mask()
    except ValueError:
        return None, "broken_mask"
    if isinstance(annotation.mask_source, Path) and annotated_mask is not None and annotated_mask.shape == (size, size):
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
    """Return the regions without duplicates, and the number of duplicates.

    Two regions of the same lesion type are duplicates if different readers drew them and the IoU of their boxes is at
    least ``same``. The first one in the file is kept.
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
    """Return a lesion type and its subtypes (Appendix B), or for ``any`` all types except cardiomegaly."""
    return tuple(name for name in TYPES if name != "cardiomegaly") if lesion == ANY else (lesion, *kinds_under(lesion))


def union_mask(regions: Iterable[Region], lesion: str, size: int) -> np.ndarray:
    """Return the union of the masks, bool (size, size), of all regions of a lesion type and its subtypes."""
    masks = [region.mask for region in regions if region.lesion in included_lesions(lesion)]
    return np.logical_or.reduce(masks) if masks else np.zeros((size, size), bool)
