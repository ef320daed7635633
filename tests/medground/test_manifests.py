"""Manifests of MedGround as people and programs save them: the rules and sentences of every other table."""

import codecs
import gzip
import logging
import unicodedata
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest

from cxr.base.errors import UserError
from cxr.base.tables import read_table
from medground_data import read_source, source_keys

HEADER = "image_path,mask_path,split,class"
ROWS = ["1.png,m.png,train,lesion", "2.png,m.png,validate,lesion", "3.png,m.png,test,lesion"]


def draw(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (64, 64), np.uint8)
        if Path(name).name.lower().startswith("m"):
            pixels = np.zeros((64, 64), np.uint8)
            pixels[10:30, 10:30] = 255
        (folder / name).write_bytes(cv2.imencode(".png", pixels)[1].tobytes())


def read_splits(
    folder: Path, data: bytes | str | list[str], name: str = "manifest.csv", kind: str = "folder"
) -> dict[str, str]:
    """Return {image: its split, or why it is excluded} of a manifest: bytes, text, or lines below :data:`HEADER`."""
    data = "\n".join([HEADER, *data]) + "\n" if isinstance(data, list) else data
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    read_source(folder, source_keys(kind=kind, manifest=str(folder / name), classes={"lesion": {}, "Größe": {}}))
    used = read_table(folder / "sources/images.parquet").select("image_id", "split").iter_rows()
    excluded = read_table(folder / "sources/excluded.parquet").select("image_id", "reason", "detail").iter_rows()
    return dict(used) | {image: f"{reason}: {detail}" for image, reason, detail in excluded}


SPLITS = {"1": "train", "2": "validate", "3": "test"}


@pytest.fixture
def tree(tmp_path):
    draw(tmp_path, "1.png", "2.png", "3.png", "m.png")
    return tmp_path


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_delimiters_and_line_ends(tree, mark, end):
    text = end.join([HEADER, "", *ROWS]).replace(",", mark)
    assert read_splits(tree, text) == SPLITS
    assert read_splits(tree, f"sep={mark}{end}{text}") == SPLITS


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("utf-8", codecs.BOM_UTF8), ("utf-16-le", codecs.BOM_UTF16_LE), ("cp1252", b""), ("utf-8", b"")],
)
def test_encodings_and_packing(tree, encoding, mark):
    data = mark + "\n".join([HEADER, *ROWS]).replace("lesion", "Größe").encode(encoding)
    assert read_splits(tree, data) == SPLITS
    assert read_splits(tree, gzip.compress(data), "manifest.csv.gz") == SPLITS


def test_headings_spellings_of_a_split_and_spaces(tree):
    rows = ["1.png, m.png ,Training,lesion", "2.png,m.png,val,lesion", "3.png,m.png,TEST,lesion,,"]
    assert read_splits(tree, "\n".join(["Image Path,MASK-PATH,split ,Class\u200b,", *rows])) == SPLITS


def test_a_parquet_manifest(tree):
    cells = [row.split(",") for row in ROWS]
    table = pl.DataFrame(cells, schema=HEADER.split(","), orient="row")
    table.write_parquet(tree / "manifest.parquet")
    assert read_splits(tree, (tree / "manifest.parquet").read_bytes(), "manifest.parquet") == SPLITS


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PK\x03\x04\x14\0", "is an Excel or OpenDocument workbook, or another ZIP file: save its sheet as CSV"),
        (["1.png,m.png,train,lesion, left"], ", line 2 has 5 cells, the header has 4: put a cell"),
        (["1.png,m.png,train"], ", line 2 has 3 cells, the header has 4: put a cell"),
        ([ROWS[0], '2.png,m.png,train,"lesion', '3.png,m.png,train,lesion"'], ", line 3: a quotation mark"),
        (['a 1.png,m.png,train,"lesion', 'a 2.png,m.png,train,lesion"'], ", line 2: a quotation mark"),
        (['1.png,m.png,train,"lesion'], ', line 2: a quotation mark (") opens a cell of this row that never ends'),
        ("1.png,m.png,train,lesion\n", "has no known heading"),
        ("image_path,mask_path,split,Image_Path\n1,2,3,4\n", "has the column 'image_path' twice"),
        ("image_path,split\n1.png,train\n", "lacks the column mask_path: add it (the table has image_path, split)"),
        (
            "image_path,mask_path,split,subject_id\n1.png,m.png,train,1234567890123450000\n2.png,m.png,train,9\n",
            ", line 2: in subject_id, a spreadsheet has kept 15 digits",
        ),
        (
            "image_path,mask_path,split,subject_id\n1.png,m.png,train,1.2E+18\n",
            ", line 2: subject_id is a number that a spreadsheet has shortened",
        ),
    ],
)
def test_a_table_that_would_lose_or_mix_rows_stops_the_run(tree, data, words):
    with pytest.raises(UserError) as error:
        read_splits(tree, data)
    sentence = str(error.value)
    assert sentence.startswith(f"medground.sources.sets.given.manifest: {tree / 'manifest.csv'}")
    assert words in sentence
    assert "\n" not in sentence


def test_a_description_may_have_several_lines(tree):
    text = f'{HEADER},description\n{ROWS[0]},"Two\nlines, and, more, here"\n{ROWS[1]},"a ""b"""\n'
    assert read_splits(tree, text) == {"1": "train", "2": "validate"}


def test_one_person_in_two_spellings_is_in_one_split(tree):
    accented = "M\u00fcller"
    rows = [f"1.png,m.png,train,{accented}", f"2.png,m.png,test,{unicodedata.normalize('NFD', accented)}\u200b"]
    with pytest.raises(UserError, match=f"lines 2 and 3 put the subject '{accented}' into train and test"):
        read_splits(tree, "\n".join(["image_path,mask_path,split,subject_id", *rows]))


def test_paths_of_other_systems_lead_to_pictures_and_masks(tmp_path, caplog):
    decomposed = unicodedata.normalize("NFD", "M\u00fcller")
    draw(tmp_path, f"a/{decomposed}.PNG", "masks/M1.png")
    with caplog.at_level(logging.WARNING, "cxr"):
        assert read_splits(tmp_path, ["a\\M\u00fcller.png,Masks\\m1.png,train,lesion"]) == {"M\u00fcller": "train"}
    assert (
        "image_path differs from the existing file in separator, Unicode form or invisible signs, case" in caplog.text
    )
    assert (
        caplog.text.count("mask_path differs from the existing file in separator, case, and that file is used: line 2")
        == 1
    )


def test_a_missing_file_says_which_and_what_exists(tmp_path):
    draw(tmp_path, "a.png", "A.png", "1.png", "m.png")
    rows = ["A.PNG,m.png,train,lesion", "1.png,none/m.png,train,lesion", "b.png,m.png,train,lesion"]
    assert read_splits(tmp_path, rows) == {
        "A": "missing_file: the picture: 2 files exist that differ only in case",
        "1": "missing_file: the mask: its folder does not exist",
        "b": "missing_file: the picture",
    }


def test_a_file_is_not_lent_to_a_second_row_that_differs_in_case(tmp_path):
    draw(tmp_path, "A.png", "m.png")
    outcomes = read_splits(tmp_path, ["A.png,m.png,train,lesion", "a.png,m.png,train,lesion"])
    assert outcomes["A"] == "train"
    assert outcomes["a"].endswith(
        "a file exists whose path differs only in case, but another row of the table names that file"
    )


def test_boxes_are_read_by_the_same_rules(tree):
    text = "image path;split;x;y;w;h;Class\n1.png;val;3;4;20;30;lesion\n1.png;val;30;4;20;30;lesion\n"
    assert read_splits(tree, "\ufeff" + text, kind="boxes") == {"1": "validate"}
    with pytest.raises(UserError, match="line 3 has 6 cells, the header has 7"):
        read_splits(tree, text.replace("30;4;", "30;"), kind="boxes")
