"""References: experts' boxes of findings, in any format of ``cxr.annotations``, and the patients of their images."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from cxr.annotations.box_table import region_box
from cxr.annotations.formats import FORMATS, describe_formats
from cxr.annotations.regions import UNLISTED, Annotation, image_name, lesion_by_label, read_annotations
from cxr.base.columns import Column
from cxr.base.errors import UserError
from cxr.base.settings import Section, key
from cxr.base.user_tables import read_frame, require_columns
from cxr.base.vocabulary import FINDINGS
from cxr.geometry.boxes import CORNERS
from cxr.geometry.fusion import fuse_boxes
from cxr.semisyn.shared import FindingName

PREDICTIONS = {
    "image_id": Column(pl.String, "Image, as the reference names it."),
    "finding": Column(pl.String, "Finding."),
    "confidence": Column(pl.Float64, "Confidence, 0 to 1."),
    **{
        name: Column(pl.Float64, f"{edge_name} edge, half-open.", "original px")
        for name, edge_name in (("x1", "Left"), ("y1", "Upper"), ("x2", "Right"), ("y2", "Lower"))
    },
}


TRAIN, VAL, TEST = ROLES = ("train", "val", "test")
FUSION_IOU = 0.1
"""IoU above which boxes of several readers for one finding are one (weighted boxes fusion, equal confidences)."""
SCHEMA = {"image_id": pl.String, "finding": pl.String} | dict.fromkeys(CORNERS, pl.Float64)


class ReferenceSettings(Section):
    """A file of experts' boxes."""

    format: Literal[FORMATS] = key("coco", f"{describe_formats()}.")
    path: str = key("", "Path of the file; for mimic_ils, of the folder.")
    role: Literal["train", "val", "test"] = key(
        "test", "Use of the reference; no patient may be in references of two roles."
    )
    classes: dict[str, FindingName] = key(
        dict,
        "{label: finding}, in addition to the format's labels and the findings' names; boxes with other labels are "
        "excluded and counted.",
    )
    image_id: str = key(
        "{stem}", "Template of an image's image_id: {name} is the name in the file, {stem} the name without extension."
    )
    patients: str = key(
        "",
        "CSV or Parquet with image_id and subject_id of images outside the cohort; empty: one patient per image.",
    )
    images: str = key(
        "",
        "Its images outside the cohort, for detectors and fitted priors: a folder, or a CSV with image_id, "
        "image_path and optionally subject_id, view and position (hearts are measured on PA images of erect or "
        "unknown position).",
    )


@dataclass(frozen=True)
class Reference:
    """A reference (``semisyn.references.{name}``). classes: {label: finding}, before the format's own table.

    image_id: template of an image's name; role: train, val or test.
    """

    name: str
    format: str
    path: str
    image_id: str
    role: str
    classes: Mapping[str, str]

    @property
    def key(self) -> str:
        """The setting that names its file."""
        return f"semisyn.references.{self.name}.path"


@dataclass(frozen=True)
class ReferenceBoxes:
    """Boxes of a reference (image_id, finding, x1, y1, x2, y2 in original px), all its images, and {reason: number of
    excluded regions}."""

    boxes: pl.DataFrame
    image_ids: frozenset[str]
    excluded: Counter


def finding_by_label(kind: str, classes: Mapping[str, str], findings: Iterable[str] = FINDINGS) -> dict[str, str]:
    """Return {lower-case label: finding}. The user's ``classes`` win over names of findings, these over the format's.

    Labels of findings that are not in ``findings`` are dropped.
    """
    finding_by_label = {label.lower(): lesion for label, lesion in lesion_by_label(kind).items()}
    finding_by_label |= {label.lower(): name for name, label in FINDINGS.items()}
    finding_by_label |= {name.lower(): name for name in findings}
    finding_by_label |= {label.lower(): finding for label, finding in classes.items()}
    finding_set = set(findings)
    return {label: finding for label, finding in finding_by_label.items() if finding in finding_set}


def read_reference(reference: Reference, findings: Iterable[str] = FINDINGS) -> ReferenceBoxes:
    """Read a reference's boxes of ``findings``; boxes of several readers of one image and finding are fused.

    Raises UserError if the file cannot be read or has no box of any finding.
    """
    regions, image_ids = read_annotations(reference.key, reference.path, reference.format)
    names, left_out = finding_by_label(reference.format, reference.classes, findings), Counter()
    regions_by_key: dict[tuple[str, str], list[Annotation]] = {}
    for region in regions:
        finding = names.get(region.label.lower())
        box = region_box(region)
        if region.image == UNLISTED:
            left_out["image not listed"] += 1
        elif finding is None:
            left_out[f"no finding for {region.label}"] += 1
        elif box is None or box[0] >= box[2] or box[1] >= box[3]:
            left_out["no area"] += 1
        else:
            regions_by_key.setdefault((image_name(reference.image_id, region.image), finding), []).append(region)
    if not regions_by_key:
        common = [reason.removeprefix("no finding for ") for reason, _ in left_out.most_common(5)]
        raise UserError(
            f"{reference.key} is {reference.path!r}, which has no box of any finding: map its labels "
            f"({', '.join(common) or 'it has none'}) in semisyn.references.{reference.name}.classes"
        )
    rows = [(*key, *box) for key, group in sorted(regions_by_key.items()) for box in _fuse_readers(group)]
    images = frozenset(image_name(reference.image_id, image) for image in image_ids)
    return ReferenceBoxes(pl.DataFrame(rows, schema=SCHEMA, orient="row"), images, left_out)


def read_image_ids(reference: Reference) -> frozenset[str]:
    """Return all images of a reference, whatever their labels. Raises UserError if the file cannot be read."""
    _, image_ids = read_annotations(reference.key, reference.path, reference.format)
    return frozenset(image_name(reference.image_id, image) for image in image_ids)


def _fuse_readers(regions: list[Annotation]) -> list[tuple[float, ...]]:
    boxes = np.array([region_box(region) for region in regions], np.float64)
    if len({region.reader for region in regions}) > 1:
        boxes = fuse_boxes(boxes, np.ones(len(boxes)), FUSION_IOU).boxes
    return [tuple(map(float, box)) for box in boxes]


def read_patients(paths: str | Iterable[str]) -> list[pl.DataFrame]:
    """Read tables with image_id and subject_id as text. Raises UserError if one lacks these columns."""
    key, columns = "semisyn.references.*.patients", ("image_id", "subject_id")
    tables = []
    for path in [paths] if isinstance(paths, str) else paths:
        tables.append(read_frame(path, key, columns, ids=columns))
        require_columns(tables[-1].columns, columns, path, key)
    return tables


def map_patients(images: Iterable[str], tables: Iterable[pl.DataFrame]) -> dict[str, str]:
    """Return {image: patient} from tables with image_id and subject_id; an image in none is its own patient."""
    patient_by_image: dict[str, str] = {}
    for table in tables:
        patient_by_image |= dict(table.select("image_id", pl.col("subject_id").cast(pl.String)).iter_rows())
    return {image: patient_by_image.get(image, image) for image in images}


def refuse_two_roles(images: Mapping[str, Iterable[str]], roles: Mapping[str, str], patient: Mapping[str, str]) -> None:
    """Raise UserError if an image or a patient is in references of two roles.

    ``images``: {reference or training set: its images}; ``roles``: {the same keys: train, val or test}.
    """
    first: dict[str, str] = {}
    for name, image_ids in images.items():
        for image in image_ids:
            subject = patient.get(image, image)
            owner = first.setdefault(subject, name)
            if roles[owner] != roles[name]:
                raise UserError(
                    f"in_two_roles: a patient of {owner} ({roles[owner]}) is also in {name} ({roles[name]}), so that "
                    f"scores would be of images that were learnt: leave its images out of one of them"
                )
