"""Answers with boxes after public bug reports."""

import json

import numpy as np
import pytest

from cxr.vlm.conventions import CONVENTIONS, InputSize
from cxr.vlm.reading import read_boxes


@pytest.mark.parametrize("number", [0, 1])
def test_the_right_boxes_are_read(shared, number):
    path = shared / "fixtures/public_reports/v1_answers/answers.jsonl"
    answer = json.loads(path.read_text(encoding="utf-8").splitlines()[number])
    width, height = answer["seen"]
    reading = read_boxes(answer["text"], CONVENTIONS[answer["convention"]], InputSize(width, height))
    assert reading.outcome == "boxes"
    np.testing.assert_allclose(reading.boxes * [width, height, width, height], answer["right"], atol=0.01)
