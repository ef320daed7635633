"""Read references, human annotations of the cohort's images, into the frame, with reasons for what is left out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cxr.annotations.reading import UNLISTED, Annotation, image_name, lesions, read
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.vocabulary import LESIONS as TYPES
from cxr.base.vocabulary import kinds_under
from cxr.geometry.affine import boxes_to_frame, to_frame
from cxr.geometry.boxes import box_iou, clip_boxes
from cxr.geometry.masks import component_boxes

PAINTED = "painted"
"""The embedded cohort's truth: masks in the frame, one per lesion type."""
ANY = "any"
"""All lesion types but cardiomegaly together."""
ASPECT = 0.02
"""Largest difference of aspect at which an annotated image and the cohort's image still count as the same."""
SMALLEST = 64
"""Minimum size in frame pixels of a mask's part that gets its own box, as masks.min_component_px."""
LEFT_OUT = {
    "no_image": "the reference names an image that is not in the cohort",
    "no_frame": "the image has no frame, because it stopped earlier",
    "no_reference": "the image has a frame, but the reference does not name it",
    "not_listed": "a region is of an image that the reference does not list",
    "class_not_mapped": "a label of the reference is not mapped to a lesion type (agreement.references.*.classes)",
    "no_area": "a region has no pixel in the frame, or corners that are not numbers",
    "other_shape": "the region was drawn on an image of another shape than the cohort's",
    "broken_mask": "the mask of a region cannot be read",
    "drawn_twice": "another reader drew the same region",
}
"""Reasons why an image or a region is not compared."""


@dataclass
class Region:
    """One region in the frame: ``lesion`` type, its pixels bool (H, W), its boxes float (N, 4: x1, y1, x2, y2)."""

    lesion: str
    mask: np.ndarray
    box: np.ndarray
    reader: str = ""


@dataclass
class Reference:
    """The content of one file: {image_id: its regions in the cohort's pixels}, and the images that it covers."""

    regions: dict[str, list[Annotation]] = field(default_factory=dict)
    lesions: tuple[str, ...] = ()
    """Lesion types of its labels."""
    names: dict[str, str] = field(default_factory=dict)
    """{label: lesion type} of the mapped labels."""
    left_out: list[tuple[str, str, str]] = field(default_factory=list)
    """(image, reason, detail)."""


def load_reference(key: str, kind: str, path: str | Path, classes: Mapping[str, str], ids: str) -> Reference:
    """Read a file and map its labels and images to the cohort's names. Raises UserError for an unusable file.

    ``key``: the setting that names the file; ``classes``: {label: lesion type}, which overrides the format's; ``ids``:
    template of the cohort's image_id.
    """
    if kind == PAINTED:
        with Shard(path) as shard:
            return Reference({name: [] for name in shard.ids}, tuple(name for name in TYPES if name in shard.labels()))
    annotations, image_names = read(key, path, kind)
    names = lesions(kind) | {lesion: lesion for lesion in TYPES} | dict(classes)
    reference = Reference({image_name(ids, name): [] for name in sorted(image_names)}, names=names)
    for annotation in annotations:
        image = image_name(ids, annotation.image)
        if annotation.image == UNLISTED:
            reference.left_out.append(("", "not_listed", annotation.label))
        elif annotation.label not in names:
            reference.left_out.append((image, "class_not_mapped", annotation.label))
        else:
            reference.regions[image].append(annotation)
    mapped_lesions = {
        names[annotation.label] for image_annotations in reference.regions.values() for annotation in image_annotations
    }
    if not mapped_lesions and (annotations or not image_names):
        raise UserError(f"{key} {str(path)!r} has no label that is a lesion type: name them in its `classes`")
    # where nobody drew a region, all images are healthy: every box is a false one
    reference.lesions = tuple(lesion for lesion in TYPES if lesion in mapped_lesions or not annotations)
    return reference


def in_frame(
    annotation: Annotation, lesion: str, affine: np.ndarray, shape: tuple[int, int], size: int
) -> tuple[Region | None, str]:
    """Return a region in the frame, or None and the reason.

    ``affine``: the frame-to-original affine (2, 3) of the image, ``shape`` its original (rows, columns). A region that
    was drawn on a smaller or larger copy of the image is scaled; a release's mask of the frame's size is already in the
    frame.
    """
    try:
        annotated_mask = annotation.mask()
    except ValueError:
        return None, "broken_mask"
    if isinstance(annotation.drawn, Path) and annotated_mask is not None and annotated_mask.shape == (size, size):
        return (
            (Region(lesion, annotated_mask, component_boxes(annotated_mask, SMALLEST)), "")
            if annotated_mask.any()
            else (None, "no_area")
        )
    annotated_shape = annotated_mask.shape if annotated_mask is not None else annotation.size or shape
    scale = np.array([shape[1] / annotated_shape[1], shape[0] / annotated_shape[0]])
    if abs(scale[0] / scale[1] - 1) > ASPECT:
        return None, "other_shape"
    box = np.zeros((0, 4))
    if annotation.box is not None and np.isfinite(annotation.box).all():
        corners = np.sort(np.reshape(annotation.box, (2, 2)), axis=0) * scale
        box = np.clip(boxes_to_frame(corners, affine), 0, size)
    if annotated_mask is not None:
        # the affine from the frame to the annotated image
        mask = to_frame(annotated_mask.astype(np.uint8), affine / scale[:, None], size, nearest=True) > 0
        box = box if len(box) else component_boxes(mask, SMALLEST)
    else:
        mask = np.zeros((size, size), bool)
        for x1, y1, x2, y2 in clip_boxes(box, size, size):
            mask[y1:y2, x1:x2] = True
    return (Region(lesion, mask, box, annotation.reader), "") if mask.any() else (None, "no_area")


def distinct(regions: Iterable[Region], same: float) -> tuple[list[Region], int]:
    """Return the regions without those that an earlier reader also drew (IoU of boxes >= ``same``), and their number.

    The first region in the order of the file is kept. Two regions of one reader are never merged.
    """
    distinct_regions: list[Region] = []
    num_duplicates = 0
    for region in regions:
        is_duplicate = any(
            previous.lesion == region.lesion
            and previous.reader != region.reader
            and len(previous.box)
            and len(region.box)
            and box_iou(previous.box, region.box).max() >= same
            for previous in distinct_regions
        )
        num_duplicates += is_duplicate
        if not is_duplicate:
            distinct_regions.append(region)
    return distinct_regions, num_duplicates


def kinds(lesion: str) -> tuple[str, ...]:
    """Return a lesion type and the kinds under it (Appendix B); for ``any``, all types but cardiomegaly."""
    return tuple(name for name in TYPES if name != "cardiomegaly") if lesion == ANY else (lesion, *kinds_under(lesion))


def union(regions: Iterable[Region], lesion: str, size: int) -> np.ndarray:
    """Return the pixels, bool (size, size), of all regions of a lesion type or a kind under it."""
    masks = [region.mask for region in regions if region.lesion in kinds(lesion)]
    return np.logical_or.reduce(masks) if masks else np.zeros((size, size), bool)
