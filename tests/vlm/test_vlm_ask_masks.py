"""One image asked about, of a run with a head: its masks in the image's own pixels, as DICOM and on the page."""

import base64
import json
import re
from dataclasses import asdict
from datetime import datetime

import cv2
import highdicom
import numpy as np
import pydicom
import pytest

from cxr.base.engines import Setup
from cxr.base.hdf5 import Shard
from cxr.imaging.one_image import decode_image_file, project_mask
from cxr.vlm.answers.ask import Asker
from cxr.vlm.answers.masks import MaskPredictor
from cxr.vlm.answers.one_image import NO_BASE, Mask, MaskSource, Reply, make_samples, name_masks, run_image
from cxr.vlm.answers.one_image import write_results as write_answers
from cxr.vlm.reading import Reading
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings
from dicom_files import dataset, encoded, write
from vlm_masks import recipe, scenes, tune
from vlm_runs import ASKING, COMPUTE

STAGES = stage_options(Settings())
FILM = 700
QUESTIONS = ["What is there?", "Segment both."]
SAID = "The bright one [SEG] and the dark one [SEG]."


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return scenes(tmp_path_factory.mktemp("drawn"))


@pytest.fixture(scope="module")
def learned(tmp_path_factory, given):
    return tune(tmp_path_factory.mktemp("learned"), given, recipe(updates=90, batch=10, micro_batch=10))


@pytest.fixture(scope="module")
def film(tmp_path_factory, given) -> str:
    """A DICOM file of the first frame, larger than it."""
    with Shard(given["pictures"][0]) as shard:
        frame = shard.get("image", "i0")
    large = cv2.resize(frame, (FILM, FILM), interpolation=cv2.INTER_NEAREST).astype(np.uint16) * 16
    header = {"StudyInstanceUID": "1.2.3", "SeriesInstanceUID": "1.2.3.4", "PatientID": "secret-id"}
    return str(write(tmp_path_factory.mktemp("film"), encoded(dataset(large, 12, **header))))


def asked(run, image: str, folder, questions=QUESTIONS) -> dict:
    return run_image(
        run=str(run), base="", image=image, output=str(folder), questions=questions, referring=False,
        asking=asdict(ASKING), cohort=STAGES["cohort"], frames=STAGES["frames"], quality=85, compute=COMPUTE, code="7",
    )  # fmt: skip


def mask_at(path) -> np.ndarray:
    held = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert set(np.unique(held)) <= {0, 255}
    return held > 0


def iou(one: np.ndarray, two: np.ndarray) -> float:
    return (one & two).sum() / (one | two).sum()


@pytest.mark.slow
def test_a_head_gives_its_masks_in_the_images_own_pixels(given, learned, film, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    about = asked(learned, film, tmp_path / "out")
    assert about["turns"][1]["answer"] == SAID
    masks = [mask for turn in about["turns"] for mask in turn["masks"]]
    assert [mask["file"] for mask in masks] == ["2_mask_1.png", "2_mask_2.png"]
    assert [(mask["shows"], mask["said"]) for mask in masks] == [(QUESTIONS[1], "")] * 2
    drawn = [mask_at(tmp_path / "out" / mask["file"]) for mask in masks]
    with Shard(given["masks"][0], key="mask_id") as shard:
        held = {name: shard.get("mask", f"m0{name}").astype(np.uint8) for name in ("bright", "dark")}
    wanted = {name: cv2.resize(mask, (FILM, FILM), interpolation=cv2.INTER_NEAREST) > 0 for name, mask in held.items()}
    assert all(mask.shape == (FILM, FILM) for mask in drawn)
    overlaps = [iou(mask, wanted[name]) for mask, name in zip(drawn, ("bright", "dark"), strict=True)]
    assert min(overlaps) > 0.6, overlaps
    read = highdicom.seg.segread(tmp_path / "out" / about["segmentation"])
    assert [mask["segment"] for mask in masks] == [1, 2]
    np.testing.assert_array_equal(read.pixel_array > 0, np.stack(drawn))
    assert (read.ManufacturerModelName, read.SoftwareVersions) == ("onevision", "7")
    page = (tmp_path / "out/conversation.html").read_text(encoding="utf-8")
    told = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert [bool(turn["mask"]) for turn in told["cases"][0]["turns"]] == [False, True]
    assert "secret" not in page + json.dumps(about)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "1_overlay.png", "2_overlay.png", "answers.json", "conversation.html", "segmentation.dcm",
        *(mask["file"] for mask in masks),
    }  # fmt: skip


@pytest.mark.slow
def test_the_masks_are_those_of_the_states_before_each_seg(learned, film, tmp_path):
    about = asked(learned, film, tmp_path / "out")
    picture, _ = decode_image_file(film, STAGES["cohort"], STAGES["frames"])
    how = Setup(device="cpu", batch=8)

    class Store:
        def get(self, sample):
            return np.repeat(cv2.resize(picture.frame, (64, 64), interpolation=cv2.INTER_AREA)[..., None], 3, axis=2)

    _, reply = Asker.from_run(str(learned), "", ASKING, how).replies(make_samples(QUESTIONS, referring=False), Store())
    drawer = MaskPredictor.load(learned, ASKING, how)
    for mark, mask in zip(reply.answer.marks, about["turns"][1]["masks"], strict=True):
        (logits,) = drawer.logits("v", picture.frame, [mark])
        np.testing.assert_array_equal(project_mask(logits, picture), mask_at(tmp_path / "out" / mask["file"]))


def test_an_answer_without_a_seg_has_no_mask(learned, film, tmp_path):
    about = asked(learned, film, tmp_path / "out", ["What is there?"])
    (turn,) = about["turns"]
    assert "[SEG]" not in turn["answer"]
    assert (turn["masks"], about["segmentation"], about["notes"]) == ([], None, [NO_BASE])
    page = (tmp_path / "out/conversation.html").read_text(encoding="utf-8")
    assert "cannot be relied on" in page  # the learned run has no published base


def replied(folder, **tags: object) -> dict:
    """Write the answers about a DICOM file of 60 x 90 whose mask is its upper left corner, upright."""
    values = np.arange(60 * 90, dtype=np.uint16).reshape(60, 90)
    header = {"StudyInstanceUID": "1.2.3", "SeriesInstanceUID": "1.2.3.4", "PatientID": "id"} | tags
    image = write(folder, encoded(dataset(values, 16, **header)))
    picture, dicom = decode_image_file(image, STAGES["cohort"], STAGES["frames"])
    corner = np.zeros(picture.frame.shape, np.float32) - 1
    corner[:256, :256] = 1
    mask = Mask("Segment the edema.", project_mask(corner, picture))
    reading = Reading("", np.array([[0.0, 0.0, 0.5, 0.5]]))
    drawn = MaskSource(dicom, "m", "1", datetime(2024, 1, 1), "onevision")
    (folder / "out").mkdir()
    return write_answers(folder / "out", picture, [Reply("Q?", "[SEG]", "end", "", reading, (mask,))], "m", 85, drawn)


def test_masks_of_a_turned_file_lie_in_its_stored_pixels_and_its_page_is_upright(tmp_path):
    about = replied(tmp_path, PatientOrientation=["F", "L"])
    assert about["notes"] == ["the image: turned upright by its PatientOrientation 'F L'"]
    assert (about["rows"], about["columns"]) == (60, 90)
    read = highdicom.seg.segread(tmp_path / "out/segmentation.dcm")
    np.testing.assert_array_equal(read.pixel_array > 0, mask_at(tmp_path / "out/1_mask_1.png"))
    page = (tmp_path / "out/conversation.html").read_text(encoding="utf-8")
    (case,) = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])["cases"]
    data = base64.b64decode(case["picture"].partition(",")[2])
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE).shape == (90, 60)


@pytest.mark.parametrize(
    ("tags", "is_written"),
    [
        ({"SpecificCharacterSet": ["", "ISO 2022 IR 87"]}, True),
        ({"StudyTime": "10:11:12", "PatientSex": "U"}, True),
        ({"SOPClassUID": "1.2.3.4"}, False),
        ({"StudyInstanceUID": ""}, False),
    ],
)
def test_an_odd_header_loses_no_answer(tmp_path, monkeypatch, tags, is_written):
    monkeypatch.setattr(pydicom.config.settings, "writing_validation_mode", pydicom.config.IGNORE)
    about = replied(tmp_path, **tags)
    assert json.loads((tmp_path / "out/answers.json").read_text(encoding="utf-8")) == about
    assert (tmp_path / "out/segmentation.dcm").is_file() is is_written
    assert about["turns"][0]["masks"][0]["segment"] == (1 if is_written else None)
    assert [note.startswith("no DICOM segmentation: ") for note in about["notes"]] == [True] * (not is_written)


@pytest.mark.parametrize(
    ("question", "answer", "before", "wanted"),
    [
        ("Segment the edema.", "[SEG]", [], ["Segment the edema."]),
        ("Segment the opacity and predict its type.", "[SEG] It is edema.", [], ["It is edema."]),
        ("Segment it.", "Here is the effusion: [SEG]", [], ["Here is the effusion:"]),
        ("Segment it.", "[SEG]", ["Where is the edema?", "At the left base."], ["Where is the edema?"]),
        ("Both?", "The edema [SEG] and the effusion [SEG].", [], ["The edema", "and the effusion"]),
        ("Segment the bright thing.", "[SEG]", ["What is there?", "Things."], ["Segment the bright thing."]),
        ("What is there?", "Nothing.", [], []),
    ],
)
def test_a_mask_shows_what_was_named_last(question, answer, before, wanted):
    assert name_masks(question, answer, before) == wanted
