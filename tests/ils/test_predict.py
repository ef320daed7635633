"""One image asked about from the command line: geometry, files, and the DICOM segmentation when read."""

import io
import json
import os
import subprocess
import sys
from datetime import datetime

import cv2
import highdicom
import numpy as np
import pydicom
import pytest
from matplotlib.figure import Figure
from pydicom import uid

import predict
from asking_options import OPTIONS
from conftest import ROOT, every
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.vocabulary import LESIONS
from cxr.dicom.segmentation import CODES, LESION, NoSegmentation, Segment, build_segmentation, find_lesion
from cxr.geometry.affine import fit_affine
from cxr.ils.inference.infer import run_split
from cxr.ils.inference.settings import InferenceOptions
from cxr.imaging.one_image import FramedImage, project_mask, read_sides
from cxr.plotting.overlay import draw_overlay
from dicom_files import dataset, encoded, write
from tiny_rosalia import ANSWERS, NONE, ONE, TWO, Tiny, disc_of, frame, lines_of, make, read

DX = uid.DigitalXRayImageStorageForPresentation
PLACE = {"FrameOfReferenceUID": "1.2.9", "ImagePositionPatient": [0, 0, 0]}
STUDY = {
    "StudyInstanceUID": "1.2.3", "SeriesInstanceUID": "1.2.3.4", "PatientID": "secret-id", "PatientName": "Müller^Eva",
    "SpecificCharacterSet": "ISO_IR 100",
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Tiny:
    return make(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def fixed_time(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def ask(tiny: Tiny, image: str, folder, *instructions: str, more: tuple = ()) -> dict:
    """Run the program; returns its answers.json."""
    given = [part for text in instructions or (ONE,) for part in ("--instruction", text)]
    arguments = ["--model", str(tiny.model), "--image", str(image), "--output", str(folder), *given, *more]
    assert predict.main(arguments) == 0
    return json.loads((folder / "answers.json").read_text(encoding="utf-8"))


def mask_of(folder, number: int = 1) -> np.ndarray:
    held = cv2.imread(str(folder / f"{number}_mask.png"), cv2.IMREAD_UNCHANGED)
    assert held.dtype == np.uint8
    assert set(np.unique(held)) <= {0, 255}
    return held > 0


def spread(number: int = 1) -> np.ndarray:
    """A picture that the model knows, uint8 (512, 512) of the whole grey range."""
    plain = frame(number).astype(int)
    return np.rint((plain - plain.min()) / np.ptp(plain) * 255).astype(np.uint8)


def wide() -> np.ndarray:
    """The same in the middle of a picture of 512 x 700: uint16, twelve bits."""
    made = np.zeros((512, 700), np.uint16)
    made[:, 94:606] = spread().astype(np.uint16) * 16
    return made


def iou(one: np.ndarray, other: np.ndarray) -> float:
    return (one & other).sum() / (one | other).sum()


def test_one_picture_gets_what_it_gets_among_others(tiny, tmp_path):
    """The split's way and the single picture's end in the same words, and in the same pixels but for rounding."""
    cv2.imwrite(str(tmp_path / "a.png"), spread())
    with ShardWriter(tmp_path / "00.h5") as writer:
        for number in range(5):
            writer.append(f"image{number}", image=spread() if number == 1 else frame(number))
    settings = tmp_path / "mine.yaml"
    settings.write_text("inference: {size: 512}\n")
    about = ask(tiny, tmp_path / "a.png", tmp_path / "out", *ANSWERS, more=("--configfile", str(settings)))
    run_split(
        model=tiny.model, lines=tiny.lines, frames=[tmp_path / "00.h5"], predictions=tmp_path / "p.jsonl",
        prediction_masks=tmp_path / "p.h5", attrs={}, compute={"device": "cpu"},
        options=InferenceOptions(**OPTIONS.__dict__ | {"size": 512}),
    )  # fmt: skip
    wanted = [entry for entry in read(tmp_path / "p.jsonl") if entry["pair_id"].startswith("p1_")]
    assert [one["answer"] for one in about["findings"]] == [one["answer"] for one in wanted] == list(ANSWERS.values())
    assert [bool(one["note"]) for one in about["findings"]] == [False, True, True]
    with Shard(tmp_path / "p.h5", key="pair_id") as shard:
        for place in (0, 2):
            assert (mask_of(tmp_path / "out", place + 1) != shard.get("mask", f"p1_{place}")).mean() < 1e-3
    assert not mask_of(tmp_path / "out", 2).any()
    assert lines_of()[4]["instruction"] == NONE


@pytest.mark.parametrize("fit", ["pad", "stretch", "crop"])
@pytest.mark.parametrize("shape", [(300, 500), (900, 640), (512, 512)])
def test_masks_come_back_to_the_pictures_pixels(shape, fit):
    """A rectangle of the picture, told to the frame pixel by pixel from the definition, is that rectangle again."""
    affine = fit_affine(shape, 512, fit)
    rows, columns = shape
    top, bottom, left, right = 0.3 * rows, 0.7 * rows, 0.35 * columns, 0.6 * columns
    side = 1024
    places = (np.arange(side) + 0.5) * 512 / side
    x, y = affine[0, 0] * places + affine[0, 2], affine[1, 1] * places + affine[1, 2]
    logits = np.where(((y > top) & (y < bottom))[:, None] & ((x > left) & (x < right)), 3, -3).astype(np.float32)
    found = project_mask(logits, FramedImage(np.zeros(shape, np.uint8), np.zeros((512, 512), np.uint8), affine))
    across, down = np.arange(columns) + 0.5, np.arange(rows) + 0.5
    wanted = ((down > top) & (down < bottom))[:, None] & ((across > left) & (across < right))
    assert found.shape == shape
    blur = max(1, int(np.ceil(affine[[0, 1], [0, 1]].max())))
    kernel = np.ones((2 * blur + 1, 2 * blur + 1), np.uint8)
    edge = cv2.dilate(wanted.astype(np.uint8), kernel) != cv2.erode(wanted.astype(np.uint8), kernel)
    assert not (found ^ wanted)[~edge].any()


def test_nothing_is_marked_outside_of_a_frame_that_crops():
    shape = (300, 600)
    everywhere = FramedImage(np.zeros(shape, np.uint8), np.zeros((512, 512), np.uint8), fit_affine(shape, 512, "crop"))
    found = project_mask(np.ones((64, 64), np.float32), everywhere)
    assert found[:, 150:450].all()
    assert not found[:, :150].any()
    assert not found[:, 450:].any()


def test_a_mask_is_as_smooth_as_its_logits():
    """Eight columns of logits that rise by one each cross zero where they say, not at the edge of a column."""
    logits = np.tile(np.arange(8, dtype=np.float32) + 0.5 - 5.3, (8, 1))
    black = np.zeros((512, 512), np.uint8)
    whole = FramedImage(black, black, fit_affine((512, 512), 512, "pad"))
    first = project_mask(logits, whole).argmax(axis=1)
    assert np.abs(first - 5.3 * 64).max() <= 2


def read_back(path) -> tuple[pydicom.Dataset, np.ndarray]:
    """The segmentation as pydicom and as highdicom read it, bool (segments, rows, columns)."""
    plain, read_by = pydicom.dcmread(path), highdicom.seg.segread(path)
    source = (read_by.ReferencedSeriesSequence[0].ReferencedInstanceSequence[0].ReferencedSOPInstanceUID,)
    pixels = read_by.get_pixels_by_source_instance(source, ignore_spatial_locations=True)[0] > 0
    by_pydicom = plain.pixel_array.reshape(-1, plain.Rows, plain.Columns) > 0
    np.testing.assert_array_equal(np.moveaxis(pixels, -1, 0), by_pydicom)
    return plain, by_pydicom


def test_a_dicom_gets_a_segmentation_in_its_own_geometry(tiny, tmp_path, capfd, caplog):
    caplog.set_level("INFO")
    source = dataset(wide(), 12, **STUDY)
    about = ask(tiny, write(tmp_path, encoded(source)), tmp_path / "out", *ANSWERS)
    seg, masks = read_back(tmp_path / "out" / about["segmentation"])
    assert (seg.Rows, seg.Columns, seg.NumberOfFrames) == (512, 700, 2)  # none for the empty mask
    for row, number in zip(about["findings"], (1, None, 2), strict=True):
        assert row["segment"] == number
    for place, number in ((0, 1), (1, 3)):
        np.testing.assert_array_equal(masks[place], mask_of(tmp_path / "out", number))
    wanted = np.zeros((512, 700), bool)
    wanted[:, 94:606] = disc_of(1)
    assert iou(masks[0], wanted) > 0.6
    assert (seg.Modality, seg.SegmentationType, seg.StudyInstanceUID) == ("SEG", "BINARY", "1.2.3")
    assert (seg.PatientID, str(seg.PatientName)) == ("secret-id", "Müller^Eva")
    referred = seg.ReferencedSeriesSequence[0]
    assert referred.SeriesInstanceUID == "1.2.3.4"
    assert referred.ReferencedInstanceSequence[0].ReferencedSOPInstanceUID == source.SOPInstanceUID
    assert seg.SeriesInstanceUID != "1.2.3.4"
    assert seg.SOPInstanceUID != source.SOPInstanceUID
    for segment, label, instruction in zip(seg.SegmentSequence, ("effusion", "opacity"), (ONE, TWO), strict=True):
        code = segment.SegmentedPropertyTypeCodeSequence[0]
        assert (code.CodeValue, code.CodingSchemeDesignator) == (CODES[label].value, CODES[label].scheme_designator)
        assert (segment.SegmentLabel, segment.SegmentDescription) == (label, instruction)
        assert (segment.SegmentAlgorithmType, segment.SegmentAlgorithmName) == ("AUTOMATIC", "cxr-ils")
        named = segment.SegmentationAlgorithmIdentificationSequence[0]
        assert (named.AlgorithmName, "runs/tiny" in named.AlgorithmParameters) == ("cxr-ils", True)
    said = capfd.readouterr()
    written = (tmp_path / "out/answers.json").read_text(encoding="utf-8")
    for text in (said.out, said.err, written, caplog.text):
        assert not any(private in text for private in ("Müller", "secret", source.SOPInstanceUID))


def test_inverted_pictures_and_any_encoding_give_the_same_mask(tiny, tmp_path):
    values = wide()
    files = {
        "plain": encoded(dataset(values, 12, **STUDY)),
        "inverted": encoded(dataset(4095 - values, 12, PhotometricInterpretation="MONOCHROME1", **STUDY)),
        "wavelets": encoded(dataset(values, 12, **STUDY), uid.JPEG2000Lossless),
        "deflated": encoded(dataset(values, 12, **STUDY), uid.DeflatedExplicitVRLittleEndian),
        "swapped": encoded(dataset(values, 12, **STUDY), uid.ExplicitVRBigEndian),
        "placed": encoded(dataset(values, 12, SOPClassUID=DX, **PLACE, **STUDY)),
    }
    found = {}
    for name, data in files.items():
        ask(tiny, write(tmp_path, data, f"{name}.dcm"), tmp_path / name)
        _, found[name] = read_back(tmp_path / name / "segmentation.dcm")
        assert found[name].any()
    # 4095 - 16 x is not 16 (255 - x), so that the inverted one may round otherwise at an edge
    assert iou(found.pop("inverted")[0], found["plain"][0]) > 0.98
    for one in found.values():
        np.testing.assert_array_equal(one, found["plain"])


def test_the_same_question_gives_the_same_bytes(tiny, tmp_path):
    image = write(tmp_path, encoded(dataset(wide(), 12, **STUDY)))
    for name in ("one", "two"):
        ask(tiny, image, tmp_path / name, ONE, NONE)
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names == {
        "answers.json", "segmentation.dcm", "1_mask.png", "1_overlay.png", "2_mask.png", "2_overlay.png"
    }  # fmt: skip
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("tags", "instruction", "note"),
    [
        (STUDY, NONE, "no DICOM segmentation: all masks are empty"),
        ({}, ONE, "no DICOM segmentation: the image's header lacks StudyInstanceUID, SeriesInstanceUID"),
        (STUDY | {"PatientOrientation": ["R", "F"]}, ONE, "the image: turned upright by its PatientOrientation 'R F'"),
        (STUDY | {"PatientOrientation": ["R", ""]}, ONE, "the image is mirrored"),
    ],
)
def test_what_is_out_of_the_way_is_noted(tiny, tmp_path, tags, instruction, note):
    about = ask(tiny, write(tmp_path, encoded(dataset(wide(), 12, **tags))), tmp_path / "out", instruction)
    (found,) = about["notes"]
    assert note in found
    made = "no DICOM" not in note
    assert (about["segmentation"] is not None) == (tmp_path / "out/segmentation.dcm").is_file() == made
    assert about["findings"][0]["segment"] == (1 if made else None)


@pytest.mark.parametrize(
    ("directions", "stored"),
    [(["R", "F"], np.fliplr), (["F", "R"], np.rot90), (["R", "H"], lambda image: np.rot90(image, 2))],
)
def test_masks_lie_in_the_stored_pixels_of_a_turned_dicom(tiny, tmp_path, directions, stored):
    ask(tiny, write(tmp_path, encoded(dataset(wide(), 12, **STUDY))), tmp_path / "upright")
    turned = dataset(np.ascontiguousarray(stored(wide())), 12, PatientOrientation=directions, **STUDY)
    about = ask(tiny, write(tmp_path, encoded(turned)), tmp_path / "turned")
    expected = stored(mask_of(tmp_path / "upright"))
    assert (about["rows"], about["columns"]) == expected.shape
    np.testing.assert_array_equal(mask_of(tmp_path / "turned"), expected)
    np.testing.assert_array_equal(read_back(tmp_path / "turned/segmentation.dcm")[1][0], expected)
    overlays = [cv2.imread(str(tmp_path / name / "1_overlay.png")) for name in ("upright", "turned")]
    np.testing.assert_array_equal(*overlays)


ODD = [
    {"SpecificCharacterSet": ["", "ISO 2022 IR 149"]},
    {"SpecificCharacterSet": ["", "ISO 2022 IR 87"]},
    {"SpecificCharacterSet": ["ISO 2022 IR 6", "ISO 2022 IR 58"]},
    {"SpecificCharacterSet": ["ISO 2022 IR 13", "ISO 2022 IR 87"]},
    {"SpecificCharacterSet": "GB18030"},
    {"SpecificCharacterSet": "LATIN1"},
    {"SpecificCharacterSet": "ISO-8859-1"},
    {"StudyTime": "10:11:12"},
    {"StudyTime": "101112.1234567"},
    {"StudyTime": "9"},
    {"StudyDate": "2024-01-31"},
    {"StudyDate": "31.01.2024"},
    {"StudyDate": "20241399"},
    {"SeriesDate": "yesterday"},
    {"PatientBirthDate": "1950"},
    {"PatientSex": "U"},
    {"PatientSex": "female"},
    {"PatientAge": "45"},
    {"PatientID": "x" * 80},
    {"AccessionNumber": "A" * 40},
    {"StudyID": "1" * 40},
    {"ReferringPhysicianName": "a^b^c^d^e^f^g"},
    {"StudyInstanceUID": "1.2.03"},
    {"SOPClassUID": "1.2.3.4"},
    {"PatientName": ""},
    {"FrameOfReferenceUID": "no uid"},
]
WITHOUT_SEGMENTATION = ({"SOPClassUID": "1.2.3.4"},)


@pytest.mark.parametrize("tags", every(4, ODD))
def test_an_odd_header_loses_no_answer(tiny, tmp_path, monkeypatch, tags):
    monkeypatch.setattr(pydicom.config.settings, "writing_validation_mode", pydicom.config.IGNORE)
    given = STUDY | {"StudyDate": "20240131", "StudyTime": "101112", "PatientSex": "F", "Modality": "CR"} | tags
    about = ask(tiny, write(tmp_path, encoded(dataset(wide(), 12, **given))), tmp_path / "out", ONE, NONE)
    assert len(about["findings"]) == 2
    assert mask_of(tmp_path / "out").any()
    if tags in WITHOUT_SEGMENTATION:
        (note,) = about["notes"]
        assert note.startswith("no DICOM segmentation: ")
        assert about["segmentation"] is None
        return
    assert about["notes"] == []
    seg, masks = read_back(tmp_path / "out/segmentation.dcm")
    np.testing.assert_array_equal(masks[0], mask_of(tmp_path / "out"))
    assert seg.PatientID == given["PatientID"]
    is_odd_text = {"PatientName", "SpecificCharacterSet"} & tags.keys()
    assert str(seg.PatientName) == "Müller^Eva" or is_odd_text
    kept = {name: str(seg.get(name) or "") for name in ("StudyDate", "StudyTime", "PatientSex")}
    assert kept == {
        name: "" if name in tags and tags[name] != "101112.1234567" else given[name] for name in kept
    } or tags == {"StudyTime": "101112.1234567"}
    monkeypatch.setattr(pydicom.config.settings, "reading_validation_mode", pydicom.config.RAISE)
    for name in ("StudyDate", "StudyTime", "PatientBirthDate", "PatientSex"):
        pydicom.dcmread(tmp_path / "out/segmentation.dcm").get(name)


def test_rows_that_are_not_the_pixels_give_a_note_and_no_segmentation(tiny, tmp_path):
    data = encoded(dataset(wide(), 12, **STUDY), uid.JPEGLSLossless)
    made = pydicom.dcmread(io.BytesIO(data))
    made.Rows, made.Columns = 700, 512
    made.save_as(tmp_path / "a.dcm")
    about = ask(tiny, str(tmp_path / "a.dcm"), tmp_path / "out")
    assert mask_of(tmp_path / "out").shape == (512, 700)
    assert about["notes"] == [
        "the image: codestream is 512 x 700, header says 700 x 512",
        "no DICOM segmentation: the header says 700 x 512, the image is 512 x 700",
    ]


def test_without_text_there_is_a_mask_and_no_answer(tiny, tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), spread())
    about = ask(tiny, tmp_path / "a.png", tmp_path / "out", NONE, more=("--no-text",))
    assert about["findings"][0]["answer"] is None
    assert about["segmentation"] is None
    assert about["notes"] == []


def wrong_pictures() -> dict[str, tuple[bytes, str]]:
    whole = encoded(dataset(wide(), 12, **STUDY), uid.JPEG2000Lossless)
    return {
        "ct": (encoded(dataset(wide(), 12, Modality="CT")), "the modality is not a radiograph (CT)"),
        "hand": (encoded(dataset(wide(), 12, BodyPartExamined="HAND")), "the body part examined is not the chest"),
        "side": (encoded(dataset(wide(), 12, ViewPosition="LL")), "the view is not PA or AP"),
        "cut": (whole[: len(whole) // 2], "the pixel data cannot be decoded"),
        "black": (encoded(dataset(wide() * 0, 12)), "every pixel has the same value"),
        "text": (b"not a picture at all, only some words", "neither DICOM, PNG nor JPEG"),
        "nothing": (b"", "the file has no bytes"),
    }


@pytest.mark.parametrize("name", wrong_pictures())
def test_a_wrong_picture_is_one_sentence(tiny, tmp_path, name, capfd):
    data, sentence = wrong_pictures()[name]
    path = write(tmp_path, data)
    arguments = ["--model", str(tiny.model), "--image", path, "--output", str(tmp_path / "out"), "--instruction", ONE]
    assert predict.main(arguments) == 1
    (said,) = capfd.readouterr().err.splitlines()
    assert sentence in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"--image": "none.png"}, "does not exist"),
        ({"--model": "nowhere"}, "there is no folder 'nowhere'"),
        ({"--instruction": " "}, "instruction is empty"),
        ({"--instruction": "Segment [SEG]"}, "a special token of the model"),
        ({"--configfile": "none.yaml"}, "there is no file 'none.yaml'"),
    ],
)
def test_a_wrong_argument_is_one_sentence(tiny, tmp_path, change, sentence, capfd):
    cv2.imwrite(str(tmp_path / "a.png"), spread())
    given = {"--model": tiny.model, "--image": tmp_path / "a.png", "--instruction": ONE, "--output": tmp_path / "out"}
    arguments = [str(part) for pair in (given | change).items() for part in pair]
    assert predict.main(arguments) == 1
    said = capfd.readouterr().err
    assert sentence in said
    assert said.count("cxr-ils:") == 1


@pytest.mark.slow
def test_the_program_runs_from_anywhere(tiny, tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), spread())
    command = [sys.executable, str(ROOT / "scripts/tools/predict.py"), "--model", str(tiny.model), "--image", "a.png"]
    command += ["--output", "out", "--instruction", ONE]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:2] == [ONE, f"  {ANSWERS[ONE]}"]
    assert mask_of(tmp_path / "out").any()


@pytest.mark.parametrize(
    ("instruction", "lesion"),
    [
        ("Segment the effusion.", "effusion"),
        ("Where is the Pleural Effusion?", "effusion"),
        ("Segment the opacity in the left lung and predict its type.", "opacity"),
        ("Is it edema or pneumonia?", "edema"),
        ("Segment the nodule.", None),
    ],
)
def test_the_lesion_that_an_instruction_names(instruction, lesion):
    assert find_lesion(instruction) == lesion


def test_every_lesion_has_a_code_and_an_unknown_one_is_a_lesion(tmp_path):
    assert tuple(CODES) == LESIONS
    assert len({code.value for code in CODES.values()}) == len(LESIONS)
    header = dataset(np.zeros((8, 16), np.uint16), **STUDY)
    asked = "Zeige bitte den Rundherd (결절) über dem Zwerchfell, so genau wie es überhaupt nur möglich ist."
    mask = np.zeros((8, 16), bool)
    mask[2:4, 3:9] = True
    made = build_segmentation(
        header, [Segment(asked, mask)], version="1", model="m", created_at=datetime(2024, 1, 2, 3, 4, 5)
    )
    (segment,) = made.SegmentSequence
    assert segment.SegmentedPropertyTypeCodeSequence[0].CodeValue == LESION.value
    assert segment.SegmentLabel == asked[:64]
    assert segment.SegmentDescription == asked
    assert (made.ContentDate, made.ContentTime) == ("20240102", "030405")
    made.save_as(tmp_path / "seg.dcm")
    seg, (held,) = read_back(tmp_path / "seg.dcm")
    np.testing.assert_array_equal(held, mask)
    assert (seg.SegmentSequence[0].SegmentDescription, str(seg.PatientName)) == (asked, "Müller^Eva")
    with pytest.raises(NoSegmentation, match="the header says 8 x 16, the image is 16 x 8"):
        build_segmentation(header, [Segment("a", mask.T)], version="1", model="m", created_at=datetime(2024, 1, 2))
    with pytest.raises(NoSegmentation, match="all masks are empty"):
        build_segmentation(
            header, [Segment("a", mask & False)], version="1", model="m", created_at=datetime(2024, 1, 2)
        )


def drawn(figure: Figure) -> np.ndarray:
    figure.set_dpi(80)
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(int)


def test_the_overlay_shows_the_mask_where_it_is_and_the_patients_sides():
    image = np.full((1500, 2000), 60, np.uint8)
    mask = np.zeros(image.shape, bool)
    mask[300:700, 1200:1900] = True
    figure = draw_overlay(image, mask, "Segment it.", "[SEG] It is there.")
    axes = figure.axes[0]
    pixels = drawn(figure)
    orange = (pixels[..., 0] - pixels[..., 2] > 40) & (pixels[..., 0] > pixels[..., 1])
    box = axes.get_window_extent()
    held = orange[pixels.shape[0] - int(box.y1) : pixels.shape[0] - int(box.y0), int(box.x0) : int(box.x1)]
    held = cv2.resize(held.astype(np.uint8), (200, 150), interpolation=cv2.INTER_AREA) > 0
    held[110:, :90] = False  # the legend
    wanted = cv2.resize(mask.astype(np.uint8), (200, 150), interpolation=cv2.INTER_AREA) > 0
    assert iou(held, wanted) > 0.9
    places = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert places["R"] < 0.5 < places["L"]
    assert axes.get_title() == "Segment it."
    mirrored = draw_overlay(image, mask & False, "a", "b", ("L", "R")).axes[0]
    places = {text.get_text(): text.get_position()[0] for text in mirrored.texts}
    assert places["L"] < 0.5 < places["R"]
    assert mirrored.get_legend().get_texts()[0].get_text() == "mask: empty"


@pytest.mark.parametrize(
    ("value", "sides"),
    [(["L", "F"], ("R", "L")), (["R", "F"], ("L", "R")), (None, ("R", "L")), (["P", "F"], ("R", "L"))],
)
def test_the_header_tells_which_side_is_where(value, sides):
    header = dataset(np.zeros((4, 4), np.uint8), **({"PatientOrientation": value} if value else {}))
    assert read_sides(header) == sides
    assert read_sides(None) == ("R", "L")
