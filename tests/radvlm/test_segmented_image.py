"""One image asked about, with ROSALIA as a tool: from the answers to masks, DICOM segmentation and page."""

import json
import re
from datetime import datetime

import cv2
import highdicom
import numpy as np
import pytest

from asking_options import OPTIONS
from cxr.base.errors import UserError
from cxr.base.tables import read_lines
from cxr.dicom.segmentation import CODES
from cxr.ils.inference import predict as rosalia
from cxr.imaging.one_image import decode_image_file
from cxr.radvlm.evaluation import segmented_image
from cxr.radvlm.evaluation.segmenter import run_asked_image
from cxr.vlm.answers.one_image import Mask, MaskSource, Reply, write_results
from cxr.vlm.reading import Reading
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings
from dicom_files import dataset, encoded
from dicom_files import write as write_dicom
from tiny_rosalia import ONE, TWO, Tiny, disc_of, frame, make

STAGES = stage_options(Settings())
SAID = [
    ("Where is the effusion?", "The effusion is at [0.10, 0.20, 0.60, 0.70].", [[0.1, 0.2, 0.6, 0.7]]),
    ("Segment it.", "Here is the mask of the effusion: [SEG]", []),
    ("What else?", "Nothing.", []),
    ("And the opacity?", "[SEG] [SEG]", []),
]
HEADER = {"StudyInstanceUID": "1.2.3", "SeriesInstanceUID": "1.2.3.4", "PatientID": "secret-id"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Tiny:
    return make(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def fixed_time(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def film(folder) -> str:
    """A DICOM file of 512 x 700 px with a picture that the tiny model knows in its middle."""
    plain = frame(1).astype(int)
    made = np.zeros((512, 700), np.uint16)
    made[:, 94:606] = np.rint((plain - plain.min()) / np.ptp(plain) * 4095)
    return str(write_dicom(folder, encoded(dataset(made, 12, **HEADER))))


def conversation(image: str, folder, said=SAID) -> str:
    """What a model answered, as vlm_ask writes it."""
    picture, _ = decode_image_file(image, STAGES["cohort"], STAGES["frames"])
    folder.mkdir()
    told = [
        Reply(question, answer, "end", "", Reading("", np.array(boxes).reshape(-1, 4)))
        for question, answer, boxes in said
    ]
    write_results(folder, picture, told, "mine", 80)
    return str(folder)


def segmented(tiny: Tiny, image: str, folder, said=SAID) -> dict:
    """Take a conversation through the three steps; return its answers.json."""
    given = {"conversation": conversation(image, folder / "said", said), "asked": str(folder / "asked.jsonl")}
    run_asked_image(**given)
    same = {"image": image, "cohort": STAGES["cohort"], "frames": STAGES["frames"], "code": "7"}
    rosalia.run(
        model=str(tiny.model), instructions=[], instructions_file=given["asked"], output=str(folder / "masks"),
        asking=OPTIONS.__dict__, compute={"device": "cpu", "batch": 8}, **same,
    )  # fmt: skip
    segmented_image.run(**given, masks=str(folder / "masks"), output=str(folder / "out"), quality=80, **same)
    return json.loads((folder / "out/answers.json").read_text(encoding="utf-8"))


def mask_at(path) -> np.ndarray:
    held = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert set(np.unique(held)) <= {0, 255}
    return held > 0


@pytest.mark.slow
def test_a_conversation_gets_rosalias_masks_and_a_segmentation(tiny, tmp_path):
    """Masks lie on the disc that the instruction names; the answers and their boxes are those that were given."""
    about = segmented(tiny, film(tmp_path), tmp_path)
    asked = [line["instruction"] for line in read_lines(tmp_path / "asked.jsonl")]
    assert asked == [ONE, "Segment the opacity.", "Segment the opacity."]
    turns = about["turns"]
    assert [(turn["question"], turn["answer"], turn["boxes"]) for turn in turns] == SAID
    assert [len(turn["masks"]) for turn in turns] == [0, 1, 0, 2]
    (shown,) = turns[1]["masks"]
    assert (shown["shows"], shown["said"]) == (ONE, "[SEG] It is located in the left lung.")
    mask = mask_at(tmp_path / "out" / shown["file"])
    wanted = np.zeros((512, 700), bool)
    wanted[:, 94:606] = disc_of(1)
    assert (mask & wanted).sum() / (mask | wanted).sum() > 0.6
    np.testing.assert_array_equal(mask, mask_at(tmp_path / "masks/1_mask.png"))
    read = highdicom.seg.segread(tmp_path / "out" / about["segmentation"])
    masks = [one for turn in turns for one in turn["masks"]]
    numbers = [one["segment"] for one in masks]
    assert numbers[0] == 1
    filled = [one for one in masks if one["segment"]]
    assert [one["segment"] for one in filled] == list(range(1, read.number_of_segments + 1))
    by_number = read.pixel_array.reshape(-1, 512, 700) > 0
    for one in filled:
        np.testing.assert_array_equal(by_number[one["segment"] - 1], mask_at(tmp_path / "out" / one["file"]))
    assert (read.ManufacturerModelName, read.SoftwareVersions) == ("ROSALIA", "7")
    assert read.SegmentSequence[0].SegmentedPropertyTypeCodeSequence[0].CodeValue == CODES["effusion"].value
    page = (tmp_path / "out/conversation.html").read_text(encoding="utf-8")
    told = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert [bool(turn["mask"]) for turn in told["cases"][0]["turns"]] == [bool(turn["masks"]) and any(
        one["pixels"] for one in turn["masks"]) for turn in turns]  # fmt: skip
    assert "secret" not in page + json.dumps(about)


def test_answers_without_a_seg_ask_rosalia_nothing(tiny, tmp_path):
    image = film(tmp_path)
    about = segmented(Tiny(*[tmp_path / "no model"] * 5), image, tmp_path, SAID[:1])
    assert (about["segmentation"], about["notes"]) == (None, [])
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["1_overlay.png", "answers.json", "conversation.html"]
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "said" / name).read_bytes()


def test_empty_masks_are_no_segmentation_and_a_note(tmp_path):
    image = film(tmp_path)
    picture, header = decode_image_file(image, STAGES["cohort"], STAGES["frames"])
    (tmp_path / "out").mkdir()
    masks = (Mask(TWO, np.zeros(picture.grey.shape, bool)),)
    reply = Reply("Segment it.", "[SEG]", "end", "", Reading("", np.zeros((0, 4))), masks)
    drawn = MaskSource(header, "mine", "7", datetime(2020, 1, 1), "ROSALIA")
    about = write_results(tmp_path / "out", picture, [reply], "mine", 80, drawn)
    assert about["notes"] == ["no DICOM segmentation: all masks are empty"]
    assert about["turns"][0]["masks"] == [
        {"shows": TWO, "said": "", "file": "1_mask_1.png", "pixels": 0, "segment": None}
    ]


def test_masks_of_another_image_are_refused(tiny, tmp_path):
    image = film(tmp_path)
    segmented(tiny, image, tmp_path, SAID[:2])
    cv2.imwrite(str(tmp_path / "masks/1_mask.png"), np.zeros((8, 8), np.uint8))
    with pytest.raises(UserError, match=r"1_mask.png is not a mask of .*: delete .*masks and rerun"):
        segmented_image.run(
            conversation=str(tmp_path / "said"), asked=str(tmp_path / "asked.jsonl"), masks=str(tmp_path / "masks"),
            image=image, output=str(tmp_path / "again"), cohort=STAGES["cohort"], frames=STAGES["frames"], quality=80,
            code="7",
        )  # fmt: skip
