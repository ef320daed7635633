"""What ILS recovers of painted lesions: hits, lit maps and masks by hand, thirds, intervals; films become a cohort."""

import csv
import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import yaml

from conftest import ROOT
from cxr.metrics.intervals import wilson_interval

sys.path.insert(0, str(ROOT / "scripts/tools"))
import semisyn_films
import semisyn_recovered as recovered


def square(x1: int, y1: int, x2: int, y2: int) -> np.ndarray:
    mask = np.zeros((100, 100), bool)
    mask[y1:y2, x1:x2] = True
    return mask


def test_a_box_counts_that_overlaps_the_lesion_or_one_of_its_parts():
    mask = square(10, 10, 30, 30) | square(60, 10, 90, 40)
    assert recovered.is_hit(np.array([[60.0, 10, 90, 40]]), mask)
    assert recovered.is_hit(np.array([[10.0, 10, 90, 40]]), mask)
    assert not recovered.is_hit(np.array([[10.0, 10, 15, 30], [0, 60, 99, 99]]), mask)  # IoU .25 of the first part
    assert recovered.is_hit(np.array([[10.0, 10, 16, 30]]), mask)  # and .30
    assert not recovered.is_hit(np.zeros((0, 4)), mask)


def test_a_map_that_shows_half_of_the_lesion_counts():
    mask, anomaly = square(0, 0, 10, 10), np.zeros((100, 100))
    anomaly[0:5, 0:10] = 0.1
    assert recovered.is_lit(anomaly, mask, 0.1)
    anomaly[0, 0] = 0.09
    assert not recovered.is_lit(anomaly, mask, 0.1)


def test_masks_and_contrast():
    assert recovered.iou(square(0, 0, 10, 10), square(5, 0, 15, 10)) == 50 / 150
    assert recovered.iou(square(0, 0, 0, 0), square(0, 0, 0, 0)) == 0.0
    before = np.full((100, 100), 100, np.uint8)
    after = before.copy()
    after[0:10, 0:5], after[0:10, 5:10] = 90, 120
    assert recovered.contrast(before, after, square(0, 0, 10, 10)) == 15.0


def rows() -> pl.DataFrame:
    """Nine films with edema, of rising size and falling contrast; the three largest are recovered, one source is."""
    told = [("boxes", "edema", 10.0 * at, 9.0 - at, at > 5, at == 0) for at in range(9)]
    told += [("masks", "opacity", 5.0, 1.0, True, None)]
    names = ["stage", "finding", "size", "contrast", "recovered", "source"]
    return pl.DataFrame(told, schema=names, orient="row")


def test_the_table_has_thirds_of_a_finding_with_wilsons_interval():
    table = recovered.recovery_table(rows())
    found = {(row["stage"], row["finding"], row["by"], row["level"]): row for row in table.to_dicts()}
    whole = found["boxes", "edema", "all", ""]
    assert (whole["films"], whole["recovered"], whole["on_source"]) == (9, 3, pytest.approx(1 / 9))
    assert (whole["rate"], whole["low"], whole["high"]) == pytest.approx(tuple(wilson_interval(3, 9, 0.95)))
    by = {key[2:]: row["recovered"] for key, row in found.items() if key[:2] == ("boxes", "edema")}
    assert [by["size", third] for third in recovered.THIRDS] == [0, 0, 3]
    assert [by["contrast", third] for third in recovered.THIRDS] == [3, 0, 0]
    assert found["boxes", "all", "all", ""]["films"] == 9
    assert found["masks", "opacity", "all", ""]["on_source"] is None
    assert {row["stage"] for row in table.to_dicts() if row["circular"]} == {"boxes", "masks"}


def test_the_figure_is_drawn(tmp_path):
    recovered.draw_figure(recovered.recovery_table(rows()), tmp_path / "recovered.png")
    assert (tmp_path / "recovered.png").stat().st_size > 5000


def test_films_of_nih_become_a_cohort(tmp_path):
    names = ["image", "patient_id", "view", "nih_labels", "nih_boxes", "rsna_class", "rsna_boxes", "width", "height"]
    box = {"x": 1, "y": 2, "w": 3, "h": 4}
    films = {
        "nih": [
            ["a.png", 1, "PA", "No Finding", "[]", "Normal", "[]", 9, 9],
            ["b.png", 2, "AP", "Pneumonia", json.dumps([box | {"label": "Pneumonia"}]), "", "", 9, 9],
            ["c.png", 3, "PA", "Mass", json.dumps([box | {"label": "Mass"}]), "", "", 9, 9],
        ],
        "nih_more": [["d.png", 1, "PA", "No Finding", "", "No Lung Opacity / Not Normal", "", 9, 9]],
    }
    for name, lines in films.items():
        (tmp_path / name).mkdir()
        with open(tmp_path / name / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([names, *lines])
    command = [sys.executable, str(ROOT / "experiments/semisyn_films.py"), str(tmp_path), str(tmp_path / "out")]
    subprocess.run(command, check=True)
    labels = list(csv.DictReader((tmp_path / "out/films/chexpert.csv").read_text(encoding="utf-8").splitlines()))
    assert {row["study_id"] for row in labels if row["No Finding"]} == {"nih-a"}
    boxes = json.loads((tmp_path / "out/films/people.json").read_text())
    assert [image["file_name"] for image in boxes["images"]] == ["nih-b.png"]
    assert boxes["annotations"][0]["bbox"] == [1, 2, 3, 4]
    for folder in ("films", "ils"):
        told = yaml.safe_load((tmp_path / f"out/{folder}/mine.yaml").read_text())
        assert told == yaml.safe_load(getattr(semisyn_films, folder.upper()))
