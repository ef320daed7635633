"""Masks as a DICOM Segmentation of the X-ray that they were drawn on, in its own pixels."""

import copy
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import highdicom
import numpy as np
from pydicom.dataset import Dataset
from pydicom.sr.coding import Code
from pydicom.uid import UID, generate_uid

from ils.core.labels import LESIONS

# It tells of every object by its identifier what it copies from it.
logging.getLogger("highdicom").setLevel(logging.WARNING)

NAME = "cxr-ils"
CODES = {
    "cardiomegaly": Code("8186001", "SCT", "Cardiomegaly"),
    "pneumonia": Code("233604007", "SCT", "Pneumonia"),
    "atelectasis": Code("46621007", "SCT", "Atelectasis"),
    "opacity": Code("112001", "DCM", "Opacity"),
    "consolidation": Code("95436008", "SCT", "Lung consolidation"),
    "edema": Code("19242006", "SCT", "Pulmonary edema"),
    "effusion": Code("60046008", "SCT", "Pleural effusion"),
}
"""What a segment shows: SNOMED CT, and DICOM's own code (PS3.16 CID 6104) where it has none for the X-ray's sign."""
LESION = Code("52988006", "SCT", "Lesion")
ABNORMAL = Code("49755003", "SCT", "Morphologically Abnormal Structure")
"""The category of all of them (PS3.16 CID 7150)."""
AI = Code("123110", "DCM", "Artificial Intelligence")
NEEDED = ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "SOPClassUID", "Rows", "Columns")
"""Without these a picture cannot be referred to."""
MAY_BE_EMPTY = (
    "PatientID", "PatientName", "PatientBirthDate", "PatientSex", "StudyID", "StudyDate", "StudyTime",
    "AccessionNumber", "ReferringPhysicianName",
)  # fmt: skip
"""Elements that the standard wants, if only empty (type 2)."""
SERIES_NUMBER = 900
"""Series of a study are numbered by its modalities; this one is out of their way."""
LABEL_LENGTH, TEXT_LENGTH = 64, 1024
"""Longest segment label and description (VR LO and ST), characters."""


class NoSegmentation(Exception):
    """No segmentation can be made; the message says why, in one clause."""


@dataclass(frozen=True)
class Segment:
    """A mask, bool (rows, columns) in the picture's pixels, and what it was drawn for."""

    instruction: str
    mask: np.ndarray


def lesion_of(instruction: str) -> str | None:
    """Return the first lesion type that an instruction names, None if it names none of the seven."""
    words = instruction.casefold()
    places = {words.find(lesion): lesion for lesion in LESIONS if lesion in words}
    return places[min(places)] if places else None


def segmentation(header: Dataset, segments: Sequence[Segment], *, version: str, model: str, made: datetime) -> Dataset:
    """Return a binary segmentation with one segment for each mask that is not empty.

    ``header``: the picture's dataset (pixels are not needed). ``version``: of this program; ``model``: name of the
    model; ``made``: when. The same arguments give the same bytes. Raises NoSegmentation where all masks are empty or
    the header lacks what a reference to the picture needs.
    """
    shown = [segment for segment in segments if segment.mask.any()]
    if not shown:
        raise NoSegmentation("all masks are empty")
    source = _referable(header)
    if (int(source.Rows), int(source.Columns)) != shown[0].mask.shape:
        raise ValueError("masks must have the picture's rows and columns")
    packed = [np.packbits(segment.mask).tobytes().hex() for segment in shown]
    seeds = [str(source.SOPInstanceUID), version, model, made.isoformat(), *(s.instruction for s in shown), *packed]
    pixels = np.stack([segment.mask for segment in shown], axis=-1)[None].astype(np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some quote the patient's name
        made_of = highdicom.seg.Segmentation(
            [source],
            pixels,
            highdicom.seg.SegmentationTypeValues.BINARY,
            [_description(number, segment, version, model) for number, segment in enumerate(shown, 1)],
            series_instance_uid=_uid("series", seeds),
            series_number=SERIES_NUMBER,
            sop_instance_uid=_uid("instance", seeds),
            instance_number=1,
            manufacturer=NAME,
            manufacturer_model_name="ROSALIA",
            software_versions=version,
            device_serial_number="1",
            content_description="Lesions by instruction",
            omit_empty_frames=False,
        )
    _date(made_of, made)
    organisation = _uid("dimensions", seeds)
    made_of.DimensionOrganizationSequence[0].DimensionOrganizationUID = organisation
    for index in made_of.DimensionIndexSequence:
        index.DimensionOrganizationUID = organisation
    made_of.SpecificCharacterSet = "ISO_IR 192"
    return made_of


def _referable(header: Dataset) -> Dataset:
    missing = [name for name in NEEDED if not header.get(name)]
    if missing:
        raise NoSegmentation(f"the picture's header lacks {', '.join(missing)}")
    source = copy.copy(header)
    # A projection has no place in the patient's space; where a header claims one, highdicom would want all of it.
    if "FrameOfReferenceUID" in source:
        del source.FrameOfReferenceUID
    for name in MAY_BE_EMPTY:
        if name not in source:
            setattr(source, name, "")
    return source


def _description(number: int, segment: Segment, version: str, model: str) -> highdicom.seg.SegmentDescription:
    lesion = lesion_of(segment.instruction)
    description = highdicom.seg.SegmentDescription(
        segment_number=number,
        segment_label=(lesion or segment.instruction)[:LABEL_LENGTH],
        segmented_property_category=ABNORMAL,
        segmented_property_type=CODES[lesion] if lesion else LESION,
        algorithm_type=highdicom.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
        algorithm_identification=highdicom.AlgorithmIdentificationSequence(
            name=NAME, family=AI, version=version, parameters={"model": model}
        ),
    )
    description.SegmentDescription = segment.instruction[:TEXT_LENGTH]
    return description


def _uid(what: str, seeds: list[str]) -> UID:
    return generate_uid(entropy_srcs=[what, *seeds])


def _date(dataset: Dataset, made: datetime) -> None:
    day, clock = made.strftime("%Y%m%d"), made.strftime("%H%M%S")
    dataset.InstanceCreationDate = dataset.ContentDate = day
    dataset.InstanceCreationTime = dataset.ContentTime = clock
    for equipment in dataset.get("ContributingEquipmentSequence", ()):
        equipment.ContributionDateTime = day + clock
