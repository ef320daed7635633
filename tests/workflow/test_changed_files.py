"""Images and reports that have changed since a job read them are found by content, and nothing else is."""

import os
import shutil
import zlib
from pathlib import Path

import pytest

from cohort_runs import COLUMNS, of, options, write_csv
from cxr.base import source_files
from cxr.base.errors import UserError
from cxr.base.jobs import settings_arguments
from cxr.base.source_files import COLUMNS as STATES
from cxr.base.source_files import read_state, state_row, write_states
from cxr.base.tables import read_table, write_table
from cxr.imaging.cohort.make_cohort import HEADER_BYTES
from cxr.imaging.cohort.make_cohort import run as run_cohort
from cxr.imaging.cohort.rows import SHARD
from cxr.imaging.frames.make_frames import run_shard as run_frames
from cxr.language.reports.llm.structure_shards import StructuringOptions, read_texts
from cxr.language.reports.read_reports import ReportsOptions
from cxr.language.reports.read_reports import run_shard as run_reports
from cxr.workflow import changed_files
from cxr.workflow.changed_files import CHECKED, TABLES, ChangedFiles
from cxr.workflow.freshness import refuse_unrecorded
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings

TABLE = str(TABLES / "reports/00.parquet")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake").mkdir()
    return tmp_path


def read_by_job(*paths: str, head_bytes: int | None = None) -> None:
    """Write the table of a job that has read some files."""
    write_states(TABLE, [state_row(f"id of {path}", path, head_bytes) for path in paths])


def changed() -> list[str]:
    """Return the ids of changed files and deleted reports."""
    files = ChangedFiles()
    return [
        row_id.removeprefix("id of ")
        for table in files.outdated
        for row_id in (*files.changed.get(table, ()), *files.deleted.get(table, ()))
    ]


def rewrite(path: str, content: bytes) -> None:
    """Write a file as another program would: its time differs from the one before."""
    before = os.stat(path).st_mtime_ns
    Path(path).write_bytes(content)
    os.utime(path, ns=(before, before + 1))


def replace_by_older(path: str, content: bytes) -> None:
    """Move a file of the same size over another, with a time from before it was read."""
    Path("other").write_bytes(content)
    os.utime("other", ns=(0, 0))
    os.replace("other", path)


def retarget(path: str, content: bytes) -> None:
    """Put a link to another file in a file's place."""
    Path("other").write_bytes(content)
    os.unlink(path)
    os.symlink("other", path)


@pytest.mark.parametrize("change", [rewrite, replace_by_older, retarget])
@pytest.mark.parametrize("content", [b"cLear", b"clear lungs", b""])
def test_a_change_is_found(folder, change, content):
    for path in ("a", "b"):
        Path(path).write_bytes(b"clear")
    read_by_job("a", "b")
    assert changed() == []
    change("a", content)
    assert changed() == ["a"]
    assert changed() == ["a"]  # until the job has read it again
    read_by_job("a", "b")
    assert changed() == []


@pytest.mark.parametrize("change", [rewrite, replace_by_older, retarget])
def test_the_same_content_is_no_change_and_is_read_once(folder, monkeypatch, change):
    Path("a").write_bytes(b"clear")
    read_by_job("a")
    change("a", b"clear")
    assert changed() == []
    assert CHECKED.exists()
    monkeypatch.setattr(changed_files, "read_state", lambda *_: pytest.fail("read again"))
    assert changed() == []


def test_what_is_put_back_is_no_change(folder):
    Path("a").write_bytes(b"clear")
    read_by_job("a")
    rewrite("a", b"other")
    assert changed() == ["a"]
    rewrite("a", b"clear")
    assert changed() == []


def test_a_header_and_the_whole_of_one_file_are_told_apart(folder):
    """As of an image, whose header the cohort reads and whose pixels the frames."""
    Path("a").write_bytes(b"head" + b"pixels")
    write_states(TABLE, [state_row("header", "a", 4), state_row("image", "a")])
    rewrite("a", b"head" + b"other!")
    assert changed() == ["image"]
    assert changed() == ["image"]
    rewrite("a", b"head" + b"pixels")
    assert changed() == []


def test_of_a_header_only_the_leading_bytes_count(folder):
    Path("a").write_bytes(b"head" + b"pixels")
    read_by_job("a", head_bytes=4)
    rewrite("a", b"head" + b"other pixels, and more of them")
    assert changed() == []
    rewrite("a", b"haed" + b"pixels")
    assert changed() == ["a"]
    rewrite("a", b"he")
    assert changed() == ["a"]


def test_a_file_that_arrives_is_a_change(folder):
    Path("a").write_bytes(b"clear")
    read_by_job("a", "late")
    assert changed() == []
    Path("late").write_bytes(b"")
    assert changed() == ["late"]


def test_a_report_that_is_deleted_is_a_change_but_not_all_reports_at_once(folder):
    for path in ("a", "b"):
        Path(path).write_bytes(b"clear")
    read_by_job("a", "b", "missing")
    os.unlink("a")
    assert changed() == ["a"]
    rewrite("b", b"other")
    assert ChangedFiles().sentences([TABLE]) == [
        "reports: 1 report has changed since this stage ran (id of b), so what depends on it runs again",
        "reports: 1 report has been deleted since this stage ran (id of a), so what depends on it runs again without "
        "it",
    ]
    read_by_job("a", "b", "missing")
    assert changed() == []
    # a whole disk that is not mounted runs nothing again
    Path("a").write_bytes(b"clear")
    read_by_job("a", "b", "missing")
    for path in ("a", "b"):
        os.unlink(path)
    files = ChangedFiles()
    assert (files.outdated, files.missing) == (set(), {TABLE: 2})
    assert files.sentences([TABLE]) == [
        "2 images and reports that were read are missing now; the results made from them stay"
    ]


def test_an_image_that_is_deleted_is_no_change(folder):
    frames = str(TABLES / "frames/00.parquet")
    for path in ("a", "b"):
        Path(path).write_bytes(b"pixels")
    write_states(frames, [state_row(path, path) for path in ("a", "b")])
    os.unlink("a")
    files = ChangedFiles()
    assert (files.outdated, files.missing) == (set(), {frames: 1})
    assert files.sentences([frames]) == [
        "1 image or report that was read is missing now; the results made from them stay"
    ]


def test_what_is_no_regular_file_is_not_waited_for(folder):
    os.mkfifo("pipe")
    os.mkdir("folder")
    os.symlink("/dev/zero", "zero")
    os.symlink("loop", "loop")
    paths = ("pipe", "folder", "zero", "loop", "n\0one", "x" * 300)
    assert [read_state(path) for path in paths] == [None] * 6
    read_by_job(*paths)
    assert changed() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_file_whose_permission_is_given_later_is_a_change(folder):
    folder.chmod(0o777)
    (folder / ".snakemake").chmod(0o777)
    Path("a").write_bytes(b"clear")
    os.chmod("a", 0)
    os.seteuid(65534)
    try:
        state = read_state("a")
    finally:
        os.seteuid(0)
    if folder.parent.stat().st_mode & 0o005 == 0o005:  # else the whole folder is closed to others
        assert state is None
    write_states(TABLE, [("a", "a", None, None, None, None)])
    os.chmod("a", 0o644)
    assert changed() == ["a"]


def test_a_machine_that_cannot_read_is_no_missing_file(folder, monkeypatch):
    Path("a").write_bytes(b"clear")

    def broken(*_, **__):
        raise OSError(5, "Input/output error", "a")

    monkeypatch.setattr(source_files.os, "open", broken)
    with pytest.raises(OSError, match="Input/output error"):
        read_state("a")


def test_touch_accepts_what_has_changed(folder):
    Path("a").write_bytes(b"clear")
    read_by_job("a", "late")
    rewrite("a", b"other")
    Path("late").write_bytes(b"new")
    files = ChangedFiles()
    files.accept([TABLE])
    assert changed() == []
    rewrite("a", b"a third")
    assert changed() == ["a"]
    Path("b").write_bytes(b"clear")
    read_by_job("a", "b")
    os.unlink("b")
    assert changed() == ["b"]
    ChangedFiles().accept([TABLE])
    assert changed() == []


def test_a_damaged_table_is_made_again_and_a_damaged_note_is_forgotten(folder):
    Path("a").write_bytes(b"clear")
    read_by_job("a")
    CHECKED.write_text("[1, 2")
    assert changed() == []
    data = bytearray(Path(TABLE).read_bytes())
    data[len(data) // 2] ^= 1
    Path(TABLE).write_bytes(data)
    files = ChangedFiles()
    assert files.outdated == {TABLE}
    assert files.sentences([TABLE]) == [f"{TABLE} is damaged, so its job runs again"]
    ChangedFiles().accept([TABLE])


def test_the_sentences_name_the_stage_and_some_ids(folder):
    for number in range(5):
        Path(str(number)).write_bytes(b"clear")
    rows = [state_row(f"s{number}", str(number)) for number in range(5)]
    write_states(TABLE, rows)
    structured = str(TABLES / "reports_structured/all.parquet")
    write_states(structured, rows)
    frames = str(TABLES / "frames/00.parquet")
    write_states(frames, rows[:1])
    for number in range(4):
        rewrite(str(number), b"other")
    files = ChangedFiles()
    assert files.sentences([frames, TABLE, structured]) == [
        "frames: 1 image has changed since this stage ran (s0), so what depends on it runs again",
        "reports: 4 reports have changed since this stage ran (s0, s1, s2, …), so what depends on them runs again",
    ]
    assert files.sentences([]) == []


def test_results_without_a_record_are_refused_in_one_sentence():
    refuse_unrecorded([])
    with pytest.raises(UserError, match=r"^results/a: there is no record .* --touch first"):
        refuse_unrecorded(["results/a"])
    with pytest.raises(UserError, match=r"^results/a and 2 other results: there is no record"):
        refuse_unrecorded(["results/a", "results/b", "results/c"])


# ---------------------------------------------------------------------------------------------- what the stages note


def states(table: Path) -> dict[tuple[str, str], tuple]:
    """Return {(id, file name): (head_bytes, size, CRC-32)} of a table of states."""
    rows = read_table(table).rows()
    assert read_table(table).columns == list(STATES)
    return {(row_id, Path(path).name): (head, size, crc) for row_id, path, head, size, _, crc in rows}


@pytest.fixture(scope="module")
def stages(tmp_path_factory) -> tuple[Path, Path]:
    """A cohort with two images of a study, a missing one, and reports as files, as texts and missing; its results."""
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("out")
    for number, name in enumerate(("first.dcm", "second.dcm", "alone.dcm", "text.dcm")):
        (data / name).write_bytes(of(PatientID=str(number)))
    (data / "bad.dcm").write_bytes(b"no image")
    (data / "s1.txt").write_text("FINDINGS: No pneumothorax.")
    rows = [
        ("p", "s1", "i1", "first.dcm", "s1.txt", ""), ("p", "s1", "i2", "second.dcm", "s1.txt", ""),
        ("q", "s2", "i3", "alone.dcm", "late.txt", ""), ("r", "s3", "i4", "text.dcm", "", "No effusion."),
        ("r", "s4", "i5", "none.dcm", "", ""), ("r", "s5", "i6", "bad.dcm", "", ""),
    ]  # fmt: skip
    manifest = write_csv(data / "m.csv", (*COLUMNS, "findings"), rows)
    cohort = {"shards": [str(out / "0.parquet")], "images": str(out / "i.parquet"), "excluded": str(out / "e.parquet")}
    run_cohort(**cohort, options=options(manifest=manifest, shards=1), seed=2026, attrs={}, threads=1,
               files_read=str(out / "cohort.parquet"))  # fmt: skip
    shared = {"cohort": str(out / "0.parquet"), "attrs": {}, "threads": 1}
    settings = stage_options(Settings())
    run_frames(**shared, output=str(out / "0.h5"), excluded=str(out / "f.parquet"),
               corrected=str(out / "c.parquet"),
               files_read=str(out / "frames.parquet"),
               **settings_arguments(run_frames, settings["frames"]))  # fmt: skip
    run_reports(**shared, output=str(out / "0.jsonl"), excluded=str(out / "r.parquet"),
                options=ReportsOptions(**settings["reports"]), files_read=str(out / "reports.parquet"))  # fmt: skip
    return data, out


def expected(path: Path, head_bytes: int | None = None) -> tuple:
    data = path.read_bytes()
    return head_bytes, len(data), zlib.crc32(data[:head_bytes])


def test_the_cohort_notes_headers_and_what_is_missing(stages):
    data, out = stages
    headers = {("i1", "first.dcm"), ("i2", "second.dcm"), ("i3", "alone.dcm"), ("i4", "text.dcm"), ("i6", "bad.dcm")}
    assert states(out / "cohort.parquet") == {
        key: expected(data / key[1], HEADER_BYTES) for key in headers
    } | {("i5", "none.dcm"): (HEADER_BYTES, None, None), ("s2", "late.txt"): (None, None, None)}  # fmt: skip


def test_frames_notes_the_images_that_it_opened(stages):
    data, out = stages
    assert states(out / "frames.parquet") == {
        ("i1", "first.dcm"): expected(data / "first.dcm"), ("i3", "alone.dcm"): expected(data / "alone.dcm"),
        ("i4", "text.dcm"): expected(data / "text.dcm"),
    }  # fmt: skip


def test_reports_note_their_files_and_no_text_of_a_table(stages):
    data, out = stages
    assert states(out / "reports.parquet") == {("s1", "s1.txt"): expected(data / "s1.txt")}
    rows: list[tuple] = []
    how = StructuringOptions.__new__(StructuringOptions)
    for name, value in {
        "sections": "tolerant",
        "section_overrides": False,
        "scrub": False,
        "max_characters": 10000,
    }.items():
        object.__setattr__(how, name, value)
    assert len(read_texts(str(out / "0.parquet"), how, rows)) == 2
    assert [row[0] for row in rows] == ["s1"]


def test_an_image_that_cannot_be_decoded_is_noted_with_the_next_one(stages, tmp_path):
    data, out = stages
    copy = Path(shutil.copytree(data, tmp_path / "data"))
    table = read_table(out / "0.parquet")
    damaged = (copy / "first.dcm").read_bytes()[:2000]
    (copy / "first.dcm").write_bytes(damaged)
    shard = tmp_path / "0.parquet"
    copied_rows = table.with_columns(path=table["path"].str.replace(str(data), str(copy), literal=True))
    write_table(shard, copied_rows, SHARD)
    run_frames(cohort=str(shard), output=str(tmp_path / "0.h5"), excluded=str(tmp_path / "f.parquet"),
               corrected=str(tmp_path / "c.parquet"), attrs={},
               **settings_arguments(run_frames, stage_options(Settings())["frames"]), threads=1,
               files_read=str(tmp_path / "frames.parquet"))  # fmt: skip
    noted = states(tmp_path / "frames.parquet")
    assert {key for key in noted if key[0] in ("i1", "i2")} == {("i1", "first.dcm"), ("i2", "second.dcm")}
