"""One image file, decoded as the workflow decodes those of a cohort: for questions about it."""

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
    """A decoded image: grey uint8 (rows, columns) as it is stored, its upright frame, the affine from frame to grey.

    ``sides``: the patient's sides from left to right of the upright image; ``notes``: corrections of the header.
    """

    grey: np.ndarray
    frame: np.ndarray
    affine: np.ndarray
    sides: tuple[str, str] = SIDES
    notes: tuple[str, ...] = ()

    def list_notes(self) -> list[str]:
        """Return what a reader of answers about the image must know."""
        mirrored = "the header says that the image is mirrored; the model takes the image's left as right"
        return [*(f"the image: {note}" for note in self.notes), *[mirrored] * (self.sides != SIDES)]

    def upright(self, stored: np.ndarray) -> np.ndarray:
        """Return an array (rows, columns) of the stored image's pixels upright, as the frame shows it."""
        return turn_from_affine(self.affine).apply(stored)


def read_sides(header: Dataset | None) -> tuple[str, str]:
    """Return the patient's sides from the image's left to its right: as usual, unless the header says otherwise."""
    towards = str((list(header.get("PatientOrientation") or ()) or [""])[0]) if header is not None else ""
    return SIDES[::-1] if towards.upper().startswith("R") else SIDES


def decode_image_file(path: str, cohort: dict, frames: dict) -> tuple[FramedImage, Dataset | None]:
    """Decode a DICOM, PNG or JPEG file as the workflow does: (picture, DICOM header or None).

    ``cohort``, ``frames``: options of those stages. Raises UserError for a file that is not a frontal chest X-ray or
    cannot be decoded. A file that does not state its view or body part is accepted.
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
    """Return the mask, bool (rows, columns), of logits (T, T) that cover the frame; outside the frame it is empty."""
    scale = picture.frame.shape[0] / logits.shape[0]
    affine = picture.affine.copy()
    affine[:, :2] *= scale
    return to_original(logits, affine, picture.grey.shape, nearest=False) > 0


def segmentation_time() -> datetime:
    """Return the time stamp of the segmentation: now, or SOURCE_DATE_EPOCH if it is set (reproducible-builds.org)."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)
