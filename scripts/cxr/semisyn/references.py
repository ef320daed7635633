"""References: experts' boxes of findings, in any format of ``cxr.annotations``, and the patients of their images."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from cxr.annotations.box_table import region_box
from cxr.annotations.formats import FORMATS, describe_formats
from cxr.annotations.regions import UNLISTED, Annotation, image_name, lesion_by_label, read_annotations
from cxr.base.columns import read_columns
from cxr.base.errors import UserError
from cxr.base.settings import Section, key
from cxr.base.user_tables import read_frame, require_columns
from cxr.base.vocabulary import FINDINGS
from cxr.geometry.boxes import CORNERS
from cxr.geometry.fusion import fuse_boxes
from cxr.semisyn.shared import FindingName

RESOURCE_FILES = ("columns/semisyn_detectors.toml",)
PREDICTIONS = read_columns("semisyn_detectors", "predictions")
TRAIN, VAL, TEST = ROLES = ("train", "val", "test")
FUSION_IOU = 0.1
"""IoU above which boxes of several readers for a finding are fused (weighted boxes fusion, equal confidences)."""
SCHEMA = {"image_id": pl.String, "finding": pl.String} | dict.fromkeys(CORNERS, pl.Float64)


class ReferenceSettings(Section):
    """A file of experts' boxes."""

    format: Literal[FORMATS] = key("coco", f"Format of the file. {describe_formats()}.")
    path: str = key("", "Path of the file or folder.")
    role: Literal[ROLES] = key("test", "Use of the file by detectors. All images of a patient need the same role.")
    classes: dict[str, FindingName] = key(
        dict, "{label: finding}, in addition to the format's labels; boxes with other labels are excluded and counted."
    )
    image_id: str = key(
        "{stem}", "Template of the image_id: {name} is the image's name in the file, {stem} the name without extension."
    )
    patients: str = key("", "Table (image_id, subject_id) of images outside the cohort; empty: one patient per image.")
    images: str = key(
        "", "Images outside the cohort: folder, or CSV of image_id, image_path (optional subject_id, view, position)."
    )


@dataclass(frozen=True)
class Reference:
    """A file of experts' boxes: its name in ``semisyn.references``, and its settings (:class:`ReferenceSettings`)."""

    name: str
    format: str
    path: str
    image_id: str
    role: str
    classes: Mapping[str, str]

    @property
    def key(self) -> str:
        """Name of the setting that gives the path of the reference."""
        return f"semisyn.references.{self.name}.path"


class ReferenceBoxes(NamedTuple):
    """A reference's table of boxes (image_id, finding, x1, y1, x2, y2 in original px), the ids of all its images, and
    {reason: number of excluded regions}."""

    boxes: pl.DataFrame
    image_ids: frozenset[str]
    excluded: Counter


def finding_by_label(kind: str, classes: Mapping[str, str], findings: Iterable[str] = FINDINGS) -> dict[str, str]:
    """Return {label in lower case: one of ``findings``}. The user's ``classes`` count before the names of the findings,
    and these before the labels of the file format ``kind``."""
    finding_by_label = {label.lower(): lesion for label, lesion in lesion_by_label(kind).items()}
    finding_by_label |= {label.lower(): name for name, label in FINDINGS.items()}
    finding_by_label |= {name.lower(): name for name in findings}
    finding_by_label |= {label.lower(): finding for label, finding in classes.items()}
    return {label: finding for label, finding in finding_by_label.items() if finding in set(findings)}


def read_reference(reference: Reference, findings: Iterable[str] = FINDINGS) -> ReferenceBoxes:
    """Read a reference's boxes of ``findings``, and fuse those of several readers. Raise UserError if it has none."""
    regions, image_ids = read_annotations(reference.key, reference.path, reference.format)
    names, excluded = finding_by_label(reference.format, reference.classes, findings), Counter()
    regions_by_key: dict[tuple[str, str], list[Annotation]] = {}
    for region in regions:
        finding = names.get(region.label.lower())
        box = region_box(region)
        if region.image == UNLISTED:
            excluded["image not listed"] += 1
        elif finding is None:
            excluded[f"no finding for {region.label}"] += 1
        elif box is None or box[0] >= box[2] or box[1] >= box[3]:
            excluded["no area"] += 1
        else:
            regions_by_key.setdefault((image_name(reference.image_id, region.image), finding), []).append(region)
    if not regions_by_key:
        common = [reason.removeprefix("no finding for ") for reason, _ in excluded.most_common(5)]
        raise UserError(
            f"{reference.key} is {reference.path!r}, which has no box of any finding: map its labels "
            f"({', '.join(common) or 'it has none'}) in semisyn.references.{reference.name}.classes"
        )
    rows = []
    for (image, finding), group in sorted(regions_by_key.items()):
        boxes = np.array([region_box(region) for region in group], np.float64)
        if len({region.reader for region in group}) > 1:
            boxes = fuse_boxes(boxes, np.ones(len(boxes)), FUSION_IOU).boxes
        rows += [(image, finding, *box) for box in np.asarray(boxes, np.float64).tolist()]
    images = frozenset(image_name(reference.image_id, image) for image in image_ids)
    return ReferenceBoxes(pl.DataFrame(rows, schema=SCHEMA, orient="row"), images, excluded)


def framed_images(reference: Reference, images: Iterable[str], shards: Container[str]) -> list[str]:
    """Return those ``images`` of a reference that have a frame in ``shards``, sorted. Raise UserError if none has."""
    images = list(images)
    if framed_ids := sorted(image for image in images if image in shards):
        return framed_ids
    raise UserError(
        f"{reference.key}: none of its {len(images)} images has a frame, because they are not in the cohort: name the "
        f"folder of these images in semisyn.references.{reference.name}.images"
    )


def map_patients(images: Iterable[str], paths: str | Iterable[str]) -> dict[str, str]:
    """Return {image: patient} of the ``images``, read from tables ``paths``. An image in no table is its own patient.
    Raise UserError for a table without image_id and subject_id."""
    key, columns = "semisyn.references.*.patients", ("image_id", "subject_id")
    patient_by_image: dict[str, str] = {}
    for path in [paths] if isinstance(paths, str) else paths:
        table = read_frame(path, key, columns, ids=columns)
        require_columns(table.columns, columns, path, key)
        patient_by_image |= dict(table.select(columns).iter_rows())
    return {image: patient_by_image.get(image, image) for image in images}


def refuse_two_roles(images: Mapping[str, Iterable[str]], roles: Mapping[str, str], patient: Mapping[str, str]) -> None:
    """Raise UserError if a patient has images in two sets with different roles. ``images``: {set: image ids}, where a
    set is a reference or the synthetic images; ``roles``: {set: role}; ``patient``: {image: patient}."""
    first: dict[str, str] = {}
    for name, image_ids in images.items():
        for image in image_ids:
            subject = patient.get(image, image)
            owner = first.setdefault(subject, name)
            if roles[owner] != roles[name]:
                raise UserError(
                    f"in_two_roles: a patient of {owner} ({roles[owner]}) is also in {name} ({roles[name]}), so a "
                    "detector would be scored on a patient of its training: remove the patient from one of them"
                )
