"""The engine chexmask: runs and landmarks of the published table, its faults, and a reason for images without masks."""

import csv
import gzip
import re
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest

from conftest import SLICE, snakemake, write_settings
from cxr.annotations import chexmask as published_table
from cxr.annotations.chexmask import decode_points, decode_runs, read_rows
from cxr.base import errors, tables
from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.vocabulary import ORGAN_LABELS
from cxr.geometry.affine import fit_affine, to_frame
from cxr.imaging.organs import chexmask
from cxr.imaging.organs.engine import fill_outlines, load_engine
from cxr.imaging.organs.settings import ChexmaskSettings
from cxr.imaging.phantom.chest import draw_chest
from organs_runs import OPTIONS, verdicts_of, write_frames

SHAPE = (900, 700)
COLUMNS = ["dicom_id", "Dice RCA (Mean)", "Dice RCA (Max)", "Landmarks", "Left Lung", "Right Lung", "Heart"]
COLUMNS += ["Height", "Width"]
OVALS = {"right lung": (44, 200, 520, 90, 280), "left lung": (50, 500, 520, 90, 280), "heart": (26, 370, 660, 120, 100)}
"""Landmarks, centre and half axes (x, y) of each organ of the test chest."""


def ring() -> np.ndarray:
    """The 120 landmarks of three ovals, as whole pixels."""
    parts = []
    for count, x, y, across, down in OVALS.values():
        turn = 2 * np.pi * np.arange(count) / count
        parts.append(np.stack([x + across * np.sin(turn), y - down * np.cos(turn)], axis=1))
    return np.round(np.concatenate(parts)).astype(int)


def drawn(points: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    parts = dict(zip(OVALS, np.split(points, [44, 94]), strict=True))
    return {name: cv2.fillPoly(np.zeros(shape, np.uint8), [part.astype(np.int32)], 1) for name, part in parts.items()}


def runs_of(mask: np.ndarray) -> str:
    """Return the run-length code by its definition, pixel by pixel."""
    runs, before = [], 0
    for number, value in enumerate(mask.ravel().tolist(), 1):
        if value and not before:
            runs.append([number, 0])
        if value:
            runs[-1][1] += 1
        before = value
    return " ".join(f"{start} {length}" for start, length in runs)


@pytest.fixture(scope="module")
def good() -> dict[str, object]:
    masks = drawn(ring(), SHAPE)
    return {
        "dicom_id": "good",
        "Dice RCA (Mean)": 0.81,
        "Dice RCA (Max)": 0.9,
        "Landmarks": str(ring()),  # as the table holds it: a printed array of 120 lines
        **{column: runs_of(masks[column.lower()]) for column in ("Left Lung", "Right Lung", "Heart")},
        "Height": SHAPE[0],
        "Width": SHAPE[1],
    }


@pytest.fixture(scope="module")
def swapped(good) -> dict[str, object]:
    """Made as the public code for MIMIC-CXR does: height and width mixed up, so that what is below is cut off."""
    masks = drawn(ring(), SHAPE[::-1])
    runs = {column: runs_of(masks[column.lower()]) for column in ("Left Lung", "Right Lung", "Heart")}
    return good | runs | {"dicom_id": "swapped", "Height": SHAPE[1], "Width": SHAPE[0]}


def write_table(path, rows: list[dict[str, object]]) -> str:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def chest() -> np.ndarray:
    return np.round(draw_chest(np.random.default_rng(3), SHAPE).image * 255).astype(np.uint8)


def shards_of(folder: Path, table: str, *shards: list[str]) -> list[str]:
    """Split a table over shards of these images; return the files."""
    cohort, output = ([str(folder / f"{kind}{n}.{kind}") for n in range(len(shards))] for kind in ("parquet", "csv.gz"))
    for path, names in zip(cohort, shards, strict=True):
        tables.write_table(path, pl.DataFrame({"image_id": names}, schema={"image_id": pl.String}))
    chexmask.split_table(table=table, cohort=cohort, output=output)
    return output


def run(folder, table: str, names: list[str], shape: tuple[int, int] = SHAPE) -> dict[str, tuple[str, str]]:
    frames = write_frames(folder / "frames.h5", dict.fromkeys(names, cv2.resize(chest(), shape[::-1])))
    options = replace(OPTIONS, engine="chexmask", chexmask=ChexmaskSettings(table=table))
    return verdicts_of(folder, frames, options, rows=shards_of(folder, table, names)[0])


def test_runs_count_from_one_along_the_rows():
    mask = decode_runs("1 2 6 3 12 1", (3, 4))
    np.testing.assert_array_equal(mask, [[1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 1]])
    assert not decode_runs("", (3, 4)).any()
    random = np.random.default_rng(0)
    for _ in range(5):
        picture = random.integers(0, 2, (13, 7))
        np.testing.assert_array_equal(decode_runs(runs_of(picture), (13, 7)), picture)


@pytest.mark.parametrize(
    "text", ["1 2 6", "0 2", "12 2", "3 -1", "1 two", "1.5 2", f"1 {10**30}", f"{2**63 - 1} {2**63 - 1}"]
)
def test_runs_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        decode_runs(text, (3, 4))


def test_landmarks_are_read_as_lists_and_as_printed_arrays():
    points = ring()
    for text in (str(points), str(points.ravel().tolist()), ",".join(map(str, points.ravel())), str(points * 1.0)):
        np.testing.assert_array_equal(decode_points(text, 120), points)
    with pytest.raises(ValueError, match="238 numbers instead of 240"):
        decode_points(str(points[:-1]), 120)


def test_outlines_hold_their_own_pixels_and_each_organ_has_its_landmarks():
    points = np.zeros((120, 2))
    points[:44] = np.resize([[2, 1], [5, 1], [5, 3], [2, 3]], (44, 2))  # the same square eleven times round
    points[44:94] = [6.6, 7.4]
    points[94:] = np.resize([[6, 6], [1e12, 6], [1e12, 6], [6, 6]], (26, 2))  # leaves the picture by far
    masks = fill_outlines(points, (9, 8))
    wanted = np.zeros((3, 9, 8))
    wanted[0, 1:4, 2:6] = wanted[1, 7, 7] = wanted[2, 6, 6:] = 1
    np.testing.assert_array_equal(masks, wanted)
    for bad in (points[:-1], np.where(points == 6.6, np.nan, points)):
        with pytest.raises(ValueError, match="120 finite landmarks"):
            fill_outlines(bad, (9, 8))


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_masks_come_to_the_frame(tmp_path, good, swapped, name):
    table = write_table(tmp_path / name, [good, swapped | {"dicom_id": "elsewhere"}])
    assert run(tmp_path, table, ["good"]) == {"good": ("", "")}
    affine = fit_affine(SHAPE, 512, "pad")
    with Shard(tmp_path / "out1.h5") as shard:
        assert tuple(shard.labels()) == ORGAN_LABELS
        found = shard.masks("good")
    for label, mask in drawn(ring(), SHAPE).items():
        np.testing.assert_array_equal(found[label], to_frame(mask, affine, 512, nearest=True) > 0)
    assert (found["heart"] & found["left lung"]).any()  # each mask is whole
    columns = [np.nonzero(found[label])[1].mean() for label in ORGAN_LABELS]
    assert columns[0] < columns[2] < columns[1]


def test_a_row_with_height_for_width_is_drawn_from_its_landmarks(tmp_path, good, swapped):
    table = write_table(tmp_path / "table.csv", [swapped, good])
    cut = decode_runs(swapped["Right Lung"], SHAPE[::-1])
    assert cut.sum() < 0.98 * drawn(ring(), SHAPE)["right lung"].sum()  # the runs do lose the base of the lung
    assert run(tmp_path, table, ["good", "swapped"]) == {"good": ("", ""), "swapped": ("", "")}
    with Shard(tmp_path / "out1.h5") as shard:
        np.testing.assert_array_equal(shard.get("mask", "swapped"), shard.get("mask", "good"))


def test_every_image_without_masks_has_its_reason(tmp_path, good, swapped):
    rows = {
        "poor": {"Dice RCA (Mean)": 0.69},
        "nan": {"Dice RCA (Mean)": "nan"},
        "blank": {"Height": ""},
        "small": {"Height": 1024, "Width": 1024},
        "overrun": {"Heart": f"{SHAPE[0] * SHAPE[1]} 2"},
        "empty": {"Left Lung": ""},
        "limit": {"Dice RCA (Mean)": 0.7},
    }
    table = [good | {"dicom_id": name} | change for name, change in rows.items()]
    table += [swapped | {"dicom_id": "pointless", "Landmarks": "[[1 2]\n [3 4]]"}]
    found = run(tmp_path, write_table(tmp_path / "table.csv", table), [*rows, "pointless", "absent"])
    assert found == {
        "absent": ("no_lungs", "the CheXmask table has no row for the image"),
        "poor": ("no_lungs", "Dice RCA (Mean) is 0.690, below min_dice 0.7"),
        "nan": ("no_lungs", "Dice RCA (Mean), Height or Width in the CheXmask table is not a number"),
        "blank": ("no_lungs", "Dice RCA (Mean), Height or Width in the CheXmask table is not a number"),
        "small": ("no_lungs", "the CheXmask table says 1024 x 1024 pixels, but the image has 900 x 700"),
        "overrun": ("no_lungs", "the row in the CheXmask table is damaged: a run outside the image"),
        "empty": ("no_lungs", "left lung covers 0.000 of the image"),
        "pointless": ("no_lungs", "the row in the CheXmask table is damaged: 4 numbers instead of 240"),
        "limit": ("", ""),
    }


def test_only_the_rows_asked_for_are_kept_and_of_repeated_ones_the_best(tmp_path, good):
    dice = [("a", 0.6), ("b", 0.8), ("a", 0.9), ("a", "nan"), ("a", 0.7), ("c", 0.5)]
    rows = [good | {"dicom_id": name, "Dice RCA (Mean)": value} for name, value in dice]
    found = read_rows("key", write_table(tmp_path / "table.csv", rows), ["a", "c", "d"])
    assert {name: row.dice for name, row in found.items()} == {"a": 0.9, "c": 0.5}


@pytest.mark.parametrize("held", [0, 100, 2**26])
def test_each_shard_gets_its_own_rows_whole_and_in_order(tmp_path, good, monkeypatch, held):
    """The result does not depend on the buffer's size; 'a' is repeated, 'e' has no row and 'none' no image."""
    monkeypatch.setattr(chexmask, "MAX_BUFFERED_CHARACTERS", held)
    rows = [good | {"dicom_id": name, "Dice RCA (Mean)": dice} for name, dice in zip("cabeda", range(6), strict=True)]
    rows[3] |= {"Landmarks": "", "Height": ""}
    table = write_table(tmp_path / "table.csv.gz", rows)
    files = shards_of(tmp_path, table, ["a", "b", "none"], [], ["d", "c"])
    wanted = ["a1 b2 a5", "", "c0 d4"]
    for path, told in zip(files, wanted, strict=True):
        with gzip.open(path, "rt", newline="") as file:
            read = list(csv.DictReader(file))
        assert [row["dicom_id"] + row["Dice RCA (Mean)"] for row in read] == told.split()
        for row in read:
            original = next(old for old in rows if str(old["Dice RCA (Mean)"]) == row["Dice RCA (Mean)"])
            assert row == {name: str(original[name]) for name in published_table.COLUMNS}
    first = [Path(path).read_bytes() for path in files]
    assert [Path(path).read_bytes() for path in shards_of(tmp_path, table, ["a", "b", "none"], [], ["d", "c"])] == first
    assert {name: row.dice for name, row in read_rows("key", files[0], ["a", "b", "none"]).items()} == {"a": 5, "b": 2}
    assert read_rows("key", files[1], []) == {}


def test_a_damaged_shard_of_rows_is_told(tmp_path, good):
    whole = Path(shards_of(tmp_path, write_table(tmp_path / "table.csv", [good]), ["good"])[0]).read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"dicom_id\n"):
        path = tmp_path / "rows.csv.gz"
        path.write_bytes(content)
        engine = load_engine("chexmask", OPTIONS, Setup(files={"rows": str(path)}))
        with pytest.raises(errors.StoreError, match=rf"^{path} is missing or damaged: delete it and run again$"):
            engine.prepare(["good"])


@pytest.mark.slow
def test_the_workflow_reads_the_table_once(tmp_path, dry_run):
    table = tmp_path / "masks.csv"
    settings = SLICE | {"organs": {"engine": "chexmask", "chexmask": {"table": str(table)}}}
    done = snakemake(write_settings(tmp_path, settings), "--dry-run", "organs", check=False)
    assert done.returncode == 1
    assert f"cxr-ils: organs.chexmask.table: there is no file '{table}': correct the path" in done.stderr
    table.write_text(",".join(COLUMNS) + "\n")
    jobs = dry_run(tmp_path, "organs")
    assert (jobs["organs_chexmask"], jobs["organs_shard"]) == (1, 3)
    write_settings(tmp_path, SLICE)
    assert "organs_chexmask" not in dry_run(tmp_path, "organs")


def test_a_table_of_other_images_is_warned_of(tmp_path, good, caplog):
    table = write_table(tmp_path / "table.csv", [good])
    assert set(run(tmp_path, table, ["a", "b"]).values()) == {
        ("no_lungs", "the CheXmask table has no row for the image")
    }
    assert "none of the images is in the table" in caplog.text


def refused(path) -> str:
    with pytest.raises(UserError) as error:
        shards_of(path.parent, str(path), ["good"])
    assert not list(path.parent.glob("csv.gz*"))
    return str(error.value)


def test_what_is_no_such_table_is_refused_in_one_sentence(tmp_path, good):
    whole = write_table(tmp_path / "whole.csv.gz", [good | {"dicom_id": str(number)} for number in range(300)])
    content = Path(whole).read_bytes()
    unreadable = {"empty.csv": b"", "cut.csv.gz": content[: len(content) // 2], "missing.csv": None}
    for name, held in unreadable.items():
        path = tmp_path / name
        if held is not None:
            path.write_bytes(held)
        assert re.fullmatch(
            rf"organs\.chexmask\.table: {path} cannot be read as CSV \(\w+\): give the CheXmask .*|"
            rf"organs\.chexmask\.table is '{path}', which is damaged \(\w+\): download it again",
            refused(path),
        )
    page = tmp_path / "page.csv"
    page.write_text("<!DOCTYPE html><html>sign in</html>\n")
    assert "lacks the columns dicom_id, Dice RCA (Mean), Height" in refused(page)
    other = tmp_path / "other.csv"
    other.write_text((",".join(COLUMNS)).replace("dicom_id", "image_id") + "\n")
    assert refused(other) == (
        f"organs.chexmask.table: {other} lacks the column dicom_id: give the file "
        "OriginalResolution/MIMIC-CXR-JPG.csv of the CheXmask database"
    )


def test_a_quotation_mark_that_joins_rows_is_refused(tmp_path, good):
    path = Path(
        write_table(
            tmp_path / "table.csv", [good | {"dicom_id": str(n), "Heart": "1 2", "Landmarks": "1"} for n in range(4)]
        )
    )
    path.write_text(path.read_text().replace(",1 2,", ',"1 2,', 1).replace(",1 2,", ',1 2",', 1))
    assert refused(path).endswith("has a quotation mark that joins lines: download it again")
