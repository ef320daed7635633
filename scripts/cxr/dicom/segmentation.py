"""Writing masks as a DICOM Segmentation, on the pixel grid of the X-ray to which they belong."""

import hashlib
import logging
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import highdicom
import numpy as np
from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.multival import MultiValue
from pydicom.sr.coding import Code
from pydicom.uid import UID, generate_uid

from cxr.base.atomic import atomic_file
from cxr.base.errors import out_of_memory
from cxr.base.faults import broken_part
from cxr.base.lesions import LESION_TYPES
from cxr.base.resources import load_resource
from cxr.base.vocabulary import LESIONS, side_of
from cxr.dicom.files import describe_error

# highdicom logs the elements that it copies, such as identifiers of the patient's images
logging.getLogger("highdicom").setLevel(logging.WARNING)

RESOURCE_FILES = ("codes.yaml",)
PROGRAM_NAME = "cxr-ils"
_CODE_TABLE = load_resource(RESOURCE_FILES[0])


CODES = {lesion.name: Code(*lesion.code) for lesion in LESION_TYPES}  # SNOMED CT, or DICOM's code if SNOMED has none
LESION, ABNORMAL, AI = (Code(*_CODE_TABLE[name]["code"]) for name in ("lesion", "category", "algorithm"))
ANATOMY = {name: Code(*entry["code"]) for name, entry in _CODE_TABLE["anatomy"].items()}
SIDE_CODES = {name: Code(*entry["code"]) for name, entry in _CODE_TABLE["sides"].items()}
PRIVATE_SCHEME = _CODE_TABLE["private"]  # coding scheme of private codes, for concepts without a standard one
REQUIRED_ELEMENTS = ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "SOPClassUID", "Rows", "Columns")
"""Header elements that are needed to refer to an image."""
EMPTY_ALLOWED_ELEMENTS = (
    "PatientID", "PatientName", "PatientBirthDate", "PatientSex", "StudyID", "StudyDate", "StudyTime",
    "AccessionNumber", "ReferringPhysicianName",
)  # fmt: skip
"""Elements that the standard requires but allows to be empty (type 2)."""
CHARACTER_SET = "ISO_IR 192"  # character set of the segmentations: UTF-8
_TIME_PATTERNS = {
    "DA": re.compile(r"(\d{4}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01]))?"),
    "TM": re.compile(r"(([01]\d|2[0-3])([0-5]\d([0-5]\d(\.\d{1,6})?)?)?)?"),
    "DT": re.compile(r"(\d{4,14}(\.\d{1,6})?([+-]\d{4})?)?"),
}
"""Patterns of valid dates and times, by value representation (PS3.5 6.2)."""
_FIRST_BULK_GROUP = 0x5000  # first group of curves, overlays and pixels
SERIES_NUMBER = 900  # series number of the segmentation, above the numbers that modalities assign in a study
MAX_LABEL_LENGTH, MAX_TEXT_LENGTH = 64, 1024  # maximum length of segment label and description (VR LO, ST), characters


class NoSegmentation(Exception):
    """Error if no segmentation can be made. The message is the reason, one clause."""


@dataclass(frozen=True)
class Segment:
    """A mask, and the instruction that the mask answers."""

    instruction: str
    mask: np.ndarray  # bool (rows, columns) on the image's pixel grid
    lesion: str | None = None  # lesion type, by default the type that the instruction names
    locations: tuple[str, ...] = ()  # labels of heart and lung zones
    name: str = ""  # tracking identifier of the segment, which is the mask's name in other files


def find_lesion(instruction: str) -> str | None:
    """Return the lesion type that an instruction names first, or None if it names no lesion type."""
    words = instruction.casefold()
    places = {words.find(lesion): lesion for lesion in LESIONS if lesion in words}
    return places[min(places)] if places else None


def encode_location(location: str) -> Dataset:
    """Encode a location as an item of the Anatomic Region Sequence: the body part, with its side as a modifier."""
    side = side_of(location)
    part = location.removeprefix(f"{side} ")
    item = highdicom.sr.CodedConcept.from_code(ANATOMY.get(part) or _make_private_code(part))
    if side:
        item.AnatomicRegionModifierSequence = [highdicom.sr.CodedConcept.from_code(SIDE_CODES[side])]
    return item


def _make_private_code(words: str) -> Code:
    return Code(hashlib.sha256(words.encode()).hexdigest()[:16].upper(), PRIVATE_SCHEME, words[:MAX_LABEL_LENGTH])


def build_segmentation(
    header: Dataset,
    segments: Sequence[Segment],
    *,
    version: str,
    model: str,
    created_at: datetime,
    device: str = "ROSALIA",
    content: str = "Lesions by instruction",
) -> Dataset:
    """Build a binary segmentation with one segment for each mask that is not empty.

    ``header`` is the image's dataset, with or without pixels. ``version`` is this program's version. ``model`` names
    the model that made the masks at the time ``created_at``. ``device`` is the manufacturer's model name, and
    ``content`` the content description. The same arguments give the same bytes. Invalid elements of the header are not
    copied. Raises NoSegmentation if all masks are empty or differ in size from the header, or if the header lacks a
    required element.
    """
    nonempty_segments = [segment for segment in segments if segment.mask.any()]
    if not nonempty_segments:
        raise NoSegmentation("all masks are empty")
    source = _clean_header(header)
    rows, columns = nonempty_segments[0].mask.shape
    if (int(source.Rows), int(source.Columns)) != (rows, columns):
        raise NoSegmentation(f"the header says {source.Rows} x {source.Columns}, the image is {rows} x {columns}")
    seeds = [str(source.SOPInstanceUID), version, model, created_at.isoformat()]
    seeds += [segment.instruction for segment in nonempty_segments]
    seeds += [np.packbits(segment.mask).tobytes().hex() for segment in nonempty_segments]
    numbered = enumerate(nonempty_segments, 1)
    arguments = {
        "pixel_array": np.stack([segment.mask for segment in nonempty_segments], axis=-1)[None].astype(np.uint8),
        "segmentation_type": highdicom.seg.SegmentationTypeValues.BINARY,
        "segment_descriptions": [_describe_segment(at, segment, version, model, seeds) for at, segment in numbered],
        "series_instance_uid": _make_uid("series", seeds),
        "series_number": SERIES_NUMBER,
        "sop_instance_uid": _make_uid("instance", seeds),
        "instance_number": 1,
        "manufacturer": PROGRAM_NAME,
        "manufacturer_model_name": device,
        "software_versions": version,
        "device_serial_number": "1",
        "content_description": content,
        "omit_empty_frames": False,
    }
    dataset = _build_without_odd_elements(source, arguments)
    day, clock = created_at.strftime("%Y%m%d"), created_at.strftime("%H%M%S")
    dataset.InstanceCreationDate = dataset.ContentDate = day
    dataset.InstanceCreationTime = dataset.ContentTime = clock
    for equipment in dataset.get("ContributingEquipmentSequence", ()):
        equipment.ContributionDateTime = day + clock
    organisation = _make_uid("dimensions", seeds)
    dataset.DimensionOrganizationSequence[0].DimensionOrganizationUID = organisation
    for index in dataset.DimensionIndexSequence:
        index.DimensionOrganizationUID = organisation
    dataset.SpecificCharacterSet = CHARACTER_SET
    return dataset


def save_segmentation(path: str | Path, header: Dataset, segments: Sequence[Segment], **facts: Any) -> str:
    """Write the segmentation that :func:`build_segmentation` makes with ``facts``. Return "", or why it wrote no file.

    Raises only errors of the machine and of broken libraries. An invalid header must not discard the model's answers.
    """
    try:
        dataset = build_segmentation(header, segments, **facts)
        with atomic_file(path) as temporary:
            dataset.save_as(temporary)
    except NoSegmentation as reason:
        return str(reason)
    except Exception as error:  # headers are odd in many ways
        if _is_machine_fault(error):
            raise
        return describe_error(error)
    return ""


def _build_without_odd_elements(source: Dataset, arguments: dict) -> Dataset:
    """Build the segmentation from all elements of ``source``. If highdicom refuses one, use only required elements."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some warnings quote the patient's name
        minimal_source = Dataset()
        for name in (*REQUIRED_ELEMENTS, "PatientID", "Modality", "SpecificCharacterSet"):
            minimal_source[name] = source[name]
        _fill_empty(minimal_source)
        for candidate in (source, minimal_source):
            try:
                return highdicom.seg.Segmentation([candidate], **arguments)
            except Exception as error:
                if _is_machine_fault(error):
                    raise
                failure = describe_error(error)
    raise NoSegmentation(failure)


def _fill_empty(header: Dataset) -> None:
    for name in EMPTY_ALLOWED_ELEMENTS:
        if name not in header:
            setattr(header, name, "")


def _is_machine_fault(error: Exception) -> bool:
    return out_of_memory(error) or bool(broken_part(error)) or getattr(error, "errno", None) is not None


def _clean_header(header: Dataset) -> Dataset:
    source, tags = Dataset(), list(header.keys())
    for tag in tags:
        try:
            element = header[tag]
        except Exception:  # damaged elements fail in many ways
            continue
        if element.tag.group < _FIRST_BULK_GROUP and not _is_odd(element):
            source.add(element)
    missing = [name for name in REQUIRED_ELEMENTS if not source.get(name)]
    if missing:
        raise NoSegmentation(f"the image's header lacks {', '.join(missing)}")
    # A projection has no position in patient space. If a header claims one, highdicom requires all elements of it.
    if "FrameOfReferenceUID" in source:
        del source.FrameOfReferenceUID
    _fill_empty(source)
    if not source.get("Modality"):
        source.Modality = "OT"  # highdicom requires a modality; the segmentation's own is SEG
    source.SpecificCharacterSet = CHARACTER_SET  # texts are already decoded, and highdicom lacks some sets
    return source


def _is_odd(element: DataElement) -> bool:
    """Return True for an invalid date, time or sex, such as the time 10:11:12 or the sex U."""
    if element.keyword == "PatientSex":
        return element.value not in ("", None, "M", "F", "O")
    pattern = _TIME_PATTERNS.get(element.VR)
    values = element.value if isinstance(element.value, MultiValue) else [element.value]
    return pattern is not None and not all(pattern.fullmatch(str(value or "").strip()) for value in values)


def _describe_segment(number: int, segment: Segment, version: str, model: str, seeds: list[str]) -> Dataset:
    lesion = segment.lesion or find_lesion(segment.instruction)
    label = ": ".join(filter(None, (lesion, ", ".join(segment.locations)))) or segment.instruction
    tracking = {"tracking_id": segment.name, "tracking_uid": _make_uid(segment.name, seeds)} if segment.name else {}
    description = highdicom.seg.SegmentDescription(
        segment_number=number,
        segment_label=label[:MAX_LABEL_LENGTH],
        segmented_property_category=ABNORMAL,
        segmented_property_type=CODES.get(lesion) or _make_private_code(lesion) if lesion else LESION,
        algorithm_type=highdicom.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
        algorithm_identification=highdicom.AlgorithmIdentificationSequence(
            name=PROGRAM_NAME, family=AI, version=version, parameters={"model": model}
        ),
        anatomic_regions=[encode_location(location) for location in segment.locations] or None,
        **tracking,
    )
    description.SegmentDescription = segment.instruction[:MAX_TEXT_LENGTH]
    return description


def _make_uid(kind: str, seeds: list[str]) -> UID:
    return generate_uid(entropy_srcs=[kind, *seeds])
