"""From a DICOM file of the embedded cohort to the page: "segment it" and "where is it", and whether both agree."""

import json
from pathlib import Path

import cv2
import highdicom
import numpy as np
import pytest

from conftest import snakemake, write_settings
from cxr.base.tables import read_lines
from cxr.geometry.boxes import box_iou
from cxr.geometry.masks import component_boxes

SLOT = "<box:pulmonary edema>"
SETTINGS = {
    "phantom": {"subjects": 40, "studies": 60},
    "training": {"runs": {"base": {"weights": "lite", "trained": False}}},
    "radvlm": {"evaluation": {"segmenter": "rosalia:base"}},
    "vlm": {"tuning": {"onevision_tiny": {"updates": 20}}},
}
"""RadVLM's small model, hardly tuned beyond its base, and ROSALIA's base as its tool."""


@pytest.mark.slow
def test_a_mask_lies_where_the_box_was_said(tmp_path, record_property):
    """The first test conversation that places edema: its mask is asked for, then its place, in one run to the page.

    Whether box and mask agree is reported, not required: the box is that of a model of half a million values. The mask
    is asked for first: after a place, the small model answers with boxes again.
    """
    run = write_settings(tmp_path / "run", SETTINGS)
    snakemake(run, "results/vlm/radvlm/weights", "results/training/base/model")
    talks = read_lines(run / "results/radvlm/conversations/own/conversations.jsonl")
    talk = next(one for one in talks if one["split"] == "test" and SLOT in json.dumps(one["turns"]))
    where = next(one["question"] for one in talk["turns"] if SLOT in one["answer"])
    image = f"results/phantom/images/{talk['image_id']}.dcm"
    asked = ["Segment the edema.", where]
    snakemake(run, "vlm_ask", "--config", f"image={image}", f"questions={json.dumps(asked)}", "run=radvlm")
    folder = run / f"results/radvlm/evaluation/radvlm/asked/{talk['image_id']}"
    for name, value in checked(folder, asked, np.array(talk["boxes"]["pulmonary edema"])).items():
        record_property(name, round(value, 3))
        print(f"IoU of {name}: {value:.3f}")


def checked(folder: Path, asked: list[str], true: np.ndarray) -> dict[str, float]:
    """Hold the files of a conversation to one another; return how mask, box said and box of the facts agree: the mean
    over boxes of the best.
    """
    about = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    segment, place = about["turns"]
    assert [segment["question"], place["question"]] == asked
    assert place["boxes"]
    (mask,) = segment["masks"]
    assert mask["shows"] == "Segment the edema."
    drawn = cv2.imread(str(folder / mask["file"]), cv2.IMREAD_UNCHANGED) > 0
    assert drawn.shape == (about["rows"], about["columns"])
    assert drawn.any()
    read = highdicom.seg.segread(folder / about["segmentation"])
    np.testing.assert_array_equal(read.pixel_array.reshape(drawn.shape) > 0, drawn)
    assert (folder / "conversation.html").stat().st_size > 20_000
    parts = component_boxes(drawn, 50) / np.tile(drawn.shape[::-1], 2)
    said = np.array(place["boxes"])
    pairs = {"box said, mask": (said, parts), "box said, facts": (said, true), "facts, mask": (true, parts)}
    return {name: float(box_iou(*both).max(axis=1).mean()) for name, both in pairs.items()}
