"""MedSegBench's files, written here in their published layout: read by rows; every damage is one sentence (T19)."""

import re
import tracemalloc
import zipfile

import numpy as np
import pytest

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.medground.logic.facts import Facts, read_planes
from cxr.medground.sources.medsegbench import Member, check_digest, read_flag_facts
from medground_data import make_regions_of, read_source, regions_of, source_keys

FLAGS = ["bbbc010", "brifiseg", "cellnuclei", "deepbacs", "fhpsaop", "isic2016", "monusac", "mosmedplus"]
COUNTS = {"train": 3, "val": 1, "test": 2}


def arrays(flag, side, counts=COUNTS):
    """Return the arrays of a file: squares of each class on noise."""
    rng, classes = np.random.default_rng(1), len(read_flag_facts(flag)["classes"])
    found = {}
    for split, count in counts.items():
        label = np.zeros((count, side, side), np.uint8)
        for value in range(1, classes + 1):
            top = 2 + value * side // 8
            label[:, top : top + side // 10, 5 : 5 + side // 5] = value
        found[f"{split}_images"] = rng.integers(0, 255, (count, side, side, 3), np.uint8)
        found[f"{split}_label"] = label
    return found


def written(folder, flag="fhpsaop", side=128, **changed):
    path = folder / f"{flag}_{side}.npz"
    held = arrays(flag, side) | changed
    np.savez_compressed(path, **{name: value for name, value in held.items() if value is not None})
    return path


@pytest.fixture(autouse=True)
def _any_digest(monkeypatch):
    monkeypatch.setattr("cxr.medground.sources.read_sources.check_digest", lambda path, expected: None)


def read_npz_source(folder, path):
    return read_source(folder, source_keys(kind="medsegbench", npz=str(path)))


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("side", [128, 256])
def test_every_set_is_read_in_its_published_layout(tmp_path, flag, side):
    make_regions_of(read_npz_source(tmp_path, written(tmp_path, flag, side)))
    images = read_table(tmp_path / "sources/images.parquet")
    facts = read_flag_facts(flag)
    assert images["split"].value_counts().sort("split").rows() == [("test", 2), ("train", 3), ("validate", 1)]
    assert set(images["domain"]) == {facts["domain"]}
    assert {row["label"] for row in regions_of(tmp_path)} == set(facts["classes"])
    with Shard(tmp_path / "sources/00.h5") as shard:
        assert shard.shape("picture") == (side, side, 3)
        planes = read_planes(shard, Facts.from_shard(shard), f"{flag}_test_00001")
    label = arrays(flag, side)["test_label"][1]
    for value, name in enumerate(facts["classes"], 1):
        assert (planes.mask[name] == (label == value)).all()


def test_any_foreground_of_a_binary_set_is_its_class(tmp_path):
    held = arrays("isic2016", 128)
    read_npz_source(tmp_path, written(tmp_path, "isic2016", train_label=held["train_label"] * 255))
    assert read_table(tmp_path / "sources/excluded.parquet").is_empty()


def test_grey_pictures_and_a_last_axis_of_one_are_read(tmp_path):
    held = arrays("bbbc010", 128)
    grey = {name: value[..., 0] for name, value in held.items() if name.endswith("images")}
    column = {name: value[..., None] for name, value in held.items() if name.endswith("label")}
    make_regions_of(read_npz_source(tmp_path, written(tmp_path, "bbbc010", **grey, **column)))
    assert len(regions_of(tmp_path)) == 6


WRONG = {
    "a missing member": ({"val_label": None}, "the member val_label is missing"),
    "objects": ({"train_label": np.array([{}, {}, {}], dtype=object)}, r"stored by rows \(type object\)"),
    "another type": ({"train_images": np.zeros((3, 128, 128, 3), np.float32)}, r"stored by rows \(type float32\)"),
    "another number": ({"train_label": np.zeros((2, 128, 128), np.uint8)}, "train_label has the shape"),
    "labels of three planes": ({"train_label": np.zeros((3, 128, 128, 3), np.uint8)}, "train_label has the shape"),
    "rows in place of pictures": (
        {"train_images": np.zeros((3, 128), np.uint8), "train_label": np.zeros((3, 128), np.uint8)},
        "train_images has the shape",
    ),
    "pictures of two planes": ({"train_images": np.zeros((3, 128, 128, 2), np.uint8)}, "train_images has the shape"),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_unsuitable_file_is_one_sentence(tmp_path, what):
    changed, words = WRONG[what]
    with pytest.raises(UserError, match=words) as told:
        read_npz_source(tmp_path, written(tmp_path, **changed))
    assert re.fullmatch(r"fhpsaop_128\.npz: the member \w+ .+: (give|download) .+", str(told.value))
    assert not list(tmp_path.glob("sources/*.h5"))


def test_a_file_cut_short_and_one_that_is_no_archive(tmp_path):
    path = written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"fhpsaop_128\.npz is not an npz file"):
        read_npz_source(tmp_path, path)
    path.write_bytes(b"<html>404 Not Found</html>" * 99)
    with pytest.raises(UserError, match=r"fhpsaop_128\.npz is not an npz file \(File is not a zip file\): download it"):
        read_npz_source(tmp_path, path)


def test_a_damaged_member_leaves_no_shard(tmp_path):
    path = written(tmp_path)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("test_images.npy").header_offset + 3000
    data[start : start + 64] = bytes(64)
    path.write_bytes(bytes(data))
    with pytest.raises(UserError, match=r"test_images is damaged|test_images is shorter"):
        read_npz_source(tmp_path, path)
    assert not list(tmp_path.glob("sources/*.h5"))


def test_a_file_that_is_not_the_published_one_is_refused(tmp_path):
    with pytest.raises(UserError, match="is not the published one"):
        check_digest(written(tmp_path), {128: "0" * 32})


def test_a_name_that_tells_no_set_is_refused(tmp_path):
    path = written(tmp_path).rename(tmp_path / "mine.npz")
    with pytest.raises(UserError, match="does not have the name of a MedSegBench file"):
        read_npz_source(tmp_path, path)


def test_an_unknown_value_is_the_images_fault_alone(tmp_path):
    held = arrays("fhpsaop", 128)
    label = held["train_label"].copy()
    label[1, 0, 0] = 7
    read_npz_source(tmp_path, written(tmp_path, train_label=label))
    gone = read_table(tmp_path / "sources/excluded.parquet").to_dicts()
    assert [(row["image_id"], row["reason"]) for row in gone] == [("fhpsaop_train_00001", "unknown_label")]


def test_rows_are_not_unpacked_into_memory(tmp_path):
    path = tmp_path / "big.npz"
    np.savez_compressed(path, train_images=np.zeros((400, 256, 256, 3), np.uint8))  # 79 MB
    with zipfile.ZipFile(path) as archive:
        tracemalloc.start()
        count = sum(1 for _ in Member(archive, "train_images").rows())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert count == 400
    assert peak < 10_000_000
