"""One image asked about, after public bug reports on the character sets of DICOM files."""

import json

import predict
from conftest import ROOT


def test_an_answer_is_written_for_a_korean_file(shared, tmp_path):
    image = shared / "fixtures/public_reports/s1_seg_charset/korean.dcm"
    arguments = ["--model", str(ROOT / "resources/rosalia"), "--image", str(image), "--no-text"]
    assert predict.main([*arguments, "--instruction", "Segment the effusion.", "--output", str(tmp_path / "out")]) == 0
    answers = json.loads((tmp_path / "out/answers.json").read_text(encoding="utf-8"))
    assert len(answers["findings"]) == 1
    assert (tmp_path / "out/segmentation.dcm").is_file()
