"""The package base: HDF5 shards, tables, ledger, seeds, code digest, workers, jobs."""

import errno
import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import h5py
import hdf5plugin
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxr.base import atomic, errors, hdf5, jobs, ledger, seeds, tables, workers
from cxr.base.atomic import atomic_folder
from cxr.base.exclusions import REASONS
from cxr.base.tables import scan_table
from cxr.base.vocabulary import VALID_LOCATIONS, ZONE_LABELS, in_table_order, kinds_under, side_of
from cxr.nets import lite_weights
from cxr.workflow import code_digest


def shard(path: Path, rows: dict[str, np.ndarray], **more) -> Path:
    with hdf5.ShardWriter(path, labels=["right lung", "left lung"], attrs={"settings": {"a": 1}}, **more) as writer:
        for row_id, mask in rows.items():
            writer.append(row_id, mask=mask, area=mask.sum(dtype=np.int64))
    return path


@pytest.fixture
def masks() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {f"image{i}": random.random((2, 64, 64)) < 0.3 for i in range(4)}


def test_shard_gives_back_what_was_put_in(tmp_path, masks):
    with hdf5.Shard(shard(tmp_path / "00.h5", masks)) as reader:
        assert reader.ids == list(masks)
        for row_id, mask in masks.items():
            np.testing.assert_array_equal(reader.get("mask", row_id), mask)
            np.testing.assert_array_equal(reader.masks(row_id)["left lung"], mask[1])
            assert reader.get("area", row_id) == mask.sum()
        assert json.loads(reader.attrs["settings"]) == {"a": 1}
        assert "right is on the image's left" in reader.attrs["frame"]


def test_shard_is_readable_with_the_documented_lines(tmp_path, masks):
    with h5py.File(shard(tmp_path / "00.h5", masks)) as file:
        assert file["image_id"].asstr()[:].tolist() == list(masks)
        assert file["mask"].attrs["labels"].astype(str).tolist() == ["right lung", "left lung"]
        mask = np.unpackbits(file["mask"][1], axis=-1).astype(bool)
        assert file["mask"].chunks[0] == 1
    np.testing.assert_array_equal(mask, masks["image1"])


def test_same_rows_same_bytes(tmp_path, masks):
    first, second = shard(tmp_path / "a.h5", masks), shard(tmp_path / "b.h5", masks)
    assert first.read_bytes() == second.read_bytes()


PICTURES = {
    "noise": np.random.default_rng(1).integers(0, 256, (96, 64), np.uint8),
    "steps": (np.arange(96 * 64) * 5 % 256).astype(np.uint8).reshape(96, 64),
    "extremes": np.where(np.random.default_rng(2).random((96, 64)) < 0.5, 0, 255).astype(np.uint8),
    "nothing": np.zeros((96, 64), np.uint8),
}


def pictures(path: Path) -> Path:
    with hdf5.ShardWriter(path, pictures=("image",)) as writer:
        for name, picture in PICTURES.items():
            writer.append(name, image=picture, map=picture, mask=picture > 127)
    return path


def test_every_codec_gives_back_every_bit(tmp_path):
    with hdf5.Shard(pictures(tmp_path / "00.h5")) as reader:
        for name, picture in PICTURES.items():
            for field, expected in {"image": picture, "map": picture, "mask": picture > 127}.items():
                np.testing.assert_array_equal(reader.get(field, name), expected, strict=True)


@given(
    side=st.tuples(st.integers(1, 70), st.integers(1, 9).map(lambda width: 8 * width)),
    levels=st.integers(1, 256),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, deadline=None)
def test_arrays_of_any_shape_come_back(side, levels, seed):
    picture = np.random.default_rng(seed).integers(0, levels, side, np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        with hdf5.ShardWriter(Path(folder) / "00.h5", pictures=("image",)) as writer:
            for name in ("a", "b"):
                writer.append(name, image=picture, map=picture, mask=picture > 0)
        with hdf5.Shard(Path(folder) / "00.h5") as reader:
            np.testing.assert_array_equal(reader.get("image", "b"), picture, strict=True)
            np.testing.assert_array_equal(reader.get("map", "b"), picture, strict=True)
            np.testing.assert_array_equal(reader.get("mask", "b"), picture > 0, strict=True)


def test_pictures_are_smaller_than_with_a_plain_codec(tmp_path):
    y, x = np.mgrid[:512, :512] / 512
    grain = np.random.default_rng(0).normal(0, 3, (512, 512))
    picture = np.clip(120 + 100 * np.sin(5 * x) * np.cos(4 * y) + grain, 0, 255).astype(np.uint8)
    with hdf5.ShardWriter(tmp_path / "00.h5", pictures=("image",)) as writer:
        writer.append("a", image=picture, plain=picture)
    with h5py.File(tmp_path / "00.h5") as file:
        sizes = {name: file[name].id.get_storage_size() for name in ("image", "plain")}
        filters = {name: file[name].id.get_create_plist() for name in sizes}
        for name, made_by in {"image": hdf5plugin.HTJ2K_ID, "plain": hdf5plugin.ZSTD_ID}.items():
            last = filters[name].get_nfilters() - 1
            assert filters[name].get_filter(0)[0] == made_by
            assert filters[name].get_filter(last)[0] == h5py.h5z.FILTER_FLETCHER32
    assert sizes["image"] < 0.8 * sizes["plain"]


def test_files_of_earlier_codecs_are_read(tmp_path):
    picture = PICTURES["noise"]
    zstd = dict(hdf5plugin.Zstd(clevel=1))
    differences = {"compression": hdf5plugin.BLOSC2_ID, "compression_opts": (0, 0, 0, 0, 1, 35, 5)}
    rows = {"image": (picture, differences), "map": (picture, zstd)}
    rows["mask"] = np.packbits(picture > 127, axis=-1), zstd
    with h5py.File(tmp_path / "00.h5", "w") as file:
        file["image_id"] = ["a", "b"]
        for name, (row, codec) in rows.items():
            data = file.create_dataset(name, data=[row] * 2, chunks=(1, *row.shape), fletcher32=True, **codec)
            data.attrs["packed"] = name == "mask"
    with hdf5.Shard(tmp_path / "00.h5") as reader:
        for name in ("image", "map"):
            np.testing.assert_array_equal(reader.get(name, "b"), picture, strict=True)
        np.testing.assert_array_equal(reader.get("mask", "b"), picture > 127, strict=True)


def test_a_packed_field_takes_rows_that_are_packed(tmp_path, masks):
    packed = {name: hdf5.pack(mask) for name, mask in masks.items()}
    with hdf5.ShardWriter(tmp_path / "b.h5", empty={"mask": (masks["image1"].shape, bool)}) as writer:
        for name, mask in packed.items():
            writer.append(name, mask=mask)
    with hdf5.Shard(tmp_path / "b.h5") as reader:
        assert reader.shape() == masks["image1"].shape
        for name, mask in masks.items():
            np.testing.assert_array_equal(reader.get("mask", name), mask, strict=True)


def test_a_shard_holds_as_many_rows_as_were_written(tmp_path):
    for rows in (0, 1, 15, 16, 17, 40):
        with hdf5.ShardWriter(
            tmp_path / f"{rows}.h5", empty={"area": ((), np.int64), "mask": ((128, 128), bool)}
        ) as writer:
            for row in range(rows):
                writer.append(str(row), area=row, mask=np.full((128, 128), row % 2 == 0))
        with h5py.File(tmp_path / f"{rows}.h5") as file:
            np.testing.assert_array_equal(file["area"], np.arange(rows))
            assert file["mask"].shape == (rows, 128, 16)
            assert file["mask"].id.get_num_chunks() == rows


def test_empty_shard_is_valid(tmp_path):
    with hdf5.ShardWriter(tmp_path / "00.h5", labels=["x"], empty={"mask": ((1, 64, 64), bool)}):
        pass
    with hdf5.Shard(tmp_path / "00.h5") as reader:
        assert len(reader) == 0
        assert reader.labels() == ["x"]


def test_nothing_appears_when_writing_fails(tmp_path, masks):
    def explode():
        with hdf5.ShardWriter(tmp_path / "00.h5") as writer:
            writer.append("a", mask=masks["image0"])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        explode()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_where_a_shard_cannot_be_finished(tmp_path, masks):
    with pytest.raises(TypeError), hdf5.ShardWriter(tmp_path / "00.h5", attrs={"a": object()}) as writer:
        writer.append("a", mask=masks["image0"])
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "table.tsv"
    tables.write_table(path, pl.DataFrame({"a": [1]}))
    before = path.read_bytes()

    def explode():
        with atomic.atomic_file(path) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explode()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("ending", "mark"), [("tsv", "\t"), ("csv", ",")])
def test_cells_of_text_tables_are_plain_and_null_is_no_text(tmp_path, ending, mark):
    path, exact = tmp_path / f"table.{ending}", tmp_path / "table.parquet"
    table = pl.DataFrame(
        {"a": ["x", "", None], "none": ["", "", ""], "n": [1, None, 3], "said": ['"a"', "b\tc,d", "e"]}
    )
    tables.write_table(path, table)
    lines = ["a,none,n,said", 'x,,1,"""a"""', ',,,"b\tc,d"', ",,3,e", ""]
    assert path.read_text() == "\n".join(line.replace(",", mark, 3) for line in lines)
    read = tables.read_table(path)
    assert read.equals(table.with_columns(pl.col("a").fill_null("")))
    tables.write_table(exact, table)
    assert tables.read_table(exact).equals(table)


def test_damage_is_noticed_and_named(tmp_path, masks):
    path = shard(tmp_path / "00.h5", masks)
    with h5py.File(path) as file:
        chunk = file["mask"].id.get_chunk_info(2)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset + chunk.size // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with hdf5.Shard(path) as reader:
        reader.get("mask", "image0")
        with pytest.raises(errors.StoreError, match=r"00\.h5 is damaged: delete it and run again") as found:
            reader.get("mask", "image2")
    assert found.value.damaged == path
    path.write_bytes(bytes(data[: len(data) // 2]))
    with pytest.raises(errors.StoreError, match="is damaged") as found, hdf5.Shard(path):
        pass
    assert found.value.damaged == path
    path.unlink()
    with pytest.raises(errors.StoreError, match="is missing: run again") as found, hdf5.Shard(path):
        pass
    assert found.value.damaged is None


def every_bit_is_held(path: Path, read, every: int) -> None:
    """Flip a bit in every ``every``-th byte of a file: reading either returns what was written or refuses."""
    written, data = read(path), path.read_bytes()
    refused = 0
    for place in range(0, len(data), every):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            assert read(path) == written, place
        except errors.StoreError as error:
            refused += error.damaged == path
    assert refused > len(data) / every / 2


def test_a_lost_bit_of_a_table_is_noticed(tmp_path):
    path = tmp_path / "00.parquet"
    table = pl.DataFrame({"x": [0.1 * row for row in range(99)], "n": [f"b{row}" for row in range(99)]})
    for read in (tables.read_table, lambda path: scan_table(path).collect()):
        tables.write_table(path, table)
        every_bit_is_held(path, lambda path, read=read: read(path).to_dict(as_series=False), 1)


def test_a_part_of_a_table_is_read_alone(tmp_path):
    table = pl.DataFrame({"x": range(99), "n": [f"b{row}" for row in range(99)]})
    tables.write_table(tmp_path / "a.parquet", table)
    assert scan_table(tmp_path / "a.parquet").slice(40, 20).collect().equals(table.slice(40, 20))
    with pytest.raises(errors.StoreError, match=r"none\.parquet is missing"):
        scan_table(tmp_path / "none.parquet")


def test_a_lost_bit_of_a_checked_line_is_noticed(tmp_path):
    path = tmp_path / "00.jsonl"
    tables.write_lines(path, [{"study_id": str(row), "text": "ü", "n": [row, None]} for row in range(9)], checked=True)
    known = "study_id", "text", "n"
    every_bit_is_held(path, lambda path: [[line[key] for key in known] for line in tables.read_lines(path)], 1)
    tables.write_lines(path, [{"a": 1}], checked=True)
    assert path.read_text() == '{"a": 1, "crc32": "7aa88204"}\n'


def test_lost_bits_of_a_shards_texts_are_noticed(tmp_path):
    path = tmp_path / "00.h5"
    with hdf5.ShardWriter(path, labels=["right lung"], units={"area": "px"}, attrs={"engine": "lite"}) as writer:
        for row in range(3):
            writer.append(f"image{row}", area=row, mask=np.ones((1, 8, 8), bool))

    def read(path: Path) -> list:
        with hdf5.Shard(path) as shard:
            rows = [(row, shard.get("area", row).tolist(), shard.get("mask", row).tolist()) for row in shard.ids]
            return [rows, shard.attrs, shard.labels()]

    every_bit_is_held(path, read, 7)
    data = path.read_bytes()
    for text in (b"image1", b"right lung", b"lite"):
        path.write_bytes(data.replace(text, text[:-1] + b"x"))
        with pytest.raises(errors.StoreError, match=r"00\.h5 is damaged") as found:
            read(path)
        assert found.value.damaged == path


@pytest.mark.parametrize("text", ['{"a": 1}\n{"a', "{}\n\0\0\0", "[]\n", "{}\n7\n"])
def test_lines_that_are_no_objects_are_damage(tmp_path, text):
    path = tmp_path / "00.jsonl"
    path.write_text(text)
    with pytest.raises(errors.StoreError, match=r"00\.jsonl is damaged: delete it and run again") as found:
        list(tables.read_lines(path))
    assert found.value.damaged == path


def test_tables_and_lines_of_others_are_read_without_checksums(tmp_path):
    table = pl.DataFrame({"a": ["x"]})
    table.write_parquet(tmp_path / "theirs.parquet")
    assert tables.read_table(tmp_path / "theirs.parquet").equals(table)
    (tmp_path / "theirs.jsonl").write_text('{"a": 1}')
    assert list(tables.read_lines(tmp_path / "theirs.jsonl")) == [{"a": 1}]


def test_a_file_that_cannot_be_read_now_is_not_taken_for_damaged(tmp_path, masks, monkeypatch):
    path = shard(tmp_path / "00.h5", masks)

    def fails(*_: object, **how: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(hdf5.h5py, "File", fails)
    with pytest.raises(errors.StoreError, match=r"though it may be intact: .*failed") as found, hdf5.Shard(path):
        pass
    assert found.value.damaged is None


def ended_process() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_what_a_killed_job_left_of_a_file_is_removed_by_the_next(tmp_path):
    old = time.time() - 2 * atomic.ABANDONED_S
    here, living = f".a.json.{atomic.HOST}.{ended_process()}.part", f".a.json.{atomic.HOST}.{os.getppid()}.part"
    there, forgotten = ".a.json.elsewhere.7.part", ".a.json.elsewhere.8.part"
    other = f".b.json.{atomic.HOST}.{ended_process()}.part"
    for name in (here, living, there, forgotten, other):
        (tmp_path / name).touch()
    os.utime(tmp_path / forgotten, (old, old))
    tables.write_lines(tmp_path / "a.json", [])
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", living, there, other}


def test_what_a_killed_job_left_of_a_folder_is_removed_by_the_next(tmp_path):
    old = time.time() - 2 * atomic.ABANDONED_S
    here, living = f".a.{atomic.HOST}.{ended_process()}.part", f".a.{atomic.HOST}.{os.getppid()}.part"
    there, forgotten = ".a.elsewhere.7.part", ".a.elsewhere.8.part"
    for name in (here, living, there, forgotten):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "weights").touch()
    for path in [tmp_path / forgotten, *(tmp_path / forgotten).rglob("*"), tmp_path / there, tmp_path / there / "deep"]:
        os.utime(path, (old, old))  # the folder `there` has a new file, so it is still being written
    with atomic_folder(tmp_path / "a") as folder:
        (folder / "weights").touch()
    assert {path.name for path in tmp_path.iterdir()} == {"a", living, there}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["weights"]


def test_a_row_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ValueError, match="lacks the reason codes"):
        tables.write_excluded(
            tmp_path / "x.parquet",
            [{"image_id": "a", "study_id": "s", "stage": "frames", "reason": "because", "detail": ""}],
        )


def test_tables_are_byte_stable(tmp_path):
    table = pl.DataFrame({"a": [1, 2], "b": ["x", None]})
    for name in ("a.parquet", "b.parquet"):
        tables.write_table(tmp_path / name, table)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert tables.read_table(tmp_path / "a.parquet").equals(table)


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.data())
def test_ledger_balances_only_if_every_image_is_seen_once(images, data):
    accepted = data.draw(st.sets(st.sampled_from(images))) if images else set()
    book = ledger.Ledger("frames")
    for image in images:
        if image in accepted:
            book.accept(image)
        else:
            book.exclude(image, "s", "undecodable")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "excluded.parquet"
        book.finish(target, images)
        assert tables.read_table(target)["image_id"].to_list() == sorted(set(images) - accepted)
        target.unlink()
        with pytest.raises(AssertionError):
            book.finish(target, [*images, "lost"])
        book.accept("twice")
        book.accept("twice")
        with pytest.raises(AssertionError):
            book.finish(target, [*images, "twice"])
        assert not target.exists()


def test_every_reason_is_documented():
    text = (code_digest.SCRIPTS.parent / "docs" / "reference" / "reasons.md").read_text(encoding="utf-8")
    rows = [f"| `{reason}` | {meaning} |" for reason, meaning in REASONS.items()]
    assert "\n".join(rows) in text


def test_gather_joins_names_the_threshold_sets_and_finds_the_study(tmp_path):
    for name, study in (("b", ""), ("a", "given")):
        book = ledger.Ledger("masks")
        book.exclude(f"image-{name}", study, "no_pairs")
        book.finish(tmp_path / f"{name}.parquet", [f"image-{name}"])
    images = tmp_path / "images.parquet"
    tables.write_table(images, pl.DataFrame({"image_id": ["image-b", "image-a"], "study_id": ["of-b", "of-a"]}))
    paths = [tmp_path / "b.parquet", tmp_path / "a.parquet"]
    ledger.gather_exclusions(excluded=paths, images=images, gathered=tmp_path / "all.parquet")
    table = tables.read_table(tmp_path / "all.parquet")
    assert table["image_id"].to_list() == ["image-a", "image-b"]
    assert table["study_id"].to_list() == ["given", "of-b"]
    named = tmp_path / "named.parquet"
    ledger.gather_exclusions(excluded=paths, images=images, gathered=named, thresholds=["default", "half"])
    assert tables.read_table(tmp_path / "named.parquet")["thresholds"].to_list() == ["half", "default"]


def test_seeds_do_not_depend_on_the_process():
    code = "from cxr.base.seeds import make_rng, shard_of; "
    code += "print(make_rng(1, 's1', 'edema').random(), shard_of('p1', 64))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": str(code_digest.SCRIPTS), "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1")
    }  # fmt: skip
    assert outputs == {f"{seeds.make_rng(1, 's1', 'edema').random()} {seeds.shard_of('p1', 64)}\n"}


def test_subjects_fall_evenly_into_shards():
    counts = np.bincount([seeds.shard_of(f"p{i}", 8) for i in range(8000)], minlength=8)
    assert counts.min() > 850
    assert counts.max() < 1150


@pytest.mark.parametrize(("shards", "last"), [(1, "00"), (3, "02"), (64, "63"), (256, "255")])
def test_shard_names_are_zero_padded(shards, last):
    names = seeds.shard_names(shards)
    assert len(names) == shards
    assert names[-1] == last
    assert names == sorted(names)


def test_hierarchy_and_locations():
    assert kinds_under("opacity") == ("consolidation", "pneumonia", "atelectasis", "edema")
    assert kinds_under("effusion") == ()
    assert in_table_order(["left lung base", "right lung", "left lung base"]) == [
        "right lung",
        "left lung base",
    ]
    assert len(ZONE_LABELS) == 15
    assert len(VALID_LOCATIONS) == 10
    assert side_of("lung lower lobe left") == "left"
    assert side_of("heart") is None


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small project: stage a uses a helper and an engine with a weights file, stage b uses neither."""
    scripts, resources = tmp_path / "scripts", tmp_path / "resources"
    (scripts / "cxr" / "a").mkdir(parents=True)
    resources.mkdir()
    for folder in ("cxr", "cxr/a"):
        (scripts / folder / "__init__.py").write_text("")
    (scripts / "a.py").write_text("from cxr.a.stage import run\n")
    (scripts / "b.py").write_text("import json\n")
    (scripts / "cxr" / "a" / "stage.py").write_text("from cxr import helper\n\n\ndef run():\n    return helper\n")
    (scripts / "cxr" / "a" / "lite.py").write_text('RESOURCE_FILES = ("lite.onnx",)\n')
    (scripts / "cxr" / "helper.py").write_text("x = 1\n")
    (resources / "lite.onnx").write_bytes(b"1")
    monkeypatch.setattr(code_digest, "SCRIPTS", scripts)
    monkeypatch.setattr(code_digest, "RESOURCES", resources)
    # the defaults of the functions were bound at import
    monkeypatch.setattr(code_digest.local_sources, "__defaults__", (scripts,))
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    """Clear the caches, so that every file is read again as in a new process."""
    for function in vars(code_digest).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def digests() -> tuple[str, str]:
    forget()
    return code_digest.code_digest("a.py", "cxr.a.lite"), code_digest.code_digest("b.py")


@pytest.mark.parametrize(
    ("file", "changes_a", "changes_b"),
    [
        ("scripts/cxr/helper.py", True, False),
        ("scripts/cxr/a/lite.py", True, False),
        ("scripts/a.py", True, False),
        ("resources/lite.onnx", True, False),
        ("scripts/b.py", False, True),
    ],
)
def test_an_edit_changes_the_digest_of_what_uses_it(project, file, changes_a, changes_b):
    before = digests()
    path = project / file
    path.write_bytes(path.read_bytes() + b"\nedited = 1\n")
    after = digests()
    assert (before[0] != after[0], before[1] != after[1]) == (changes_a, changes_b)


def test_a_touch_or_an_unrelated_module_changes_no_digest(project):
    before = digests()
    (project / "scripts/cxr/helper.py").touch()
    (project / "scripts/cxr/unrelated.py").write_text("y = 2\n")
    assert digests() == before


def test_an_unknown_engine_module_is_refused(project):
    with pytest.raises(FileNotFoundError, match=r"cxr\.a\.nothing"):
        code_digest.code_digest("a.py", "cxr.a.nothing")


def test_own_weights_are_those_that_the_engines_read_with_the_licence_of_their_card():
    engines = {"organs": "hybridgnet", "anatomy": "lite", "anomaly": "radedit", "boxes": "table"}
    organs, upright = lite_weights.list_weights(engines, [], "used")
    assert (organs["name"], organs["used_by"]) == ("organs/lite.onnx", "anatomy")
    assert organs["sha256"] == hashlib.sha256((code_digest.RESOURCES / "organs/lite.onnx").read_bytes()).hexdigest()
    assert (upright["file"], upright["used_by"]) == ("upright.onnx", "organs")
    assert upright["licence"].startswith("no restrictions")
    assert organs["licence"].startswith("non-commercial use only: made from pictures under CC BY-NC-SA")
    stages = ("organs", "anatomy", "anomaly", "boxes", "training")
    every = lite_weights.list_weights(dict.fromkeys(stages, "lite"), [], "used")
    assert [weights["used_by"] for weights in every] == ["organs, anatomy", "anomaly", "boxes", "training", "organs"]
    assert every[3]["name"] == "rosalia/model.safetensors"
    assert every[3]["source"] == "resources/rosalia/CARD.md"


STOPPED = "the engine stopped with ZeroDivisionError; the first such error is in the job's log"


@pytest.mark.parametrize("threads", [1, 3])
def test_sift_enters_every_image_once_and_yields_those_that_stay(tmp_path, threads):
    def work(rows: list[tuple]) -> list[tuple]:
        ((number,),) = rows
        if number % 5 == 0:
            raise ZeroDivisionError("secret detail")
        return [(number, ("no_lungs", "small") if number % 3 == 0 else None)]

    book = ledger.Ledger("organs")
    names = [f"{number:02}" for number in range(30)]
    stayed = list(workers.process_rows(book, names[::-1], lambda name: (int(name),), work, None, threads))
    assert stayed == [(f"{number:02}", number) for number in range(30) if number % 5 and number % 3]
    book.finish(tmp_path / "excluded.parquet", names)
    rows = tables.read_table(tmp_path / "excluded.parquet").select("image_id", "stage", "reason", "detail").rows()
    assert rows[:3] == [
        ("00", "organs", "engine_failure", STOPPED),
        ("03", "organs", "no_lungs", "small"),
        ("05", "organs", "engine_failure", STOPPED),
    ]
    assert len(rows) + len(stayed) == 30


@pytest.mark.parametrize(("batch", "fits"), [(1, 1), (4, 4), (8, 3), (64, 30)])
def test_batches_shrink_to_what_fits_and_one_bad_image_takes_no_other(tmp_path, batch, fits):
    sizes, alive = [], []

    def work(rows: list[tuple]) -> list[tuple]:
        sizes.append(len(rows))
        if len(rows) > fits:
            raise MemoryError
        if any(number == 13 for (number,) in rows):
            raise ZeroDivisionError
        return [(number, ("no_lungs", "small") if number % 3 == 0 else None) for (number,) in rows]

    def read(name: str) -> tuple:
        alive.append(name)
        return (int(name),)

    book = ledger.Ledger("organs")
    names = [f"{number:02}" for number in range(30)]
    stayed = []
    for item in workers.process_rows(book, names[::-1], read, work, batch, 1):
        stayed.append(item)
        assert len(alive) <= int(item[0]) + 1 + 2 * batch  # only the next batch is read ahead
    assert stayed == [(f"{number:02}", number) for number in range(30) if number != 13 and number % 3]
    assert alive == names
    small = next(number for number, size in enumerate(sizes) if size <= fits)
    assert max(sizes[small:]) <= fits
    book.finish(tmp_path / "excluded.parquet", names)
    rows = tables.read_table(tmp_path / "excluded.parquet").select("image_id", "reason", "detail").rows()
    assert ("13", "engine_failure", STOPPED) in rows
    assert len(rows) + len(stayed) == 30


@pytest.mark.parametrize(("batch", "sizes"), [(None, [1] * 5), (1, [1] * 5), (2, [2, 2, 1])])
def test_work_is_given_batches_or_single_rows(batch, sizes):
    seen = []

    def work(rows: list[tuple]) -> list[tuple]:
        seen.append(len(rows))
        return [(2 * number, None) for (number,) in rows]

    rows = workers.process_rows(ledger.Ledger("boxes"), list("43210"), lambda name: (int(name),), work, batch, 2)
    assert list(rows) == [(str(number), 2 * number) for number in range(5)]
    assert seen == sizes


class OutOfMemoryError(RuntimeError):
    """It has the name of torch's error."""


@pytest.mark.parametrize("error", [MemoryError, OutOfMemoryError])
@pytest.mark.parametrize("batch", [None, 4])
def test_too_little_memory_for_one_image_ends_the_job_and_excludes_nobody(tmp_path, error, batch):
    # all images have the same size, so the machine is too small; the next attempt gets more memory
    def work(rows: list[tuple]) -> list[tuple]:
        if ("7",) in rows:
            raise error
        return [(name, None) for (name,) in rows]

    names = [str(number) for number in range(10)]
    with pytest.raises(MemoryError):
        list(workers.process_rows(ledger.Ledger("anomaly"), names, lambda name: (name,), work, batch, 2))


def test_an_engine_declares_what_the_workflow_must_know(tmp_path):
    from cxr.workflow import engine_files

    assert engine_files.engine_inputs("reports", "vllm", {}).keys() == {"structured", "mapping"}
    assert engine_files.engine_inputs("organs", "lite", {}) == {}
    assert engine_files.read_declaration("cxr.imaging.organs", "lite", "GPU", False) is False


def test_a_users_mistake_in_the_work_ends_the_shard():
    def work(rows: list[tuple]) -> list[tuple]:
        raise errors.UserError("boxes.table is x.csv: give a file that exists.")

    with pytest.raises(errors.UserError):
        list(workers.process_rows(ledger.Ledger("boxes"), ["1"], lambda name: (int(name),), work, None, 2))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("MemoryError()", "out of memory: give the rule more memory (--set-resources"),
        ("type('OutOfMemoryError', (RuntimeError,), {})('CUDA out of memory')", "out of memory: give the rule"),
        ("OSError(28, 'No space left on device')", "no space left on the device"),
        ("OSError(122, 'Disk quota exceeded')", "no space left on the device, or its quota is used up"),
        ("RuntimeError('write failed: errno = 28, error message = x')", "no space left on the device"),
        ("Exception('No space left on device (os error 28)')", "no space left on the device"),
    ],
)
def test_a_machine_that_is_too_small_is_one_sentence(tmp_path, error, words):
    code = f"import sys; from cxr.base import jobs; jobs.start_logging(sys.argv[1])\nraise {error}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "log")],
        env={"PYTHONPATH": str(code_digest.SCRIPTS)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert words in line
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_users_mistake_is_one_sentence_and_ours_leaves_a_trace(tmp_path):
    code = (
        "import sys; from cxr.base import errors, jobs; jobs.start_logging(sys.argv[1])\n"
        "raise {error}('boxes.table is x.csv: give a file that exists.')"
    )
    seen = {}
    for error in ("errors.UserError", "ValueError"):
        log = tmp_path / f"{error}.log"
        done = subprocess.run(
            [sys.executable, "-c", code.format(error=error), str(log)],
            env={"PYTHONPATH": str(code_digest.SCRIPTS)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        seen[error] = (done.stderr, log.read_text())
    assert "boxes.table is x.csv: give a file that exists." in seen["errors.UserError"][0]
    assert "Traceback" not in seen["errors.UserError"][1]
    assert "Traceback" in seen["ValueError"][1]


@dataclass(frozen=True)
class PartOptions:
    seed: int


def test_a_part_starts_its_log_once_and_gets_what_it_asks_for(monkeypatch):
    started, given = [], []

    def work(
        table: str, output: str, options: PartOptions, attrs: dict, threads: int, shard: str, compute: dict
    ) -> None:
        given.extend([table, output, options, attrs, threads, shard, compute])

    monkeypatch.setattr(jobs, "start_logging", started.append)
    monkeypatch.setattr(jobs, "ARITHMETIC", {})  # this process goes on to other tests
    monkeypatch.setitem(sys.modules, "cxr.imaging.working", SimpleNamespace(work=work))
    rule = SimpleNamespace(
        log=["logs/a.log"], rule="boxes_part", threads=4, input={"table": "a.csv"}, output={"output": "b.h5"},
        params={"function": "imaging.working.work", "code": "0f", "options": {"seed": 3}}, wildcards={"shard": "07"},
        config={"compute": {"device": "cpu"}}, resources={},
    )  # fmt: skip
    jobs.run_job(rule)
    assert started == ["logs/a.log"]
    attrs = {"stage": "boxes_part", "code_digest": "0f", "settings": {"seed": 3}}
    assert given == ["a.csv", "b.h5", PartOptions(3), attrs, 4, "07", {"device": "cpu", "asked": 0}]


PRINT_THREADS = """
import sys
from types import SimpleNamespace
from cxr.base import jobs

def work():
    import cv2, numpy, polars, torch
    torch.ones(9)  # with it, all libraries have read their variables
    print(cv2.getNumThreads(), polars.thread_pool_size(), torch.get_num_threads())

sys.modules["cxr.imaging.working"] = SimpleNamespace(work=work)
jobs.run_job(SimpleNamespace(
    log=[sys.argv[1]], rule="boxes_part", threads=3, input={}, output={}, wildcards={}, resources={},
    params={"function": "imaging.working.work", "code": "0f"}, config={"compute": {}},
))
"""


def test_a_jobs_threads_are_not_those_of_its_numeric_libraries(tmp_path):
    """Snakemake sets them to the job's threads, which --cores lowers: sums would depend on it."""
    environment = {"PYTHONPATH": str(code_digest.SCRIPTS)} | dict.fromkeys(jobs.ARITHMETIC, "3")
    done = subprocess.run(
        [sys.executable, "-c", PRINT_THREADS, str(tmp_path / "log")],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["1", "1", "1"]


def test_progress_reports_the_end(caplog):
    with caplog.at_level(logging.INFO, logger="cxr"):
        assert list(jobs.progress(iter("abc"), 3, "images", every_s=0)) == ["a", "b", "c"]
    assert "images: 3 of 3" in caplog.text


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 image files are"), (1, "1 image file is"), (2, "2 image files are")]
)
def test_the_words_agree_with_the_number(number, said):
    assert errors.count_phrase(number, "image file is", "image files are") == said
