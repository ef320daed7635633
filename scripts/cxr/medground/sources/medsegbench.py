"""Sources of kind ``medsegbench``: the npz files that MedSegBench published. They are read image by image."""

import hashlib
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from cxr.base.errors import UserError, refuse_unreadable
from cxr.base.resources import load_resource
from cxr.medground.sources.image import Image, ImageReader
from cxr.medground.sources.pixels import masks_by_value, refuse_uniform

RESOURCE_FILES = ("medground/sources.yaml",)
SPLITS = {"train": "train", "val": "validate", "test": "test"}


def read_flag_facts(flag: str) -> dict:
    """Return {domain, classes, md5, …} of the published set ``flag``, such as fhpsaop. Raises UserError if unknown."""
    facts_by_flag = load_resource(RESOURCE_FILES[0])["medsegbench"]
    if flag not in facts_by_flag:
        raise UserError(f"there is no MedSegBench set {flag!r}: choose one of {', '.join(sorted(facts_by_flag))}")
    return facts_by_flag[flag]


def check_digest(path: Path, expected: Mapping[int, str]) -> None:
    """Raise UserError unless the MD5 of a file is a published one. ``expected``: {image side in pixels: MD5}."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if digest not in expected.values():
        remedy = "download it again, or give its images as a source of kind folder"
        raise UserError(f"{path.name} has the MD5 {digest}, which is not the published one: {remedy}")


class Member:
    """An array in an npz file, which is read row by row. Raises UserError if it is missing, damaged or not uint8."""

    def __init__(self, archive: zipfile.ZipFile, name: str):
        self.name, self._archive = name, archive
        if f"{name}.npy" not in archive.namelist():
            raise self.fault("is missing")
        with self._open() as file:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            self.shape, is_by_columns, dtype = read(file)
            self._header_size = file.tell()
        if dtype.hasobject or is_by_columns or dtype != np.uint8:
            raise self.fault(f"is not uint8 stored by rows (type {dtype})", "give the published file")

    def fault(self, problem: str, remedy: str = "download the file again") -> UserError:
        """Return a UserError that names the file, this array, the ``problem`` and the ``remedy``."""
        return UserError(f"{Path(str(self._archive.filename)).name}: the member {self.name} {problem}: {remedy}")

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        try:
            with self._archive.open(f"{self.name}.npy") as file:
                yield file
        except (ValueError, KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise self.fault(f"is damaged ({type(error).__name__})") from None

    def rows(self) -> Iterator[np.ndarray]:
        """Yield the rows of the array, one per image, each uint8 (H, W) or (H, W, C)."""
        size = math.prod(self.shape[1:])
        with self._open() as file:
            file.read(self._header_size)
            for _ in range(self.shape[0]):
                data = file.read(size)
                if len(data) < size:
                    raise self.fault("is shorter than its header states")
                yield np.frombuffer(data, np.uint8).reshape(self.shape[1:])


def read_npz(path: str, flag: str, facts: Mapping) -> Iterator[tuple[str, ImageReader]]:
    """Yield (image id, function that reads the image), split by split. ``flag``: name of the set, for the ids.
    ``facts``: settings of the source with the facts about the set. Raises UserError for a damaged file."""
    with refuse_unreadable(path, f"{Path(path).name} is not an npz file", "download it again", zipfile.BadZipFile):
        archive = zipfile.ZipFile(path)
    with archive:
        for split, name in SPLITS.items():
            pictures, labels = Member(archive, f"{split}_images"), Member(archive, f"{split}_label")
            if len(pictures.shape) not in (3, 4) or pictures.shape[3:] not in ((), (1,), (3,)):
                raise pictures.fault(f"has the shape {pictures.shape}, not that of images", "give the published file")
            if pictures.shape[:3] != labels.shape[:3] or labels.shape[3:] not in ((), (1,)):
                raise labels.fault(
                    f"has the shape {labels.shape}, but the images have {pictures.shape}", "give the published file"
                )
            for at, (picture, label) in enumerate(zip(pictures.rows(), labels.rows(), strict=True)):
                image_id = f"{flag}_{split}_{at:05d}"
                yield image_id, partial(_image, image_id, name, picture, label.reshape(label.shape[:2]), facts)


def _image(image_id: str, split: str, picture: np.ndarray, label: np.ndarray, facts: Mapping) -> Image:
    names = list(facts["classes"])
    masks = masks_by_value(label, dict(enumerate(names, 1))) if facts["values"] else {names[0]: label > 0}
    refuse_uniform(masks)
    if picture.shape[2:] != (3,):
        picture = np.repeat(picture.reshape(*picture.shape[:2], 1), 3, axis=2)
    picture = np.ascontiguousarray(picture)
    return Image(image_id, image_id, split, picture, masks, domain=facts["domain"], licence=facts["licence"])


def parse_flag(path: str) -> tuple[str, int]:
    """Return (set's name, image side in pixels) from a file's name, such as fhpsaop_256.npz. Raises UserError if the
    file is not named like a published one."""
    if match := re.fullmatch(r"([a-z0-9]+)_(128|256|512)", Path(path).stem):
        return match[1], int(match[2])
    problem = "does not have the name of a MedSegBench file"
    raise UserError(f"{Path(path).name} {problem}: give its published name, such as fhpsaop_256.npz")
