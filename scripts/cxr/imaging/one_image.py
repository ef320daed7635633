"""Decoding a single image file as the workflow decodes a cohort's images, to answer questions about it."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.exclusions import REASONS
from cxr.dicom.files import HeaderError, Rejected, read_dicom
from cxr.geometry.affine import to_original, turn_from_affine
from cxr.geometry.turns import UPRIGHT
from cxr.imaging.cohort.header import check_kind, check_view, read_header
from cxr.imaging.frames.decoding import read_image
from cxr.plotting.overlay import SIDES


@dataclass(frozen=True)
class FramedImage:
    """A decoded image file. ``grey``: uint8 (rows, columns), oriented as stored; ``frame``: upright, uint8 (512, 512).

    ``affine``: (2, 3), from frame to grey; ``sides``: letters of the patient's sides at the left and right edge of the
    upright image; ``notes``: corrections of the header.
    """

    grey: np.ndarray
    frame: np.ndarray
    affine: np.ndarray
    sides: tuple[str, str] = SIDES
    notes: tuple[str, ...] = ()

    def list_notes(self) -> list[str]:
        """Return the notes to print with answers about the image: header corrections, and whether it is mirrored."""
        mirrored = "the header says that the image is mirrored, but for the model its left side is the patient's right"
        return [*(f"the image: {note}" for note in self.notes), *[mirrored] * (self.sides != SIDES)]

    def upright(self, stored: np.ndarray) -> np.ndarray:
        """Turn an array (rows, columns) from the image's stored orientation to the upright orientation of the frame."""
        return turn_from_affine(self.affine).apply(stored)


def read_sides(header: Dataset | None) -> tuple[str, str]:
    """Return the patient's sides at the image's left and right: R and L, or L and R if PatientOrientation says so."""
    towards = str((list(header.get("PatientOrientation") or ()) or [""])[0]) if header is not None else ""
    return SIDES[::-1] if towards.upper().startswith("R") else SIDES


def decode_image_file(path: str, cohort: dict, frames: dict) -> tuple[FramedImage, Dataset | None]:
    """Decode a DICOM, PNG or JPEG file as the workflow does; return the image, and the DICOM header or None.

    ``cohort``, ``frames``: settings of these stages. A file that does not state its view or body part is accepted.
    Raises UserError if the file is not a frontal chest X-ray or cannot be decoded.
    """
    try:
        header = read_header(path)
        check_kind(header, cohort["modalities"], cohort["body_parts"])
        check_view(header.view, header.view_field, cohort["views"], accept_unknown=True)
        decoded = read_image(path, frames)
        dataset = read_dicom(Path(path).read_bytes()) if header.modality is not None else None
    except Rejected as rejected:
        detail = f" ({rejected.detail})" if rejected.detail else ""
        raise UserError(f"{path}: {REASONS[rejected.reason]}{detail}: give a frontal chest X-ray") from None
    except (HeaderError, OSError) as error:
        refuse_machine_fault(path, error)
        raise UserError(f"{path} cannot be read ({error}): give a frontal chest X-ray") from None
    frame, affine = decoded.frame(frames["fit"])
    sides = read_sides(dataset) if decoded.turn == UPRIGHT else SIDES
    return FramedImage(decoded.grey, frame, affine, sides, decoded.notes), dataset


def project_mask(logits: np.ndarray, picture: FramedImage) -> np.ndarray:
    """Convert logits (T, T) that cover the frame to a mask of the original, bool (rows, columns), False elsewhere."""
    scale = picture.frame.shape[0] / logits.shape[0]
    affine = picture.affine.copy()
    affine[:, :2] *= scale
    return to_original(logits, affine, picture.grey.shape, nearest=False) > 0


def segmentation_time() -> datetime:
    """Return the time stamp for a segmentation: SOURCE_DATE_EPOCH if set (reproducible-builds.org), else now."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)
