"""Writing images in file formats that archives use: DICOM in many encodings, PNG, JPEG, and broken files.

UIDs are derived from the names of image and study, so that the same arguments give the same bytes.
"""

import hashlib
import logging
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

import cv2
import gdcm
import numpy as np
import pydicom
from pydicom import uid
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate

from cxr.base.resources import load_resource

# The encoder logs a message for every tile.
logging.getLogger("openjpeg.encode").setLevel(logging.WARNING)

PADDING_VALUE = 0
PADDED_ROWS = 6  # rows of padding at the top and the bottom of a padded image


@dataclass(frozen=True)
class Encoding:
    """How pixels are stored. ``tolerance``: maximum error of a lossy encoding, as a fraction of the range."""

    syntax: str
    bits: int
    mono1: bool = False
    signed: bool = False
    slope: float = 1.0
    intercept: float = 0.0
    padded: bool = False
    tolerance: float = 0.0


RESOURCE_FILES = ("phantom/plan.yaml",)
_ENCODINGS = load_resource(RESOURCE_FILES[0])["encodings"]
DICOM_ENCODINGS = {name: Encoding(**fields) for name, fields in _ENCODINGS.items() if fields}
PLUGINS = {"RLELossless": "pydicom", "JPEGLS": "pyjpegls", "JPEG2000": "pylibjpeg"}
"""{start of a transfer syntax: pydicom's encoder}, fixed so that bytes never change. GDCM crashes on some sizes."""
FILE_ENCODINGS = {"png_8": ".png", "png_16": ".png", "jpeg_file": ".jpg"}  # {encoding other than DICOM: file extension}


def _uid(*parts: str) -> str:
    digest = hashlib.blake2b("/".join(parts).encode(), digest_size=16).digest()
    return f"2.25.{uuid.UUID(bytes=digest).int}"


def stored_values(image: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Convert an image in 0..1 to pixels (H, W) that use all bits of ``encoding``, inverted for MONOCHROME1."""
    top = 2**encoding.bits - 1
    values = np.round((1.0 - image if encoding.mono1 else image) * top).astype(np.int64)
    if encoding.padded:
        values = np.clip(values, PADDING_VALUE + 1, top)
        values[:PADDED_ROWS] = values[-PADDED_ROWS:] = PADDING_VALUE
    if encoding.signed:
        return (values - 2 ** (encoding.bits - 1)).astype(np.int16)
    return values.astype(np.uint8 if encoding.bits == 8 else np.uint16)


def _header(image_id: str, study_id: str, subject_id: str, view: str, acquired: str) -> Dataset:
    ds = Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
    ds.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    ds.SOPInstanceUID = _uid("image", image_id)
    ds.StudyInstanceUID = _uid("study", study_id)
    ds.SeriesInstanceUID = _uid("series", image_id)
    ds.PatientID = subject_id
    ds.PatientName = "SYNTHETIC^PHANTOM"
    ds.PatientBirthDate = ds.PatientSex = ds.AccessionNumber = ds.ReferringPhysicianName = ""
    ds.StudyID = ds.SeriesNumber = ds.InstanceNumber = "1"
    date, time = acquired.split("T")
    ds.StudyDate = ds.AcquisitionDate = date.replace("-", "")
    ds.StudyTime = ds.AcquisitionTime = time.replace(":", "")
    ds.Manufacturer = "cxr-ils synthetic"
    ds.Modality, ds.BodyPartExamined = "DX", "CHEST"
    # As in archives, the view is mostly in ViewPosition, and sometimes in another field.
    where = int.from_bytes(hashlib.blake2b(image_id.encode(), digest_size=1).digest(), "big") % 10
    ds.ViewPosition = view if where < 7 else ""
    if where >= 7:
        field, text = ("PatientPosition", view) if where < 9 else ("SeriesDescription", f"CHEST {view}")
        setattr(ds, field, text)
    return ds


def _describe_pixels(ds: Dataset, values: np.ndarray, encoding: Encoding) -> None:
    ds.Rows, ds.Columns = values.shape
    ds.SamplesPerPixel = 1
    ds.PhotometricInterpretation = "MONOCHROME1" if encoding.mono1 else "MONOCHROME2"
    ds.BitsAllocated = 8 * values.itemsize
    ds.BitsStored, ds.HighBit = encoding.bits, encoding.bits - 1
    ds.PixelRepresentation = int(encoding.signed)
    if (encoding.slope, encoding.intercept) != (1.0, 0.0):
        ds.RescaleSlope, ds.RescaleIntercept, ds.RescaleType = encoding.slope, encoding.intercept, "US"
    if encoding.padded:
        ds.PixelPaddingValue = PADDING_VALUE
    ds.PixelData = values.tobytes()
    ds["PixelData"].VR = "OB" if values.itemsize == 1 else "OW"


def _jpeg_lossless(ds: Dataset) -> bytes:
    """Encode the frame as lossless JPEG (process 14, first-order prediction), which pydicom cannot write."""
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder, "plain.dcm"), Path(folder, "packed.dcm")
        ds.save_as(plain, enforce_file_format=True)
        reader, change, writer = gdcm.ImageReader(), gdcm.ImageChangeTransferSyntax(), gdcm.ImageWriter()
        reader.SetFileName(str(plain))
        change.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.JPEGLosslessProcess14_1))
        is_read = reader.Read()
        change.SetInput(reader.GetImage())
        is_encoded = is_read and change.Change()
        writer.SetFileName(str(packed))
        writer.SetFile(reader.GetFile())
        writer.SetImage(change.GetOutput())
        if not (is_encoded and writer.Write()):
            raise RuntimeError("gdcm cannot encode lossless JPEG")
        return pydicom.dcmread(packed).PixelData


def _compress(ds: Dataset, values: np.ndarray, encoding: Encoding) -> None:
    name, syntax = encoding.syntax, getattr(uid, encoding.syntax)
    if name == "JPEGBaseline8Bit":
        done, stream = cv2.imencode(".jpg", values, [cv2.IMWRITE_JPEG_QUALITY, 92])
        if not done:
            raise RuntimeError("OpenCV cannot encode JPEG")
        ds.PixelData = encapsulate([stream.tobytes()])
        ds.LossyImageCompression, ds.LossyImageCompressionMethod = "01", "ISO_10918_1"
    elif name == "JPEGLosslessSV1":
        ds.PixelData = _jpeg_lossless(ds)
    elif plugin := next((PLUGINS[start] for start in PLUGINS if name.startswith(start)), ""):
        options = {"JPEG2000": {"j2k_cr": [10]}, "JPEGLSNearLossless": {"jls_error": 2}}.get(name, {})
        ds.compress(syntax, encoding_plugin=plugin, generate_instance_uid=False, **options)
    ds.file_meta.TransferSyntaxUID = syntax
    if syntax.is_encapsulated:
        ds["PixelData"].VR = "OB"
        ds["PixelData"].is_undefined_length = True


def make_dicom(image: np.ndarray, name: str, **identity: str) -> Dataset:
    """Convert an image, float32 in 0..1, to a Dataset. ``name``: key of DICOM_ENCODINGS; ``identity``: ids, view and
    time of acquisition."""
    encoding = DICOM_ENCODINGS[name]
    values = stored_values(image, encoding)
    ds = _header(**identity)
    _describe_pixels(ds, values, encoding)
    _compress(ds, values, encoding)
    return ds


def write_image_file(path: Path, image: np.ndarray, name: str) -> None:
    """Write an image as PNG (8 or 16 bit) or JPEG. ``name``: key of ``FILE_ENCODINGS``."""
    top, kind = (65535, np.uint16) if name == "png_16" else (255, np.uint8)
    values = np.round(image * top).astype(kind)
    quality = [cv2.IMWRITE_JPEG_QUALITY, 93] if name == "jpeg_file" else []
    done, data = cv2.imencode(FILE_ENCODINGS[name], values, quality)
    if not done:
        raise RuntimeError(f"OpenCV cannot encode {name}")
    path.write_bytes(data.tobytes())


def write_broken(path: Path, ds: Dataset, fault: str) -> None:
    """Write a Dataset with ``fault``, such as "truncated"; "missing" writes no file. Raises ValueError for others."""
    if fault == "missing":
        return
    if fault in ("empty", "text"):
        text = "This is a text file whose name ends like that of an image.\n" if fault == "text" else ""
        path.write_text(text, encoding="utf-8")
        return
    if fault == "ct":
        ds.Modality = "CT"
    elif fault == "knee":
        ds.BodyPartExamined = "KNEE"
    elif fault in ("no_view", "lateral"):
        ds.ViewPosition = "LL" if fault == "lateral" else ""
        for name in ("PatientPosition", "SeriesDescription"):
            ds.pop(name, None)
    elif fault == "multi_frame":
        ds.NumberOfFrames = 2
        ds.PixelData = ds.PixelData * 2
    elif fault != "truncated":
        raise ValueError(f"unknown fault {fault!r}")
    ds.save_as(path, enforce_file_format=True)
    if fault == "truncated":
        data = path.read_bytes()
        path.write_bytes(data[: len(data) * 6 // 10])
