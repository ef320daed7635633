"""Images stored turned or mirrored: their frames are upright, and boxes and masks lie where they were drawn."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from cohort_runs import of, one
from cxr.annotations.regions import Annotation
from cxr.base.tables import read_table
from cxr.dicom.decode import decode_file
from cxr.geometry.affine import (
    FITS,
    affine_to_stored,
    affine_to_upright,
    boxes_to_frame,
    boxes_to_original,
    boxes_to_upright,
    fit_affine,
    frame_scales,
    to_frame,
    to_original,
    turn_from_affine,
)
from cxr.geometry.turns import EXIF_TURNS, UPRIGHT, Turn, turn_from_patient_axes
from cxr.ils.masks.evidence import compute_cardiothoracic_ratio
from cxr.imaging.cohort.header import read_header
from cxr.imaging.frames.decoding import read_image
from cxr.imaging.organs.quality import content_rectangle
from cxr.reporting.agreement.references import region_in_frame
from cxr.vlm.samples import covered_window
from dicom_files import dataset, encoded, picture, stored_values, write
from input_doors import frames_of

SIZE = 512
UPRIGHT_IMAGE = stored_values(picture(180, 240), 8, False)
HOW = {"window": "minmax", "percentiles": [0.5, 99.5], "burned_in": "keep"}
# the direction of the rows, then of the columns, and how numpy stores an upright image so
PATIENT = {
    ("L", "F"): lambda image: image,
    ("R", "F"): np.fliplr,
    ("L", "H"): np.flipud,
    ("R", "H"): lambda image: np.rot90(image, 2),
    ("F", "L"): np.transpose,
    ("F", "R"): lambda image: np.rot90(image, 1),
    ("H", "L"): lambda image: np.rot90(image, -1),
    ("H", "R"): lambda image: np.rot90(np.transpose(image), 2),
}
TURNS = list(EXIF_TURNS.values())


def dicom(directions: tuple[str, ...], stored: np.ndarray) -> bytes:
    return encoded(dataset(np.ascontiguousarray(stored), PatientOrientation=list(directions)))


@pytest.mark.parametrize("directions", PATIENT)
def test_a_dicom_is_turned_as_its_header_says(tmp_path, directions):
    stored = PATIENT[directions](UPRIGHT_IMAGE)
    decoded = read_image(write(tmp_path, dicom(directions, stored)), HOW)
    assert np.array_equal(decoded.grey, stored)  # the original pixels are those that are stored
    frame, affine = decoded.frame("pad")
    fitted = fit_affine(UPRIGHT_IMAGE.shape, SIZE, "pad")
    assert np.array_equal(frame, to_frame(UPRIGHT_IMAGE, fitted, SIZE))
    assert (turn_from_affine(affine) == UPRIGHT) is (directions == ("L", "F"))
    rows, columns = directions
    note = f"turned upright by its PatientOrientation '{rows} {columns}'"
    assert decoded.notes == (() if directions == ("L", "F") else (note,))


@pytest.mark.parametrize(
    "directions",
    [(), ("L",), ("R",), ("L", "R"), ("A", "F"), ("P", "F"), ("L", "L"), ("LEFT",), ("X", "Y"), ("F", "H"), ("\\",)],
)
def test_a_header_that_does_not_tell_turns_nothing(tmp_path, directions):
    decoded = read_image(write(tmp_path, dicom(directions, UPRIGHT_IMAGE)), HOW)
    assert decoded.turn == UPRIGHT
    assert decoded.notes == ()


def test_oblique_directions_are_turned_by_their_main_one(tmp_path):
    decoded = read_image(write(tmp_path, dicom(("RA", "FP"), np.fliplr(UPRIGHT_IMAGE))), HOW)
    assert decoded.turn == Turn(mirrored_x=True)


@pytest.mark.parametrize("directions", PATIENT)
def test_boxes_and_masks_drawn_on_the_stored_image_fit_its_frame(tmp_path, directions):
    """A viewer draws in the stored pixels of a DICOM: what is marked there is the same part of the body."""
    lesion = np.zeros(UPRIGHT_IMAGE.shape, np.uint8)
    lesion[20:70, 150:210] = 255
    image = PATIENT[directions](np.maximum(UPRIGHT_IMAGE // 4, lesion))
    (outcome,) = frames_of(tmp_path, {"a.dcm": dicom(directions, image)}).values()
    ys, xs = np.nonzero(PATIENT[directions](lesion))
    box = (float(xs.min()), float(ys.min()), xs.max() + 1.0, ys.max() + 1.0)
    in_frame_pixels = np.nonzero(outcome.frame > 128)
    found = [in_frame_pixels[1].min(), in_frame_pixels[0].min(), in_frame_pixels[1].max(), in_frame_pixels[0].max()]
    (corners,) = boxes_to_frame(np.array(box), outcome.to_original)
    assert np.abs(corners - found).max() < 2
    (back,) = boxes_to_original(corners, outcome.to_original)
    assert np.allclose(back, box)
    for mark in ({"box": box}, {"mask_source": [[box[0], box[1], box[2], box[1], box[2], box[3], box[0], box[3]]]}):
        region, why = region_in_frame(
            Annotation("a", "effusion", size=image.shape, **mark), "effusion", outcome.to_original, image.shape, SIZE
        )
        assert why == ""
        assert np.abs(region.boxes - found).max() < 3
        overlap = (region.mask & (outcome.frame > 128)).sum() / (region.mask | (outcome.frame > 128)).sum()
        assert overlap > 0.95
    mask = to_original((outcome.frame > 128).astype(np.uint8), outcome.to_original, image.shape)
    assert (mask.astype(bool) != (image > 128)).mean() < 0.01


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("fit", FITS)
def test_an_affine_of_any_turn(turn, fit):
    shape = (180, 240)
    fitted = fit_affine(shape, SIZE, fit)
    affine = affine_to_stored(fitted, turn, shape)
    stored = turn.undo(UPRIGHT_IMAGE)
    assert turn_from_affine(affine) == turn
    back, upright = affine_to_upright(affine, stored.shape)
    assert upright == shape
    assert np.allclose(back, fitted)
    assert np.allclose(frame_scales(affine), frame_scales(fitted))
    assert np.array_equal(turn.apply(stored), UPRIGHT_IMAGE)
    assert np.abs(to_frame(stored, affine, SIZE).astype(int) - to_frame(UPRIGHT_IMAGE, fitted, SIZE)).max() <= 1
    frame = stored_values(picture(SIZE, SIZE), 8, False)
    there = to_original(frame, affine, stored.shape, nearest=False).astype(int)
    assert np.abs(there - turn.undo(to_original(frame, fitted, shape, nearest=False))).max() <= 1
    assert np.allclose(content_rectangle(affine, stored.shape, SIZE), content_rectangle(fitted, shape, SIZE))
    assert covered_window(affine, stored.shape, (SIZE, SIZE)) == covered_window(fitted, shape, (SIZE, SIZE))
    box = np.array([[30.0, 40.0, 90.0, 170.0], [0, 0, 1, 1]])
    upright_boxes = boxes_to_upright(boxes_to_original(box, affine), turn, stored.shape)
    assert np.allclose(upright_boxes, boxes_to_original(box, fitted))
    assert boxes_to_frame(np.zeros((0, 4)), affine).shape == (0, 4)


@pytest.mark.parametrize("turn", TURNS)
def test_the_cardiothoracic_ratio_does_not_depend_on_how_an_image_is_stored(turn):
    heart, lungs = np.zeros((2, SIZE, SIZE), bool)
    heart[200:400, 180:330], lungs[100:450, 60:460] = True, True
    fitted = fit_affine((180, 240), SIZE, "stretch")
    heart_bits, lung_bits = (np.packbits(mask, axis=-1) for mask in (heart, lungs))
    affine = affine_to_stored(fitted, turn, (180, 240))
    assert compute_cardiothoracic_ratio(heart_bits, lung_bits, affine) == pytest.approx(150 / 400)


def test_turns_of_a_patient():
    assert {turn_from_patient_axes(*directions) for directions in PATIENT} == set(TURNS)
    for directions in (("L", "R"), ("A", "F"), ("", ""), ("L", ""), ("F", "H"), ("", "F")):
        assert turn_from_patient_axes(*directions) is None


# ----------------------------------------------------------------------------------------------- EXIF


def picture_file(orientation: int, stored: np.ndarray, kind: str) -> bytes:
    """Return a PNG or JPEG with an EXIF orientation; "late PNG": with the chunk behind the pixels."""
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    image = Image.fromarray(np.ascontiguousarray(stored))
    if kind == "JPEG":
        image.save(file, "JPEG", quality=97, subsampling=0, exif=exif.tobytes())
        return file.getvalue()
    image.save(file, "PNG", exif=exif.tobytes())
    data = file.getvalue()
    if kind == "PNG":
        return data
    at = data.index(b"eXIf") - 4
    chunk = data[at : at + 12 + int.from_bytes(data[at : at + 4], "big")]
    return data.replace(chunk, b"").replace(data[-12:], chunk + data[-12:])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "late PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_upright_as_viewers_show_it(tmp_path, kind, orientation):
    """Its original pixels are the upright ones, because that is where a viewer's boxes lie; Pillow is the viewer."""
    stored = EXIF_TURNS[orientation].undo(UPRIGHT_IMAGE)
    path = write(tmp_path, picture_file(orientation, stored, kind), "a.png")
    result = decode_file(path)
    with Image.open(path) as viewed:
        assert np.abs(result.values.astype(int) - np.asarray(ImageOps.exif_transpose(viewed))).max() <= 1
    assert np.abs(result.values.astype(int) - UPRIGHT_IMAGE).max() <= (12 if kind == "JPEG" else 0)
    assert result.turn == UPRIGHT
    assert read_header(path).size == (180, 240)
    note = [f"turned upright by its EXIF orientation, {orientation}"]
    assert result.notes == ([] if orientation == 1 else note)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_is_none_turns_nothing(tmp_path, kind, orientation):
    result = decode_file(write(tmp_path, picture_file(orientation, UPRIGHT_IMAGE, kind), "a.png"))
    assert result.values.shape == (180, 240)
    assert result.notes == []


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_damaged_exif_data_turn_nothing(tmp_path, kind):
    data = picture_file(6, UPRIGHT_IMAGE, kind)
    start = data.index(b"Exif\0\0" if kind == "JPEG" else b"eXIf") + (6 if kind == "JPEG" else 4)
    for number in range(12):
        damaged = bytearray(data)
        damaged[start + number] ^= 0xFF
        if kind == "JPEG":
            assert decode_file(write(tmp_path, bytes(damaged), "a.jpg")).values.shape in ((180, 240), (240, 180))


def test_transparency_is_turned_too(tmp_path):
    pixels = np.dstack([UPRIGHT_IMAGE] * 3 + [np.full(UPRIGHT_IMAGE.shape, 255, np.uint8)])
    pixels[:20, :30, 3] = 0
    stored = EXIF_TURNS[6].undo(pixels)
    result = decode_file(write(tmp_path, picture_file(6, stored, "PNG"), "a.png"))
    assert np.array_equal(~result.valid, pixels[..., 3] == 0)


# ------------------------------------------------------------------------------------------- the ledger


def test_corrections_are_a_table_beside_the_frames(tmp_path):
    wrong = encoded(dataset(stored_values(picture(180, 240), 12, False), 10))
    files = {"a.dcm": dicom(("R", "F"), np.fliplr(UPRIGHT_IMAGE)), "b.dcm": wrong, "c.dcm": of()}
    outcomes = frames_of(tmp_path, files)
    assert all(outcome.frame is not None for outcome in outcomes.values())
    rows = read_table(tmp_path / "frames.corrected.parquet").rows()
    assert rows == [
        ("i0", "s0", "turned upright by its PatientOrientation 'R F'"),
        ("i1", "s1", "values need 12 bits, header says BitsStored 10"),
    ]


def test_a_view_by_the_orientation_is_still_told(tmp_path):
    assert one(tmp_path, of(ViewPosition=None, PatientOrientation=["A", "F"])).reasons == {"i": "not_frontal"}
