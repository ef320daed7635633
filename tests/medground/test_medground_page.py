"""The section of MedGround on the page: there if the dataset is, whether or not anything is scored."""

import json
import re

import polars as pl
import pytest

from conftest import ROOT
from cxr.reporting.page import render

FILES = ("verification/passrate.tsv", "dataset/statistics.tsv", "dataset/language.png", "dataset/gallery/gallery.jsonl")


@pytest.mark.parametrize("scored", [False, True])
def test_the_section_has_all_that_the_template_reads(tmp_path, monkeypatch, scored):
    monkeypatch.chdir(tmp_path)
    extras = [f"results/medground/{name}" for name in FILES]
    extras += ["results/medground/scoring/comparison.tsv", "results/medground/scoring/scores.png"] if scored else []
    for name in extras:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"split": ["all", "test"], "accepted": [3, 1]}).write_csv(tmp_path / extras[0], separator="\t")
    pl.DataFrame({"source": ["cells"], "queries": [4]}).write_csv(tmp_path / extras[1], separator="\t")
    case = {"kind": "accepted", "file": "a.jpg", "image_id": "a", "queries": []}
    (tmp_path / extras[3]).write_text(json.dumps(case) + "\n", encoding="utf-8")
    if scored:
        pl.DataFrame({"table": ["iou"], "value": [1.0]}).write_csv(tmp_path / extras[4], separator="\t")
    monkeypatch.setattr(render, "image_file_url", str)
    made = render._medground_section(dict.fromkeys(extras, "digest"))
    assert len(made["passed"]) == 1
    assert bool(made["scores"]) == bool(made["bars"]) == scored
    template = (ROOT / "resources/page/index.html.j2").read_text(encoding="utf-8")
    assert set(re.findall(r"\bmedground\.(\w+)", template)) <= made.keys()
    for missing in extras[:4]:
        assert render._medground_section({name: "" for name in extras if name != missing}) is None
