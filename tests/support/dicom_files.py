"""DICOM files made for the tests: any encoding, any header, and ways to damage them."""

import io
import random
import tempfile
from pathlib import Path

import cv2
import numpy as np
from pydicom import uid
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate

from conftest import SHARED

SHARED_OR_NONE = SHARED if SHARED.is_dir() else None
NATIVE = (
    uid.ImplicitVRLittleEndian,
    uid.ExplicitVRLittleEndian,
    uid.ExplicitVRBigEndian,
    uid.DeflatedExplicitVRLittleEndian,
)
GDCM_NAMES = {uid.JPEGLossless: "JPEGLosslessProcess14", uid.JPEGLosslessSV1: "JPEGLosslessProcess14_1"}
LOSSLESS = (*NATIVE, uid.RLELossless, uid.JPEGLossless, uid.JPEGLosslessSV1, uid.JPEGLSLossless, uid.JPEG2000Lossless)


def picture(rows: int = 96, columns: int = 80) -> np.ndarray:
    """Return a smooth, textured float picture in 0..1 that is the same each time, its extremes included."""
    y, x = np.mgrid[:rows, :columns]
    image = np.sin(x / 9.0) * np.cos(y / 13.0) + 0.3 * np.sin((x * y) / 97.0) + 0.01 * ((x * 7 + y * 13) % 11)
    return (image - image.min()) / np.ptp(image)


def nih_picture(shared: Path | None, number: int = 0) -> np.ndarray:
    """Return a real chest X-ray (0..1, 256 px), or the synthetic picture where there are no real data."""
    if shared is None:
        return picture()
    path = sorted((shared / "data/nih/images").glob("*.png"))[number]
    image = cv2.resize(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), (256, 256), interpolation=cv2.INTER_AREA)
    return (image - float(image.min())) / float(np.ptp(image))


def stored_values(image: np.ndarray, bits: int, signed: bool) -> np.ndarray:
    """Return ``image`` (0..1) spread over all values of ``bits`` bits."""
    kind = np.dtype(f"{'i' if signed else 'u'}{1 if bits <= 8 else 2}")
    low = -(2 ** (bits - 1)) if signed else 0
    return (np.rint(image * (2**bits - 1)) + low).astype(kind)


def dataset(values: np.ndarray, bits: int | None = None, **tags: object) -> Dataset:
    """Return a frontal chest X-ray with stored ``values`` (rows, columns); a tag of None is left out."""
    made = Dataset()
    made.SOPClassUID = uid.ComputedRadiographyImageStorage
    made.SOPInstanceUID = "1.2.826.0.1.3680043.8.498.1"
    made.Modality, made.BodyPartExamined, made.ViewPosition = "CR", "CHEST", "PA"
    made.Rows, made.Columns = values.shape[:2]
    made.SamplesPerPixel = 1
    made.PhotometricInterpretation = "MONOCHROME2"
    made.BitsAllocated = values.dtype.itemsize * 8
    made.BitsStored = bits or made.BitsAllocated
    made.HighBit = made.BitsStored - 1
    made.PixelRepresentation = int(values.dtype.kind == "i")
    made.PixelData = values.tobytes()
    for name, value in tags.items():
        if value is None:
            delattr(made, name)
        else:
            setattr(made, name, value)
    return made


def _saved(made: Dataset, syntax: uid.UID) -> bytes:
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = syntax
    stream = io.BytesIO()
    made.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def _gdcm(data: bytes, syntax: uid.UID) -> bytes:
    import gdcm

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.dcm"), Path(folder, "after.dcm")
        before.write_bytes(data)
        reader = gdcm.ImageReader()
        reader.SetFileName(str(before))
        assert reader.Read()
        change = gdcm.ImageChangeTransferSyntax()
        change.SetTransferSyntax(gdcm.TransferSyntax(getattr(gdcm.TransferSyntax, GDCM_NAMES[syntax])))
        change.SetInput(reader.GetImage())
        assert change.Change()
        writer = gdcm.ImageWriter()
        writer.SetFile(reader.GetFile())
        writer.SetImage(change.GetOutput())
        writer.SetFileName(str(after))
        assert writer.Write()
        return after.read_bytes()


def encoded(made: Dataset, syntax: uid.UID = uid.ExplicitVRLittleEndian) -> bytes:
    """Return the bytes of a file in one of the syntaxes of :data:`LOSSLESS`, or JPEG baseline."""
    if syntax == uid.JPEGBaseline8Bit:
        values = np.frombuffer(made.PixelData, np.uint8).reshape(made.Rows, made.Columns)
        made.PixelData = encapsulate([cv2.imencode(".jpg", values, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()])
        return _saved(made, syntax)
    if syntax in GDCM_NAMES:
        return _gdcm(_saved(made, uid.ExplicitVRLittleEndian), syntax)
    if syntax in NATIVE:
        if syntax == uid.ExplicitVRBigEndian and made.BitsAllocated == 16:
            made.PixelData = np.frombuffer(made.PixelData, "<u2").astype(">u2").tobytes()
        return _saved(made, syntax)
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
    made.compress(syntax, generate_instance_uid=False)
    return _saved(made, syntax)


def damaged(data: bytes, kind: str, rng: random.Random) -> bytes:
    """Return ``data`` cut off, with bits flipped anywhere, with a fuzzed header, or replaced by noise."""
    if kind == "cut":
        return data[: rng.randrange(len(data))]
    if kind == "noise":
        return rng.randbytes(rng.randrange(1, 4000))
    end = len(data) if kind == "bits" else min(len(data), 900)
    start = 0 if kind == "bits" else 128
    mangled = bytearray(data)
    for _ in range(rng.choice([1, 3, 20, 100])):
        mangled[rng.randrange(start, end)] ^= 1 << rng.randrange(8)
    return bytes(mangled)


def write(folder: Path, data: bytes, name: str = "a.dcm") -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def expected_grey(values: np.ndarray, low: float | None = None, high: float | None = None) -> np.ndarray:
    """Min-max to 0..255, in float, from the definition."""
    values = values.astype(np.float64)
    low, high = values.min() if low is None else low, values.max() if high is None else high
    return np.rint(np.clip((values - low) / (high - low), 0, 1) * 255).astype(np.uint8)
