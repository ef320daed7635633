"""Sources: what a manifest gives, every bad input's reason, tiles, frames, duplicates, and shards (T19, section 13)."""

import csv
import logging
import os
import re

import cv2
import numpy as np
import pytest
from PIL import Image
from pydicom import uid

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.dicom.files import Rejected, silence_output
from cxr.medground.logic.facts import Facts, read_planes
from cxr.medground.sources.cells import read_cells
from cxr.medground.sources.pixels import read_array
from cxr.workflow.plan_medground import MedgroundPlan
from cxr.workflow.settings import read as read_settings
from dicom_files import dataset, encoded
from medground_data import SOURCES, facts_of, make_regions_of, read_source, regions_of, source_keys


def manifest(folder, rows, columns=("image_path", "mask_path", "split", "image_id", "class", "subject_id")):
    with open(folder / "m.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    return source_keys(kind="folder", manifest=str(folder / "m.csv"), classes={"dot": {}, "bar": {}})


def picture(path, seed=0, shape=(64, 96)):
    cv2.imwrite(str(path), np.random.default_rng(seed).integers(0, 255, shape, np.uint8))


def mask(path, box=(10, 10, 30, 40), shape=(64, 96), value=255):
    plane = np.zeros(shape, np.uint8)
    plane[box[1] : box[3], box[0] : box[2]] = value
    cv2.imwrite(str(path), plane)


@pytest.fixture
def made(tmp_path):
    picture(tmp_path / "a.png")
    mask(tmp_path / "a_m.png")
    return tmp_path


ROW = {"image_path": "a.png", "mask_path": "a_m.png", "split": "test", "class": "dot"}


def reasons(folder, keys, **more):
    read_source(folder, keys, **more)
    return {row["image_id"]: row["reason"] for row in read_table(folder / "sources/excluded.parquet").to_dicts()}


def test_a_picture_is_padded_into_its_frame_and_found_back(made):
    read_source(made, manifest(made, [ROW]), size=192)
    (row,) = read_table(made / "sources/images.parquet").to_dicts()
    assert (row["extent"], row["split"], row["subject_id"]) == ([0, 32, 192, 160], "test", "a")
    with Shard(made / "sources/00.h5") as shard:
        planes = read_planes(shard, Facts.from_shard(shard), "a")
    y, x = np.nonzero(planes.mask["dot"])
    assert (x.min(), y.min(), x.max() + 1, y.max() + 1) == (20, 52, 60, 112)
    to = np.array(row["to_original"]).reshape(2, 3)
    assert (to @ (20, 52, 1)).tolist() == [10, 10]
    assert (to @ (60, 112, 1)).tolist() == [30, 40]


def _palette(folder):
    plane = np.zeros((64, 96, 3), np.uint8)
    plane[:9, :9], plane[20:30, 20:30] = (0, 200, 10), (90, 0, 10)
    cv2.imwrite(str(folder / "a_m.png"), plane)


def _noisy(folder):
    cv2.imwrite(str(folder / "a_m.png"), np.random.default_rng(0).integers(0, 255, (64, 96), np.uint8))


BAD = {
    "missing_file": lambda folder: (folder / "a_m.png").unlink(),
    "undecodable": lambda folder: (folder / "a.png").write_bytes(b"\x89PNG no picture"),
    "shape_mismatch": lambda folder: mask(folder / "a_m.png", shape=(64, 64)),
    "empty_mask": lambda folder: mask(folder / "a_m.png", value=0),
    "full_mask": lambda folder: mask(folder / "a_m.png", box=(0, 0, 96, 64)),
    "unknown_label": _noisy,
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_image_has_its_reason_and_the_next_goes_on(made, reason):
    picture(made / "b.png", 1)
    mask(made / "b_m.png")
    BAD[reason](made)
    keys = manifest(made, [ROW, ROW | {"image_path": "b.png", "mask_path": "b_m.png"}])
    assert reasons(made, keys) == {"a": reason}
    assert read_table(made / "sources/images.parquet")["image_id"].to_list() == ["b"]


def test_a_coloured_mask_and_an_unknown_class_are_refused(made):
    _palette(made)
    assert reasons(made, manifest(made, [ROW])) == {"a": "unknown_label"}
    mask(made / "a_m.png")
    assert reasons(made, manifest(made, [ROW | {"class": "blob"}])) == {"a": "unknown_label"}


def _indexed(path, colours):
    """Write a mask whose pixels are numbers of colours, as programs for drawing save them."""
    picture = Image.fromarray(np.clip(PLANE, 0, len(colours) - 1), "P")
    if len(colours) > 2:
        picture.putpixel((60, 50), 2)
    picture.putpalette([part for colour in colours for part in colour])
    picture.save(path)


def test_a_palette_of_black_and_one_colour_is_a_mask_of_two_values(made):
    _indexed(made / "a_m.png", [(0, 0, 0), (128, 0, 0)])
    assert reasons(made, manifest(made, [ROW]), size=96) == {}
    with Shard(made / "sources/00.h5") as shard:
        assert (read_planes(shard, Facts.from_shard(shard), "a").mask["dot"][16:80] == (PLANE > 0)).all()
    _indexed(made / "a_m.png", [(0, 0, 0), (128, 0, 0), (0, 128, 0)])
    assert reasons(made, manifest(made, [ROW])) == {"a": "unknown_label"}
    (told,) = read_table(made / "sources/excluded.parquet")["detail"]
    assert told == "the mask has 3 values, 0 to 2: set medground.sources.mask_threshold"


def test_a_threshold_takes_the_noise_of_a_jpeg(made):
    plane = np.zeros((64, 96), np.uint8)
    plane[10:40, 10:30], plane[0, :5] = 251, 3
    cv2.imwrite(str(made / "a_m.png"), plane)
    assert reasons(made, manifest(made, [ROW])) == {"a": "unknown_label"}
    assert reasons(made, manifest(made, [ROW]), mask_threshold=128) == {}
    with Shard(made / "sources/00.h5") as shard:
        assert read_planes(shard, Facts.from_shard(shard), "a").mask["dot"].any()


def _as(folder, plane, ending="png"):
    """Write the mask anew, and return its row."""
    path = folder / f"other.{ending}"
    np.save(path, plane) if ending == "npy" else cv2.imwrite(str(path), plane)
    return ROW | {"mask_path": path.name}


PLANE = np.zeros((64, 96), np.uint8)
PLANE[10:40, 10:30] = 1
ALPHA = np.dstack([PLANE * 255] * 3 + [np.full_like(PLANE, 255)])
OTHERS = {
    "ones": (PLANE, "png"),
    "a white picture with an opaque alpha": (ALPHA, "png"),
    "three equal planes": (ALPHA[..., :3], "png"),
    "floats of two values": (PLANE.astype(np.float32) / 2, "npy"),
    "booleans": (PLANE > 0, "npy"),
    "sixteen bits": (PLANE.astype(np.uint16) * 65535, "tif"),
}
"""Masks of two values, as people write them."""


@pytest.mark.parametrize("what", OTHERS)
def test_a_mask_of_two_values_is_read_however_it_is_written(made, what):
    assert reasons(made, manifest(made, [_as(made, *OTHERS[what])]), size=96) == {}
    with Shard(made / "sources/00.h5") as shard:
        found = read_planes(shard, Facts.from_shard(shard), "a").mask["dot"]
    assert (found[16:80] == (PLANE > 0)).all()


SHADES = np.linspace(0, 1, 96 * 64, dtype=np.float32).reshape(64, 96)


@pytest.mark.parametrize("plane", [SHADES, np.where(SHADES > 0.5, 2.0, 1.0), np.where(SHADES > 0.5, 0.5, np.nan)])
def test_a_mask_of_other_values_is_refused_with_their_number(made, plane):
    assert reasons(made, manifest(made, [_as(made, plane, "npy")])) == {"a": "unknown_label"}
    told = read_table(made / "sources/excluded.parquet")["detail"][0]
    assert re.search(r"the mask has \d+ values, .+ to ", told)


def test_a_mask_of_another_size_may_be_brought_to_its_picture(made):
    small = np.zeros((32, 48), np.uint8)
    small[5:20, 5:15] = 255
    row = _as(made, small)
    assert reasons(made, manifest(made, [row])) == {"a": "shape_mismatch"}
    assert reasons(made, manifest(made, [row]), size=96, resize_masks="nearest") == {}
    with Shard(made / "sources/00.h5") as shard:
        found = read_planes(shard, Facts.from_shard(shard), "a").mask["dot"]
    assert (found[16:80] == (PLANE > 0)).all()
    stretched = _as(made, cv2.resize(small, (48, 40), interpolation=cv2.INTER_NEAREST))
    assert reasons(made, manifest(made, [stretched]), resize_masks="nearest") == {"a": "shape_mismatch"}


def test_a_value_without_a_class_is_refused_and_a_class_that_never_occurs_is_told(made, caplog):
    values = PLANE.copy()
    values[50, 50] = 7
    keys = manifest(made, [_as(made, values, "npy") | {"class": ""}]) | {"mask_values": {"1": "dot", "2": "bar"}}
    assert reasons(made, keys) == {"a": "unknown_label"}
    assert read_table(made / "sources/excluded.parquet")["detail"].to_list() == ["the mask value 7 has no class"]
    keys = manifest(made, [_as(made, PLANE, "npy") | {"class": ""}]) | {"mask_values": {"1": "dot", "2": "bar"}}
    with caplog.at_level(logging.WARNING, "cxr"):
        assert reasons(made, keys) == {}
    assert "given: no image has a region of the class bar: check the source's masks" in caplog.messages


def boxes(folder, rows):
    """Write a manifest of boxes, and return its source's keys."""
    columns = ("image_path", "split", "x", "y", "w", "h", "class")
    return manifest(folder, rows, columns) | {"kind": "boxes"}


BOX = {"image_path": "a.png", "split": "test", "x": 3, "y": 4, "w": 20, "h": 30, "class": "dot"}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, ""), ({"w": 0}, "bad_row"), ({"x": -4}, "bad_row"), ({"x": 90}, "bad_row"), ({"h": "tall"}, "bad_row"),
        ({"x": "nan"}, "bad_row"), ({"w": "inf"}, "bad_row"), ({"class": "blob"}, "unknown_label"),
        ({"image_path": "none.png"}, "missing_file"),
    ],
)  # fmt: skip
def test_a_row_of_boxes_is_read_or_refused(made, changed, reason):
    found = reasons(made, boxes(made, [BOX | changed]))
    assert set(found.values()) == ({reason} if reason else set())


WRONG = [
    ([ROW | {"split": "tests"}], "line 2 has the split 'tests'"),
    ([ROW, ROW], "line 3 repeats the class 'dot'"),
    ([ROW, ROW | {"image_path": "b/a.png"}], "lines 2 and 3 give 'a' two files"),
    ([ROW | {"mask_path": "../m.png"}], "line 2: mask_path is outside the manifest's folder"),
    (
        [ROW | {"subject_id": "s"}, ROW | {"subject_id": "s", "image_id": "c", "split": "train"}],
        "lines 2 and 3 put the subject 's' into test and train",
    ),
]


@pytest.mark.parametrize(("rows", "words"), WRONG)
def test_a_wrong_manifest_is_one_sentence(made, rows, words):
    with pytest.raises(UserError, match=words):
        read_source(made, manifest(made, rows))
    assert not (made / "sources/00.h5").exists()


def test_lines_are_counted_as_an_editor_does(made):
    """An empty line has a number, and a text of two lines has two."""
    keys = manifest(made, [ROW])
    text = 'image_path,mask_path,split,description\n,,,\n\na.png,a_m.png,test,"two\nlines"\nb.png,b_m.png,tests,\n'
    (made / "m.csv").write_text(text)
    with pytest.raises(UserError, match="line 6 has the split 'tests': use train, validate, test"):
        read_source(made, keys)
    (made / "m.csv").write_text(text.replace("tests", "test"))
    assert reasons(made, keys | {"classes": {"dot": {}}}) == {"b": "missing_file"}


def test_a_missing_column_is_named(made):
    keys = manifest(made, [{"image_path": "a.png", "split": "test"}], ("image_path", "split"))
    with pytest.raises(UserError, match="lacks the column mask_path: add it"):
        read_source(made, keys)


def test_of_equal_pictures_the_tests_copy_stays(made):
    for name in ("b", "c"):
        (made / f"{name}.png").write_bytes((made / "a.png").read_bytes())
    rows = [
        ROW | {"image_path": f"{name}.png", "split": split}
        for name, split in zip("abc", ("train", "train", "test"), strict=False)
    ]
    assert reasons(made, manifest(made, rows)) == {"a": "duplicate_of_test", "b": "duplicate_of_test"}
    rows = [row | {"split": "train"} for row in rows]
    assert reasons(made, manifest(made, rows)) == {"b": "duplicate_image", "c": "duplicate_image"}


def test_no_pickle_is_read(made):
    np.save(made / "p.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(Rejected) as rejected:
        read_array(made / "p.npy")
    assert rejected.value.reason == "undecodable"


def test_sixteen_bits_are_shown_by_their_percentiles(made):
    values = np.random.default_rng(0).integers(0, 236, (64, 96)).astype(np.uint16)
    cv2.imwrite(str(made / "a.tif"), values)
    read_source(made, manifest(made, [ROW | {"image_path": "a.tif"}]))
    with Shard(made / "sources/00.h5") as shard:
        seen = shard.get("picture", "a")
    assert seen.max() > 250


@pytest.mark.parametrize("kind", ["MONOCHROME2", "MONOCHROME1", "JPEG-LS"])
def test_a_dicom_picture_is_shown_by_its_percentiles_with_white_bone(made, kind):
    """A film of 12 bits with one pixel far above all others; the name has no ending, as in hospitals' folders."""
    values = np.arange(64 * 96, dtype=np.uint16).reshape(64, 96) // 3
    values[63, 95] = 4095
    tags = {} if kind == "JPEG-LS" else {"PhotometricInterpretation": kind}
    syntax = uid.JPEGLSLossless if kind == "JPEG-LS" else uid.ExplicitVRLittleEndian
    (made / "IM0001").write_bytes(encoded(dataset(values, 12, **tags), syntax))
    read_source(made, manifest(made, [ROW | {"image_path": "IM0001"}]), size=96)
    with Shard(made / "sources/00.h5") as shard:
        seen = shard.get("picture", "IM0001")[16:80]
    low, high = np.sort(values.ravel())[[6, 6137]].astype(float)  # .1 and 99.9 % of 6,144
    wanted = np.rint(np.clip((values - low) / (high - low), 0, 1) * 255)
    assert high < 2048
    assert (seen == (255 - wanted if kind == "MONOCHROME1" else wanted)[..., None]).all()


def test_a_damaged_dicom_file_has_its_reason_and_prints_nothing(made, capfd, monkeypatch):
    data = encoded(dataset(np.arange(64 * 96, dtype=np.uint16).reshape(64, 96), PatientName="Nobody^Known"))
    films = {"cut": data[: len(data) // 2], "empty": data[:700], "large": data}
    rows = [ROW | {"image_path": name, "subject_id": name} for name in films]
    for name, held in films.items():
        (made / name).write_bytes(held)
    found = reasons(made, manifest(made, rows[:2]))
    assert set(found) == {"cut", "empty"}
    assert set(found.values()) <= {"undecodable", "no_pixels"}
    monkeypatch.setattr("cxr.dicom.image.MAX_PIXELS", 1000)
    assert reasons(made, manifest(made, rows[2:])) == {"large": "undecodable"}
    assert "Nobody" not in "".join(capfd.readouterr())
    assert "Nobody" not in str(read_table(made / "sources/excluded.parquet").to_dicts())


def test_silence_covers_what_libraries_print(capfd):
    with silence_output():
        os.write(1, b"a patient")
        os.write(2, b"a patient")
    os.write(1, b"after")
    assert capfd.readouterr() == ("after", "")


def test_drawn_cells_are_their_truth(tmp_path):
    keys = source_keys(kind="cells", domain="nuclei")
    make_regions_of(read_source(tmp_path, keys, shards=2, cells=12))
    rows = regions_of(tmp_path)
    for image_id, read_image in read_cells(12, 2026):
        image = read_image()
        own = [row for row in rows if row["image_id"] == image_id]
        expected = set()
        for number in range(1, int(image.instances.max()) + 1):
            y, x = np.nonzero(image.instances == number)
            if len(y) >= 20:
                expected.add((int(x.min()), int(y.min()), int(x.max()) + 1, int(y.max()) + 1, len(y)))
        assert {(row["x1"], row["y1"], row["x2"], row["y2"], row["area"]) for row in own} == expected
    assert len({row["label"] for row in rows}) == 2


def test_shards_and_their_number_change_no_region(tmp_path):
    keys = source_keys(kind="cells", domain="nuclei")
    found = []
    for shards in (1, 3):
        folder = make_regions_of(read_source(tmp_path / str(shards), keys, shards=shards, cells=8))
        found.append(sorted(regions_of(folder), key=lambda row: (row["image_id"], row["region"])))
    assert found[0] == found[1]


def test_a_source_read_twice_is_the_same_bytes(tmp_path):
    keys = source_keys(kind="cells", domain="nuclei")
    once, again = (read_source(tmp_path / name, keys, cells=5) / "sources/00.h5" for name in "ab")
    assert once.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("name", SOURCES)
def test_real_data_are_read_without_a_loss(shared, tmp_path, name):
    given = SOURCES[name](shared, tmp_path / "m.csv", 0)
    make_regions_of(read_source(tmp_path, source_keys(**({"kind": "folder"} | given)), shards=2, name=name))
    rows, facts = regions_of(tmp_path), facts_of(tmp_path)
    images = read_table(tmp_path / "sources/images.parquet")
    assert read_table(tmp_path / "sources/excluded.parquet").is_empty()
    assert {row["image_id"] for row in rows} <= set(images["image_id"])
    assert {row["label"] for row in rows} <= set(facts.labels)
    known = {"covid": 9, "monuseg": 80, "stardist": 16}
    assert len(images) == known.get(name, len(images)) > 0
    assert all((row["solidity"] is None) == facts.boxes_only for row in rows)
    assert all(row["radiological"] == (True if row["domain"] == "cxr" else None) for row in images.to_dicts())


def test_drawn_pictures_are_a_source_beside_the_embedded_cohort_alone():
    def names(cohort, **medground):
        settings = read_settings({"cohort": cohort, "medground": medground})
        return list(MedgroundPlan(settings, ["00", "01"], ["default"]).sources)

    assert names({}) == ["ils", "cells"]
    for cohort in (
        {"source": "manifest", "manifest": "m.csv"}, {"source": "mimic", "root": "."}, {"source": "openi", "root": "."},
    ):  # fmt: skip
        assert names(cohort) == ["ils"]
        assert names(cohort, sources={"sets": {"cells": {"kind": "cells", "domain": "nuclei"}}}) == ["cells"]
