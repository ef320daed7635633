"""The search for planted texts finds one in every container and encoding that results may have."""

import base64
import gzip
import io
import json
import zipfile

import h5py
import numpy as np
import polars as pl
import pytest
from PIL import Image, PngImagePlugin

from cxr.base.hdf5 import ShardWriter
from planted_texts import find_texts

NAME = "Müllerstädt"


def png(text: str) -> bytes:
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Comment", text, zip=True)
    stream = io.BytesIO()
    Image.new("L", (4, 4)).save(stream, "png", pnginfo=notes)
    return stream.getvalue()


def write_hdf5(path, text: str) -> None:
    with ShardWriter(path, attrs={"note": {"patient": text}}) as shard:
        shard.append("i1", image=np.zeros((4, 4), np.uint8))


def write_zip(path, data: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.txt", data)


CASES = {
    "utf8.txt": lambda path: path.write_text(f"a {NAME} b", encoding="utf-8"),
    "utf16.txt": lambda path: path.write_bytes(f"a {NAME} b".encode("utf-16")),
    "utf16_odd.bin": lambda path: path.write_bytes(b"x" + NAME.encode("utf-16-be")),
    "cp1252.txt": lambda path: path.write_bytes(NAME.encode("cp1252")),
    "capitals.txt": lambda path: path.write_text(NAME.upper(), encoding="utf-8"),
    "spelled.txt": lambda path: path.write_text("MUELLERSTAEDT", encoding="utf-8"),
    "bare.txt": lambda path: path.write_text("mullerstadt", encoding="utf-8"),
    "decomposed.txt": lambda path: path.write_text("Mu\u0308llersta\u0308dt", encoding="utf-8"),
    "line.jsonl": lambda path: path.write_text(json.dumps({"name": NAME}), encoding="utf-8"),
    "page.html": lambda path: path.write_text("<p>M&uuml;llerst&#228;dt</p>", encoding="utf-8"),
    "link.html": lambda path: path.write_text("<a href='M%C3%BCllerst%C3%A4dt'>", encoding="utf-8"),
    "shard.h5": lambda path: write_hdf5(path, NAME),
    "table.parquet": lambda path: pl.DataFrame({"a": [NAME] * 99}).write_parquet(path, compression="zstd"),
    "lines.gz": lambda path: path.write_bytes(gzip.compress(NAME.encode())),
    "archive.zip": lambda path: write_zip(path, NAME.encode()),
    "picture.png": lambda path: path.write_bytes(png(NAME)),
    "gallery.html": lambda path: path.write_bytes(b'"data:image/png;base64,' + base64.b64encode(png(NAME)) + b'"'),
    f"{NAME}.txt": lambda path: path.write_text("nothing", encoding="utf-8"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_planted_text_is_found(tmp_path, name):
    (tmp_path / "results").mkdir()
    CASES[name](tmp_path / "results" / name)
    assert find_texts(tmp_path, [NAME, "Schmidtbauer"]) == [(f"results/{name}", NAME)]
    assert find_texts(tmp_path, [NAME], "results") == []


def test_fields_of_variable_length_are_searched(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["texts"] = ["one", NAME]
    assert find_texts(tmp_path, [NAME]) == [("a.h5", NAME)]


def test_a_number_is_not_found_inside_a_longer_one(tmp_path):
    (tmp_path / "a.txt").write_text("0.771000123 x771000129")
    assert find_texts(tmp_path, ["77100012"]) == []
    (tmp_path / "b.txt").write_text("771000123, 77100012.")
    assert find_texts(tmp_path, ["77100012"]) == [("b.txt", "77100012")]
