"""The benchmark that writes NIH X-rays in Open-i's layout: the matching of images, and the printed summary."""

import importlib.util

import cv2
import numpy as np
import polars as pl
import pytest

from conftest import ROOT
from openi_tree import write_headers, write_report, write_table

spec = importlib.util.spec_from_file_location("openi_stand_in", ROOT / "benchmarks" / "openi_stand_in.py")
stand_in = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stand_in)

TERMS = {1: ["normal"], 2: ["Cardiomegaly/mild"], 3: ["Opacity/lung/base/left", "Pleural Effusion/left"], 4: ["normal"]}
FILMS = {"nih": {"a.png": "Effusion|Infiltration", "b.png": "No Finding"}, "nih_more": {"c.png": "Cardiomegaly|Hernia"}}
GREY = {"a.png": 10, "b.png": 20, "c.png": 30}


@pytest.fixture
def laid_out(tmp_path):
    openi, data = tmp_path / "openi", tmp_path / "data"
    seen = []
    for number, terms in TERMS.items():
        path = write_report(openi, number, [f"CXR{number}_IM-0001-1001", f"CXR{number}_IM-0001-2001"])
        majors = "".join(f"<major>{term}</major>" for term in terms)
        path.write_text(path.read_text().replace("</eCitation>", f"<MeSH>{majors}</MeSH></eCitation>"))
        seen.append((f"CXR{number}_IM-0001-1001", "PA"))
    write_headers(openi, [], seen)
    for name, films in FILMS.items():
        (data / name / "images").mkdir(parents=True)
        write_table(data / name, f"{name}.csv", ("image", "nih_labels"), list(films.items()))
        for film in films:
            cv2.imwrite(str(data / name / "images" / film), np.full((8, 8), GREY[film], np.uint8))
    assert stand_in.lay_out(openi, data, tmp_path / "out") == 3
    return tmp_path / "out"


def test_a_film_stands_for_the_first_report_with_its_findings(laid_out):
    shown = {path.name: int(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)[0, 0]) for path in laid_out.rglob("*.png")}
    assert shown == {f"CXR{number}_IM-0001-{image}001.png": GREY[film]
                     for number, film in ((3, "a.png"), (1, "b.png"), (2, "c.png")) for image in (1, 2)}  # fmt: skip
    assert {path.name for path in (laid_out / "ecgen-radiology").iterdir()} == {"1.xml", "2.xml", "3.xml"}
    assert (laid_out / "nlmcxr_tsne_pa.csv").is_file()


def test_the_tables_are_those_of_the_run(workflow_run):
    results = workflow_run / "results"
    stages = stand_in.stages(results)
    assert [name for name, *_ in stages][:3] == ["input", "cohort", "frames"]
    assert [left for *_, left in stages] == sorted((left for *_, left in stages), reverse=True)
    findings = pl.read_parquet(results / "masks/default/findings.parquet").drop_nulls("target")
    table = stand_in.grounded(results)
    assert sum(masks for _, masks, _ in table) == findings.drop_nulls("mask_id").height
    assert sum(number for *_, number in table) == findings.height
