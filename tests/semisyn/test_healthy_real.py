"""The default screen on real X-rays: clean films pass, films with opacities are refused."""

import csv
import json

import cv2
import numpy as np
import polars as pl
import pytest

from conftest import ROOT
from cxr.geometry.affine import fit_affine, to_frame
from cxr.imaging.boxes.detect_boxes import SCHEMA
from cxr.imaging.boxes.engine import load_engine as load_boxes
from cxr.imaging.boxes.settings import BoxesSettings
from cxr.imaging.organs.engine import load_engine as load_organs
from cxr.semisyn.healthy import engine
from cxr.semisyn.healthy.lite import LiteClassifier
from cxr.semisyn.healthy.settings import LiteSettings
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings
from organs_runs import OPTIONS as ORGANS

PLAIN = stage_options(Settings())
BOXES = BoxesSettings.from_dict(PLAIN["boxes"])


def rows(path) -> list[dict]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def clean(shared) -> list[tuple]:
    """(image, view) of the NIH films without a box that were looked at and are without a finding."""
    folder = shared / "data" / "nih"
    seen = {row["image"] for row in rows(ROOT / "resources/boxes/not_healthy.csv")}
    return [
        (folder / "images" / row["image"], row["view"])
        for row in rows(folder / "nih.csv")
        if row["nih_boxes"] == row["rsna_boxes"] == "[]" and row["image"].partition(".")[0] not in seen
    ]


def outlined(shared) -> list[tuple]:
    """(image, view) of the COVID films with lungs that radiologists outlined."""
    folder = shared / "data" / "covid"
    return [
        (folder / "images" / row["image"], row["view"])
        for row in rows(folder / "covid.csv")
        if "lung_right" in json.loads(row["masks"] or "{}")
    ]


@pytest.fixture(scope="module")
def screen(tmp_path_factory):
    """Return a function: what makes a film positive at the default settings."""
    folder = tmp_path_factory.mktemp("screen")
    detector, organs = load_boxes(BOXES), load_organs("lite", ORGANS)

    def judge(path, view: str) -> str:
        image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        affine = fit_affine(image.shape, 512, "pad")
        frame = to_frame(image, affine, 512)
        detections = zip(*detector.detect(frame, "i", affine), strict=True)
        used = {name: name not in BOXES.excluded_classes for name in detector.class_names}
        found = [("i", *map(float, box), float(score), name, used[name]) for box, score, name in detections]
        pl.DataFrame(found, schema=SCHEMA, orient="row").write_parquet(folder / "boxes.parquet")
        pl.DataFrame(schema=dict.fromkeys(("image_id", "reason", "detail"), pl.String)).write_parquet(
            folder / "e.parquet"
        )
        files = {"boxes": str(folder / "boxes.parquet"), "boxes_excluded": str(folder / "e.parquet")}
        classifier = LiteClassifier(LiteSettings(), files)
        masks = dict(zip(organs.labels, organs.segment(frame, "i", affine, image.shape), strict=True))
        ratio = engine.cardiothoracic_ratio(engine.organ_boxes(masks))
        return classifier.explain_positive(classifier.scores("i", lambda: frame), ratio, view)

    return judge


@pytest.mark.slow
def test_clean_films_pass_and_covid_films_are_refused(shared, screen):
    healthy = [not screen(*film) for film in clean(shared)]
    covid = [bool(screen(*film)) for film in outlined(shared)]
    assert (len(healthy), len(covid)) == (31, 18)
    assert np.mean(healthy) >= 0.75
    assert np.mean(covid) >= 0.55
