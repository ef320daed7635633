"""Determining the view (PA, AP or other) of an X-ray from a table or DICOM header fields."""

import re
from collections.abc import Iterable

from pydicom.dataset import Dataset

from cxr.dicom.files import get_text

OTHER = "OTHER"  # a known view that is neither PA nor AP: lateral, oblique, decubitus, axial …

CODE_FIELDS = ("ViewPosition", "ViewCodeSequence", "PatientPosition", "ProjectionEponymousNameCodeSequence")
TEXT_FIELDS = (
    "AcquisitionDeviceProcessingDescription", "SeriesDescription", "ProtocolName",
    "PerformedProcedureStepDescription", "StudyDescription",
)  # fmt: skip
FIELDS = (*CODE_FIELDS, "PatientOrientation", *TEXT_FIELDS)  # fields that may hold the view, the most reliable first

# PA and AP as SNOMED and SRT codes of projections (DICOM CID 4010), and written out
_SPELLINGS = (
    (re.compile("R-10214|272479007"), " PA "),
    (re.compile("R-10206|399348003"), " AP "),
    (re.compile(r"POSTER(?:O|IOR)[\s_-]*ANTERIOR"), " PA "),
    (re.compile(r"ANTER(?:O|IOR)[\s_-]*POSTERIOR"), " AP "),
    (re.compile(r"\bP[.-]A\b"), " PA "),
    (re.compile(r"\bA[.-]P\b"), " AP "),
)
_OTHER_WORDS = re.compile(r"(?:LAT|LATERAL\w*|OBL|OBLIQUE\w*|DECUB\w*|LORDOTIC|SWIMMERS?|XTABLE|TANGENTIAL|PROFILE?)$")
# Used only for fields that contain codes: in free text, two letters may mean anything ("120 ML").
_OTHER_CODES = {
    "LL", "RL", "LLAT", "RLAT", "LLD", "RLD", "LLO", "RLO", "LAO", "RAO", "LPO", "RPO", "LM", "ML", "AX", "AXIAL",
}  # fmt: skip


def _match_views(text: str, codes: bool) -> set[str]:
    for pattern, view in _SPELLINGS:
        text = pattern.sub(view, text)
    words = set(re.findall(r"[A-Z]+", text))
    is_other = any(_OTHER_WORDS.match(word) for word in words) or bool(codes and words & _OTHER_CODES)
    return (words & {"PA", "AP"}) | ({OTHER} if is_other else set())


def parse_view_code(text: str) -> str | None:
    """Return PA, AP or OTHER for a view field ("AP LLD" is OTHER); None if it names no view, or both PA and AP."""
    views = _match_views(text.upper(), codes=True)
    if OTHER in views:
        return OTHER
    return views.pop() if len(views) == 1 else None


def parse_view_text(text: str) -> str | None:
    """Return the view in a description; None if it mentions no view or several views ("CHEST PA AND LAT")."""
    views = _match_views(text.upper(), codes=False)
    return views.pop() if len(views) == 1 else None


def parse_view_orientation(text: str) -> str | None:
    r"""Return OTHER if the rows of the image run front to back (PatientOrientation ``A\F`` …), else None."""
    return OTHER if text[:1] in ("A", "P") else None


def first_view(fields: Iterable[tuple[str, str]]) -> tuple[str | None, str]:
    """Return (view, field) for the first (field, upper-case text) that states a view; (None, "") if none does."""
    readers = dict.fromkeys(CODE_FIELDS, parse_view_code) | {"PatientOrientation": parse_view_orientation}
    for name, text in fields:
        if text and (view := readers.get(name, parse_view_text)(text)) is not None:
            return view, name
    return None, ""


def read_view(dataset: Dataset) -> tuple[str | None, str]:
    """Return the view (PA, AP, OTHER or None) in a DICOM header, and the field that states it."""
    return first_view((name, get_text(dataset, name)) for name in FIELDS)
