"""Frames stage: one image per study, complete ledger, same bytes, decoders that crash."""

import itertools
import os
import random
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest
from pydicom import uid

from conftest import every
from cxr.base.columns import schema
from cxr.base.faults import Broken
from cxr.base.hdf5 import Shard
from cxr.base.jobs import settings_arguments
from cxr.base.tables import read_table
from cxr.dicom.pixels import list_missing_decoders
from cxr.geometry.affine import fit_affine, to_frame
from cxr.imaging.cohort.rows import SHARD
from cxr.imaging.frames.make_frames import run_shard
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings
from dicom_files import (
    LOSSLESS,
    damaged,
    dataset,
    encoded,
    expected_grey,
    picture,
    stored_values,
    write,
)


def options(**changes: object) -> dict:
    return settings_arguments(run_shard, stage_options(Settings())["frames"] | changes)


def cohort_file(folder: Path, candidates: list[tuple[str, str, str, int]]) -> str:
    """Write a cohort shard from (image_id, study_id, path, rank)."""
    blank = {name: "" if kind == pl.String else None for name, kind in schema(SHARD).items()}
    records = [
        blank | {"image_id": image, "study_id": study, "path": path, "rank": rank}
        for image, study, path, rank in candidates
    ]
    path = str(folder / "cohort.parquet")
    pl.DataFrame(records, schema=schema(SHARD)).write_parquet(path)
    return path


def run_frames(
    folder: Path, candidates: list[tuple], threads: int = 1, name: str = "00", compute: dict | None = None, **changes
):
    """Run the stage; return (bytes of the shard, {image_id: reason}, path of the shard)."""
    output, excluded = folder / f"{name}.h5", folder / f"{name}.excluded.parquet"
    run_shard(
        cohort=cohort_file(folder, candidates),
        output=str(output),
        excluded=str(excluded),
        corrected=str(folder / f"{name}.corrected.parquet"),
        **options(**changes),
        attrs={"stage": "frames", "settings": {"fit": "pad"}},
        threads=threads,
        compute=compute,
    )
    table = read_table(excluded)
    assert set(table["stage"]) <= {"frames"}
    return output.read_bytes(), dict(table.select("image_id", "reason").iter_rows()), output


@pytest.fixture
def mixed(tmp_path):
    """Five studies: good, good second choice, all bad, two good, one PNG; ids out of order."""
    good = write(tmp_path, encoded(dataset(stored_values(picture(200, 150), 12, False), 12)), "good.dcm")
    other = write(tmp_path, encoded(dataset(stored_values(picture(60, 90), 8, False)), uid.JPEGLSLossless), "other.dcm")
    bad = write(tmp_path, encoded(dataset(stored_values(picture(), 8, False)))[:2000], "bad.dcm")
    png = str(tmp_path / "p.png")
    cv2.imwrite(png, stored_values(picture(), 8, False))
    return [
        ("z1", "s1", good, 0),
        ("b2", "s2", bad, 0),
        ("a2", "s2", other, 1),
        ("y2", "s2", good, 2),
        ("c3", "s3", bad, 0),
        ("d3", "s3", str(tmp_path / "gone.dcm"), 1),
        ("m4", "s4", other, 0),
        ("k4", "s4", good, 1),
        ("e5", "s5", png, 0),
    ]


def test_one_image_a_study_the_first_that_can_be_decoded(tmp_path, mixed):
    _, reasons, output = run_frames(tmp_path, mixed)
    with Shard(output) as shard:
        assert shard.ids == ["a2", "e5", "m4", "z1"]
        assert shard.get("original_shape", "a2").tolist() == [60, 90]
        affine = shard.get("to_original", "z1")
        assert np.array_equal(affine, fit_affine((200, 150), 512, "pad"))
        grey = expected_grey(stored_values(picture(200, 150), 12, False))
        assert np.array_equal(shard.get("image", "z1"), to_frame(grey, affine, 512))
        assert shard.attrs["stage"] == "frames"
    assert reasons == {
        "b2": "undecodable",
        "y2": "not_selected",
        "c3": "undecodable",
        "d3": "missing_file",
        "k4": "not_selected",
    }


def test_all_images_of_a_study(tmp_path, mixed):
    _, reasons, output = run_frames(tmp_path, mixed, per_study="all")
    with Shard(output) as shard:
        assert shard.ids == ["a2", "e5", "k4", "m4", "y2", "z1"]
    assert reasons == {"b2": "undecodable", "c3": "undecodable", "d3": "missing_file"}


def test_same_bytes_for_any_order_and_number_of_threads(tmp_path, mixed):
    first, reasons, _ = run_frames(tmp_path, mixed, threads=1)
    second, again, _ = run_frames(tmp_path, mixed[::-1], threads=3, name="01")
    assert first == second
    assert reasons == again
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_an_empty_shard_has_its_datasets(tmp_path):
    _, reasons, output = run_frames(tmp_path, [])
    with Shard(output) as shard:
        assert shard.ids == []
    assert reasons == {}


@pytest.mark.parametrize("fit", ["pad", "stretch", "crop"])
def test_every_fit_fills_the_contract(tmp_path, mixed, fit):
    _, _, output = run_frames(tmp_path, mixed[:1], fit=fit)
    with Shard(output) as shard:
        assert shard.get("image", "z1").shape == (512, 512)
        assert np.array_equal(shard.get("to_original", "z1"), fit_affine((200, 150), 512, fit))


def test_squeezed_pictures_are_counted_in_the_log(tmp_path, caplog):
    values = stored_values(picture(200, 200), 8, False).astype(np.uint16)
    values[0, :3] = 4000
    path = write(tmp_path, encoded(dataset(values, 12)))
    with caplog.at_level("WARNING", "cxr"):
        run_frames(tmp_path, [("a", "s", path, 0)])
    assert [record.getMessage()[:7] for record in caplog.records] == ["1 of 1 "]
    assert str(tmp_path) not in caplog.text


def test_a_decoder_that_crashes_takes_down_one_image_only(tmp_path, mixed, monkeypatch):
    crashing = write(tmp_path, encoded(dataset(stored_values(picture(), 8, False))), "crash.dcm")
    # The hook ends the worker process, not an exception, when it opens this one file.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "sys.addaudithook(lambda event, args: event == 'open' and str(args[0]).endswith('crash.dcm') and os.abort())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    candidates = [("a", "s0", crashing, 0), ("b", "s0", mixed[0][2], 1), *mixed]
    _, reasons, output = run_frames(tmp_path, candidates, threads=2)
    with Shard(output) as shard:
        assert shard.ids == ["a2", "b", "e5", "m4", "z1"]
    assert reasons["a"] == "undecodable"


@pytest.mark.slow
def test_a_decoder_that_does_not_end_is_stopped(tmp_path, mixed, monkeypatch):
    slow = write(tmp_path, encoded(dataset(stored_values(picture(), 8, False))), "slow.dcm")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "def hook(event, args):\n"
        "    if event == 'open' and str(args[0]).endswith('slow.dcm'):\n"
        "        time.sleep(600)\n"
        "sys.addaudithook(hook)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("cxr.imaging.frames.make_frames.TIMEOUT_S", 3)
    _, reasons, _ = run_frames(tmp_path, [("a", "s0", slow, 0), ("b", "s0", mixed[0][2], 1)])
    assert reasons == {"a": "undecodable"}


def hook(folder: Path, monkeypatch, event: str) -> None:
    """Make every decoder process run ``event`` (Python code) when it opens a file; ``name`` is the file's name."""
    (folder / "sitecustomize.py").write_text(
        "import errno, os, sys\n"
        "def hook(event, args):\n"
        "    name = str(args[0]) if event == 'open' else ''\n"
        f"    {event}\n"
        "sys.addaudithook(hook)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_decoder_that_dies_over_a_sound_picture_too_is_broken(tmp_path, mixed, monkeypatch):
    hook(tmp_path, monkeypatch, "name.endswith(('.dcm', '.png')) and os.abort()")
    with pytest.raises(Broken, match="the decoder process crashes on a valid image too, on "):
        run_frames(tmp_path, mixed)
    assert not list(tmp_path.glob("00*"))


def test_a_decoder_without_a_library_is_broken_and_no_file_undecodable(tmp_path, mixed, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['gdcm'] = sys.modules['jpeg_ls'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(Broken, match=r"^frames: this Python lacks decoders \(gdcm - requires.*, pyjpegls - requires"):
        run_frames(tmp_path, mixed)
    assert not list(tmp_path.glob("00*"))


def test_all_decoders_are_here():
    assert list_missing_decoders() == []


@pytest.mark.parametrize(("count", "ends"), every(2, [(5, True), (4, False)]))
def test_files_in_a_row_that_crash_the_decoder_end_the_job(tmp_path, monkeypatch, count, ends):
    hook(tmp_path, monkeypatch, "name.endswith('crash.dcm') and os.abort()")
    data = encoded(dataset(stored_values(picture(), 8, False)))
    crashing, good = write(tmp_path, data, "crash.dcm"), write(tmp_path, data, "good.dcm")
    places = [good, *[crashing] * count, *[good] * 60]
    candidates = [(f"i{number:02}", f"s{number:02}", place, 0) for number, place in enumerate(places)]
    compute = {"failures_in_row": 5, "failed_share": 0.2}
    if not ends:
        _, reasons, _ = run_frames(tmp_path, candidates, threads=2, compute=compute)
        assert reasons == {f"i{number:02}": "undecodable" for number in range(1, count + 1)}
        return
    with pytest.raises(Broken, match=r"the same error on 5 images in a row \(the decoder crashed or did not end"):
        run_frames(tmp_path, candidates, threads=2, compute=compute)


def test_rejected_files_in_a_row_are_rows(tmp_path, mixed):
    """A known fault of a file is attributed to the file, for any number of such files."""
    bad = write(tmp_path, encoded(dataset(stored_values(picture(), 8, False)))[:2000], "cut.dcm")
    candidates = [(f"i{number}", f"s{number}", bad, 0) for number in range(9)]
    compute = {"failures_in_row": 2, "failed_share": 0.0}
    assert run_frames(tmp_path, candidates, compute=compute)[1] == {f"i{number}": "undecodable" for number in range(9)}


def test_a_picture_that_needs_too_much_memory_is_one_row(tmp_path, monkeypatch):
    values = np.zeros((7000, 9000), np.uint16)
    values[0, 0] = 1
    path = write(tmp_path, encoded(dataset(values, 16), uid.DeflatedExplicitVRLittleEndian))
    assert os.path.getsize(path) < 1_000_000
    _, reasons, _ = run_frames(tmp_path, [("a", "s", path, 0)])
    assert reasons == {}
    monkeypatch.setattr("cxr.imaging.frames.make_frames.MAX_MEMORY_MB", 600)
    _, reasons, _ = run_frames(tmp_path, [("a", "s", path, 0)])
    assert reasons == {"a": "undecodable"}


def test_a_worker_that_cannot_start_is_our_fault_not_the_images(tmp_path, mixed, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(Broken, match="does not start"):
        run_frames(tmp_path, mixed)


DAMAGE = list(itertools.product([*LOSSLESS, uid.JPEGBaseline8Bit], ["cut", "bits", "header", "noise"], range(6)))


def test_damaged_files_lose_nothing(tmp_path):
    """Each of 240 damaged files gives a frame or a row with a reason, and none ends the run."""
    rng = random.Random(5)
    sources = {}
    candidates = []
    for number, (syntax, kind, _) in enumerate(DAMAGE):
        bits = 8 if syntax == uid.JPEGBaseline8Bit else 12
        if syntax not in sources:
            sources[syntax] = encoded(dataset(stored_values(picture(), bits, False), bits), syntax)
        path = write(tmp_path, damaged(sources[syntax], kind, rng), f"{number}.dcm")
        candidates.append((f"i{number:03d}", f"s{number:03d}", path, 0))
    assert len(candidates) >= 200
    _, reasons, output = run_frames(tmp_path, candidates, threads=2)
    with Shard(output) as shard:
        assert sorted([*shard.ids, *reasons]) == [candidate[0] for candidate in candidates]
        assert shard.ids  # a flipped bit in a header field that does not matter
    assert {"undecodable", "not_dicom"} <= set(reasons.values())
    again, second, _ = run_frames(tmp_path, candidates, threads=1, name="01")
    assert second == reasons
    assert again == output.read_bytes()
