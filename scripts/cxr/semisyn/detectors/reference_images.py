"""Check that no patient is in both training and test data. List the image files of a reference outside the cohort."""

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cxr.annotations.regions import ENDINGS, image_name, read_annotations
from cxr.base.columns import read_columns
from cxr.base.errors import UserError
from cxr.base.jobs import log
from cxr.base.tables import read_table, write_rows
from cxr.base.user_paths import PathFinder
from cxr.base.user_tables import read_sheet
from cxr.semisyn.references import TRAIN, Reference, map_patients, read_reference, refuse_two_roles
from cxr.semisyn.shared import TRAIN_SUBSET

RESOURCE_FILES = ("columns/semisyn_detectors.toml",)
ROLES = read_columns("semisyn_detectors", "roles")
PICTURES = read_columns("semisyn_detectors", "pictures")
"""Columns of the table of images, which are those that the stage ``frames`` reads in a shard of the cohort."""
SYNTHETIC = "synthetic"
"""Name, in the table of roles, of the synthetic images' sources. The settings forbid this name for references."""


def run_roles(
    *, annotations: list[str], patients: list[str], output: str, references: Sequence[dict], findings: Sequence[str],
    images: str | Sequence = (),
) -> None:  # fmt: skip
    """Write the table :data:`ROLES`, with a row for each reference (file of experts' boxes) and one for the sources of
    the training ``images``. Raise UserError if a patient has images with different roles (train, val, test)."""
    roles, images_by_set, counts = {}, {}, {}
    for reference in (Reference(**settings) for settings in references):
        boxes, image_ids, excluded = read_reference(reference, findings)
        roles[reference.name], images_by_set[reference.name] = reference.role, image_ids
        counts[reference.name] = len(boxes), json.dumps(excluded, sort_keys=True)
    if images:
        table = read_table(images).filter(pl.col("subset") == TRAIN_SUBSET)
        roles[SYNTHETIC], images_by_set[SYNTHETIC], counts[SYNTHETIC] = TRAIN, set(table["image_id"]), (None, "")
    patient = map_patients(set().union(*images_by_set.values()), patients)
    refuse_two_roles({name: sorted(image_ids) for name, image_ids in images_by_set.items()}, roles, patient)
    rows = [
        (name, roles[name], len(image_ids), len({patient[image] for image in image_ids}), *counts[name])
        for name, image_ids in images_by_set.items()
    ]
    write_rows(output, rows, ROLES)


NAMES = ("image_id", "image_path", "subject_id", "view", "position")


def run_listing(*, annotations: str, pictures: str, output: str, reference: dict) -> None:
    """Write the table :data:`PICTURES` of a reference's image files. ``pictures``: folder with the files, or CSV with
    the columns :data:`NAMES` and paths relative to the CSV. Raise UserError if no image has a file."""
    source = Reference(**reference, role="", classes={})
    regions = read_annotations(source.key, source.path, source.format)
    image_ids = {image_name(source.image_id, image) for image in regions.image_names}
    key, path = f"semisyn.references.{source.name}.images", Path(pictures)
    file_by_image = {} if path.is_dir() else _files_in_sheet(path, key)
    for file in sorted(path.rglob("*")) if path.is_dir() else ():
        if file.suffix.lower() in ENDINGS and file.is_file():
            first, *_ = file_by_image.setdefault(image_name(source.image_id, file.name), (file, "", None, None))
            if first != file:
                raise UserError(f"{key}: {first} and {file} have the same name: give a CSV of image_id and image_path")
    rows = []
    for image in sorted(image_ids & file_by_image.keys()):
        file, patient, *posed = file_by_image[image]
        rows.append((image, image, patient or image, str(Path(file).absolute()), 0, *posed))
    if not rows:
        raise UserError(
            f"{key} is {pictures!r}, which has none of the {len(image_ids)} images of {source.path}: correct "
            f"this path, or semisyn.references.{source.name}.image_id, which is {source.image_id!r}"
        )
    if len(rows) < len(image_ids):
        log.warning("%s has only %d of the %d images of the reference", key, len(rows), len(image_ids))
    write_rows(output, rows, PICTURES)


def _files_in_sheet(path: Path, key: str) -> dict[str, tuple]:
    """Return {image_id: (file, patient, view, position)} of a CSV: "" for no patient, None for no view or position."""
    ids = ("image_id", "subject_id")
    sheet = read_sheet(path, key, NAMES, ids=ids, words=ids)
    sheet.require(NAMES[:2])
    rows = [row for _, row in sheet.records() if row["image_id"] and row["image_path"]]
    files = PathFinder(path.parent).find_all(row["image_path"] for row in rows)
    file_by_image = {}
    for row in rows:
        metadata = row.get("subject_id", ""), row.get("view") or None, row.get("position") or None
        file_by_image[row["image_id"]] = files[row["image_path"]].path, *metadata
    return file_by_image
