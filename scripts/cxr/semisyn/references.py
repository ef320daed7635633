"""References: people's boxes of findings in any format of the room annotations, and whose images they are."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from cxr.annotations.box_table import corners
from cxr.annotations.reading import UNLISTED, Annotation, image_name, lesions, read
from cxr.base.errors import UserError
from cxr.base.user_tables import read_frame, require
from cxr.base.vocabulary import FINDINGS
from cxr.geometry.boxes import CORNERS
from cxr.geometry.fusion import fuse

TRAIN, VAL, TEST = ROLES = ("train", "val", "test")
FUSED = 0.1
"""IoU above which boxes of several readers for one finding are one (weighted boxes fusion, equal confidences)."""
SCHEMA = {"image_id": pl.String, "finding": pl.String} | dict.fromkeys(CORNERS, pl.Float64)


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
class Held:
    """What a reference holds: ``boxes`` (image_id, finding, x1, y1, x2, y2 in original px), all images that were read,
    and the number of regions left out per reason."""

    boxes: pl.DataFrame
    seen: frozenset[str]
    left_out: Counter


def labels_of(kind: str, classes: Mapping[str, str], findings: Iterable[str] = FINDINGS) -> dict[str, str]:
    """Return {label in small letters: finding}: the user's, the findings' own names, and the format's lesion types.

    ``findings``: those that are asked for; a label of another one is left out.
    """
    own = {label.lower(): lesion for label, lesion in lesions(kind).items()}
    own |= {label.lower(): name for name, label in FINDINGS.items()} | {name.lower(): name for name in findings}
    own |= {label.lower(): finding for label, finding in classes.items()}
    known = set(findings)
    return {label: finding for label, finding in own.items() if finding in known}


def load(reference: Reference, findings: Iterable[str] = FINDINGS) -> Held:
    """Read a reference's boxes of ``findings``; those of several readers of an image and finding are fused.

    Raises UserError for a file that cannot be read, or without a box of any finding.
    """
    regions, seen = read(reference.key, reference.path, reference.format)
    names, left_out = labels_of(reference.format, reference.classes, findings), Counter()
    kept: dict[tuple[str, str], list[Annotation]] = {}
    for one in regions:
        finding = names.get(one.label.lower())
        box = corners(one)
        if one.image == UNLISTED:
            left_out["image not listed"] += 1
        elif finding is None:
            left_out[f"no finding for {one.label}"] += 1
        elif box is None or box[0] >= box[2] or box[1] >= box[3]:
            left_out["no area"] += 1
        else:
            kept.setdefault((image_name(reference.image_id, one.image), finding), []).append(one)
    if not kept:
        raise UserError(
            f"{reference.key} is {reference.path!r}, which has no box of any finding: map its labels "
            f"({_some(left_out)}) in semisyn.references.{reference.name}.classes"
        )
    rows = [(*key, *box) for key, of in sorted(kept.items()) for box in _fused(of)]
    images = frozenset(image_name(reference.image_id, image) for image in seen)
    return Held(pl.DataFrame(rows, schema=SCHEMA, orient="row"), images, left_out)


def images_of(reference: Reference) -> frozenset[str]:
    """Return all images of a reference, whatever its labels mean. Raises UserError for a file that cannot be read."""
    _, seen = read(reference.key, reference.path, reference.format)
    return frozenset(image_name(reference.image_id, image) for image in seen)


def _some(left_out: Counter) -> str:
    told = [reason.removeprefix("no finding for ") for reason, _ in left_out.most_common(5)]
    return ", ".join(told) or "it has none"


def _fused(regions: list[Annotation]) -> list[tuple[float, ...]]:
    boxes = np.array([corners(one) for one in regions], np.float64)
    if len({one.reader for one in regions}) > 1:
        boxes = fuse(boxes, np.ones(len(boxes)), FUSED).boxes
    return [tuple(map(float, box)) for box in boxes]


def read_patients(paths: Iterable[str]) -> list[pl.DataFrame]:
    """Return tables with image_id and subject_id as texts. Raises UserError for one without these columns."""
    key, columns = "semisyn.references.*.patients", ("image_id", "subject_id")
    tables = [(path, read_frame(path, key, columns, ids=columns)) for path in paths]
    for path, table in tables:
        require(table.columns, columns, path, key)
    return [table for _, table in tables]


def patients_of(images: Iterable[str], tables: Iterable[pl.DataFrame]) -> dict[str, str]:
    """Return {image: its patient} by tables with image_id and subject_id; an image that none names is its own."""
    known: dict[str, str] = {}
    for table in tables:
        known |= dict(table.select("image_id", pl.col("subject_id").cast(pl.String)).iter_rows())
    return {image: known.get(image, image) for image in images}


def refuse_two_roles(images: Mapping[str, Iterable[str]], roles: Mapping[str, str], patient: Mapping[str, str]) -> None:
    """Raise UserError if an image or a patient is in references of two roles; train counts for what is trained on.

    ``images``: {reference or training set: its images}; ``roles``: {the same: train, val or test}.
    """
    first: dict[str, str] = {}
    for name, of in images.items():
        for image in of:
            whose = patient.get(image, image)
            other = first.setdefault(whose, name)
            if roles[other] != roles[name]:
                raise UserError(
                    f"in_two_roles: a patient of {other} ({roles[other]}) is also in {name} ({roles[name]}), so that "
                    f"scores would be of images that were learnt: leave its images out of one of them"
                )
