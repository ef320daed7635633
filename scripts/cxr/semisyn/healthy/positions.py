"""Read how the patient was positioned: from the cohort's tables, else from the DICOM header."""

import re
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from cxr.base.faults import broken_part
from cxr.base.regular_files import open_regular
from cxr.base.user_tables import read_frame
from cxr.dicom.files import HEAD_BYTES, HeaderError, detect_file_kind, get_text, normalize_text, read_dicom

ERECT, SEMI, SITTING, RECUMBENT = "Erect", "Semi-erect", "Sitting", "Recumbent"
POSITIONS = (ERECT, SEMI, SITTING, RECUMBENT)
METADATA = "PatientOrientationCodeSequence_CodeMeaning"
"""Column of MIMIC-CXR-JPG's metadata table with the position."""
MANIFEST = "position"
"""Column of a manifest with the position."""
FIELDS = ("PatientOrientationCodeSequence", "PatientPosition")
"""Header elements (0054,0410) and (0018,5100); the first that is understood counts."""
_WORDS = (
    # "semi-erect" holds "erect"
    (SEMI, r"\bSEMI[ -]?(?:ERECT|UPRIGHT|RECUMBENT)|\bF-10460\b"),
    (ERECT, r"\b(?:ERECT|UPRIGHT|STANDING|ORTHOSTATIC)\b|\bF-10440\b"),
    (SITTING, r"\b(?:SITTING|SEATED)\b"),
    (RECUMBENT, r"\b(?:RECUMBENT|SUPINE|PRONE|DECUBITUS|LYING|HFS|HFP|HFDR|HFDL|FFS|FFP|FFDR|FFDL)\b|\bF-10450\b"),
)


def parse_position(text: str) -> str:
    """Return one of :data:`POSITIONS` for a text of a table or header, "" if it names none."""
    normalised = normalize_text(text)
    return next((name for name, words in _WORDS if re.search(words, normalised)), "")


def read_header_position(path: str | Path) -> str:
    """Return the position in a DICOM header, "" without one, for another file, or one that cannot be read."""
    try:
        with open_regular(path) as file:
            if detect_file_kind(file.read(HEAD_BYTES)) != "dicom":
                return ""
        header = read_dicom(path, list(FIELDS))
    except (OSError, HeaderError) as error:
        if broken_part(error):
            raise
        return ""
    return next(filter(None, (parse_position(get_text(header, name)) for name in FIELDS)), "")


def read_table_positions(images: pl.DataFrame, metadata: str | Path | None) -> Mapping[str, str]:
    """Return {image_id: position} of MIMIC's metadata table and of a manifest's column.

    ``images``: the cohort's table of images. Raises UserError for a metadata table that cannot be read.
    """
    text_by_image: dict[str, str] = {}
    if MANIFEST in images.columns:
        text_by_image |= dict(images.select("image_id", MANIFEST).iter_rows())
    if metadata:
        table = read_frame(metadata, "cohort.tables", ("dicom_id", METADATA), ids=("dicom_id",))
        if METADATA in table.columns:
            text_by_image |= dict(table.select("dicom_id", METADATA).iter_rows())
    kinds = {text: parse_position(text or "") for text in set(text_by_image.values())}
    return {image: kinds[text] for image, text in text_by_image.items() if kinds[text]}
