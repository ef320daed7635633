"""Original image files of samples, decoded in the same way as for their 512 × 512 frames."""

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cxr.base.errors import MACHINE_ERRORS, UserError, out_of_memory
from cxr.base.faults import broken_part
from cxr.base.tables import read_table
from cxr.dicom.files import Rejected, describe_error, rejection_of, silence_output
from cxr.imaging.frames.decoding import check_frame_shape, read_grey
from cxr.vlm.samples import Sample

REMEDY = "mount the disk with the images, remake the cohort, or set pictures of the run to frame"


@dataclass(frozen=True)
class Originals:
    """Original images: their files, {(source, image_id): path}, and the settings ``how`` for decoding them."""

    paths: Mapping[tuple[str, str], str]
    how: Mapping

    @classmethod
    def for_samples(cls, tables: Iterable[str], decoding: Mapping, samples: Iterable[Sample]) -> "Originals | None":
        """Return the samples' files in ``tables``, or None if ``decoding`` is {}. UserError if a file is missing."""
        if not decoding:
            return None
        sample_images = {(sample.source, sample.image_id) for sample in samples}
        image_tables = (read_table(path).select("source", "image_id", "path") for path in tables)
        image_paths = ((row[:2], row[2]) for table in image_tables for row in table.iter_rows())
        paths = {image: path for image, path in image_paths if image in sample_images}
        if missing := sorted(sample_images - paths.keys()):
            source, image_id = missing[0]
            raise UserError(
                f"no table names the original file of the image {image_id!r} of {source!r}, which a run with pictures: "
                "original needs: add the table of images of that source to its inputs"
            )
        return cls(paths, decoding)

    def check(self) -> None:
        """Raise UserError if original files have been removed since their frames were made."""
        missing = []
        for image, path in self.paths.items():
            try:
                is_file = stat.S_ISREG(os.stat(path).st_mode)
            except OSError as error:
                rejection_of(error)  # raises if the machine is at fault
                is_file = False
            missing += [] if is_file else [image]
        if missing:
            numbers = f"{len(missing)} of {len(self.paths)} original images"
            raise UserError(f"{numbers} no longer exist, such as {min(missing)[1]!r}: {REMEDY}")

    def __call__(self, sample: Sample, shape: tuple[int, int]) -> np.ndarray:
        """Return a sample's original, uint8 of ``shape``. Raises UserError or StoreError if the file has changed."""
        try:
            with silence_output():
                picture = read_grey(self.paths[sample.source, sample.image_id], self.how)
        except Exception as error:  # a damaged file makes the decoders fail in many ways
            if broken_part(error) or getattr(error, "errno", None) in MACHINE_ERRORS or out_of_memory(error):
                raise
            reason = error.reason if isinstance(error, Rejected) else describe_error(error)
            raise UserError(
                f"the original of the image {sample.image_id!r} can no longer be decoded ({reason}), but its frame "
                f"could: {REMEDY}"
            ) from None
        return check_frame_shape(picture, sample.image_id, shape)
