"""Manifests of MedGround after public bug reports: stray quotation marks, rows of other lengths, semicolons."""

import re
import shutil

import cv2
import numpy as np
import pytest

from cxr.base.errors import UserError
from cxr.base.tables import read_table
from input_doors import result_or_sentence
from medground_data import read_source, source_keys

CLASSES = {"lesion": {}}


def tried(shared, folder, name: str) -> tuple[set[str], dict[str, str]]:
    """Return the images that are read from a given manifest, and {image: reason and detail} of all others."""
    for number in range(1, 7):
        pixels = np.random.default_rng(number).integers(0, 255, (64, 96), np.uint8)
        cv2.imwrite(str(folder / f"{number}.png"), pixels)
        mask = np.zeros((64, 96), np.uint8)
        mask[10:40, 10:30] = 255
        cv2.imwrite(str(folder / f"m{number}.png"), mask)
    shutil.copy(shared / "fixtures/public_reports/g1_medground_stray_quote" / name, folder / "manifest.csv")
    read_source(folder, source_keys(kind="folder", manifest=str(folder / "manifest.csv"), classes=CLASSES))
    excluded = read_table(folder / "sources/excluded.parquet")
    return set(read_table(folder / "sources/images.parquet")["image_id"]), {
        image: f"{reason} {detail}"
        for image, reason, detail in excluded.select("image_id", "reason", "detail").iter_rows()
    }


def test_a_stray_quotation_mark_stops_the_run_and_names_its_line(shared, tmp_path):
    with pytest.raises(UserError, match=r"line 3\b.*quotation mark"):
        tried(shared, tmp_path, "manifest.csv")


def test_rows_of_other_lengths_are_named(shared, tmp_path):
    result, sentence = result_or_sentence(lambda: tried(shared, tmp_path, "manifest2.csv"))
    if result is None:
        assert re.search(r"\b(line|row) 2\b", sentence)
        return
    images, excluded = result
    assert images == set()
    assert len(excluded) == 2
    for line, text in zip((2, 3), sorted(excluded.values()), strict=True):
        assert text.startswith("bad_row")
        assert re.search(rf"\b(line|row) {line}\b", text)


def test_semicolons_are_read(shared, tmp_path):
    images, excluded = tried(shared, tmp_path, "manifest3.csv")
    assert images == {"1", "2", "3", "4", "5", "6"}
    assert excluded == {}
