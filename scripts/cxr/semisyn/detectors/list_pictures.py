"""List the images of a reference that are not in the cohort, as a table that the stage frames reads."""

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from cxr.annotations.regions import ENDINGS, image_name
from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.jobs import log
from cxr.base.tables import write_table
from cxr.base.user_paths import PathFinder
from cxr.base.user_tables import read_sheet
from cxr.semisyn.detectors.columns import PICTURES
from cxr.semisyn.references import Reference, read_image_ids

NAMES = ("image_id", "image_path", "subject_id", "view", "position")
NO_METADATA = ("", None, None)
"""Patient, view and position of an image in a folder."""


def run(*, annotations: str, pictures: str, output: str, reference: dict) -> None:
    """Write :data:`PICTURES`, a row for each image of the reference that is in ``pictures``.

    ``reference``: {name, format, path, image_id} of the reference, whose file is ``annotations``; ``pictures``: a
    folder, or a CSV of :data:`NAMES` with paths relative to it. Raises UserError if it has none of the images, or two
    with one name.
    """
    source = Reference(**reference, role="", classes={})
    image_ids = read_image_ids(source)
    key = f"semisyn.references.{source.name}.images"
    path = Path(pictures)
    file_by_image = dict(_files_in_folder(path, source.image_id, key) if path.is_dir() else _files_in_sheet(path, key))
    rows = []
    for image in sorted(image_ids & file_by_image.keys()):
        file, (patient, *posed) = file_by_image[image]
        rows.append((image, image, patient or image, str(file), 0, *posed))
    if not rows:
        raise UserError(
            f"{key} is {pictures!r}, which has none of the {len(image_ids)} images of {source.path}: correct it, or "
            f"semisyn.references.{source.name}.image_id, which is {source.image_id!r}"
        )
    if len(rows) < len(image_ids):
        log.warning("%s has %d of the %d images of its reference", key, len(rows), len(image_ids))
    write_table(output, pl.DataFrame(rows, schema=schema(PICTURES), orient="row"), PICTURES)


def _files_in_folder(folder: Path, template: str, key: str) -> Iterable[tuple[str, tuple[Path, tuple]]]:
    """Yield (image_id, (file, :data:`NO_METADATA`)) of all images below a folder."""
    first: dict[str, Path] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file()):
        name = image_name(template, path.name)
        if first.setdefault(name, path) != path:
            raise UserError(f"{key}: {first[name]} and {path} have one name: name a CSV of image_id and image_path")
        yield name, (path.absolute(), NO_METADATA)


def _files_in_sheet(path: Path, key: str) -> Iterable[tuple[str, tuple[Path, tuple]]]:
    """Yield (image_id, (file, (patient, view, position))) of a CSV's rows; a missing patient is "", others None."""
    ids = ("image_id", "subject_id")
    sheet = read_sheet(path, key, NAMES, ids=ids, words=ids)
    sheet.require(NAMES[:2])
    rows = [row for _, row in sheet.records() if row["image_id"] and row["image_path"]]
    files = PathFinder(path.parent).find_all(row["image_path"] for row in rows)
    for row in rows:
        metadata = row.get("subject_id", ""), row.get("view") or None, row.get("position") or None
        yield row["image_id"], (Path(files[row["image_path"]].path).absolute(), metadata)
