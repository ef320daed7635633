"""Ask a model about one chest X-ray file: decode it as the workflow does, ask, and write the masks and overlays."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cxr.base.errors import UserError
from cxr.base.exclusions import REASONS
from cxr.dicom.decode import decode
from cxr.dicom.files import HEAD_BYTES, HeaderError, Rejected, file_kind, read_dicom
from cxr.geometry.affine import fit_affine, to_frame
from cxr.ils.inference.asking import Asker, InferenceOptions
from cxr.ils.inference.infer import check
from cxr.ils.inference.predict import Picture, predict, sides_of, write
from cxr.imaging.cohort.header import check_kind, check_view, read_header
from cxr.imaging.frames.window import to_grey


def picture_of(path: str, cohort: dict, frames: dict) -> tuple[Picture, object]:
    """Decode a DICOM, PNG or JPEG file as the workflow does: (picture, DICOM header or None).

    ``cohort``, ``frames``: options of those stages. Raises UserError for a file that is not a frontal chest X-ray or
    cannot be decoded. A file that does not state its view or body part is accepted.
    """
    try:
        header = read_header(path)
        check_kind(header, cohort["modalities"], cohort["body_parts"])
        check_view(header.view, header.view_field, cohort["views"], accept_unknown=True)
        grey = to_grey(decode(path, frames["max_pixels"]), frames["window"], frames["percentiles"])
        with open(path, "rb") as file:
            dicom = file_kind(file.read(HEAD_BYTES)) == "dicom"
        dataset = read_dicom(Path(path).read_bytes()) if dicom else None
    except Rejected as rejected:
        detail = f" ({rejected.detail})" if rejected.detail else ""
        raise UserError(f"{path}: {REASONS[rejected.reason]}{detail}: give a frontal chest X-ray") from None
    except (HeaderError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}): give a frontal chest X-ray") from None
    affine = fit_affine(grey.shape, frames["size"], frames["fit"])
    return Picture(grey, to_frame(grey, affine, frames["size"]), affine, sides_of(dataset)), dataset


def made_at() -> datetime:
    """Return the time stamp of the segmentation: now, or SOURCE_DATE_EPOCH if it is set (reproducible-builds.org)."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)


def run(
    *,
    model: str,
    image: str,
    instructions: Sequence[str],
    output: str,
    asking: dict,
    cohort: dict,
    frames: dict,
    compute: dict,
    code: str,
) -> dict:
    """Ask a model about the image in a file. Write the results into the folder ``output`` and return its answers.json.

    ``asking``, ``cohort``, ``frames``: options of the stages inference, cohort and frames; ``code``: the digest of the
    code, which a segmentation object states as its version. Raises UserError for a user's mistake.
    """
    if not image or not instructions:
        raise UserError("predict needs --config image=chest.dcm instruction='Segment the edema.'")
    options = InferenceOptions(**asking)
    check(options)
    picture, header = picture_of(image, cohort, frames)
    findings = predict(Asker.load(model, options, compute), picture, instructions)
    name = "/".join(Path(model).resolve().parts[-2:])
    return write(output, picture, findings, header=header, version=code, model=name, made=made_at())
