"""Files that vanish, change or may not be read, folders that may not be written, disks that are full or broken."""

import errno
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from cohort_runs import COLUMNS, of, options, run_cohort, write_csv
from conftest import ROOT, SLICE, every, snakemake, write_settings
from cxr.base.errors import UserError, shortage
from cxr.base.hdf5 import Shard
from cxr.base.jobs import settings_arguments
from cxr.base.regular_files import open_regular
from cxr.base.tables import read_table
from cxr.dicom import files
from cxr.imaging.cohort.make_cohort import run as cohort_run
from cxr.imaging.cohort.mimic import read_mimic
from cxr.imaging.frames.make_frames import run_shard
from cxr.workflow.folder import refuse_unwritable
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings
from mimic_tree import mimic_tree, write_tables

XRAY = of()


def cohort(folder: Path, number: int = 3, **changes: object):
    """Make a cohort of so many images, two of the first study."""
    rows = [("p", "s0", "i0b", "0b.dcm", "")] + [
        (f"p{n}" if n else "p", f"s{n}", f"i{n}", f"{n}.dcm", "") for n in range(number)
    ]
    for row in rows:
        (folder / row[3]).write_bytes(XRAY)
    return run_cohort(folder, manifest=write_csv(folder / "m.csv", COLUMNS, rows), shards=1, **changes)


def frames(folder: Path, result) -> dict[str, tuple[str, str]]:
    (path,) = result.paths.values()
    chosen = settings_arguments(run_shard, stage_options(Settings())["frames"])
    made = {"output": str(folder / "0.h5"), "excluded": str(folder / "0.excluded.parquet")}
    made["corrected"] = str(folder / "0.corrected.parquet")
    run_shard(cohort=str(path), **made, **chosen, attrs={}, threads=2)
    with Shard(made["output"]) as shard:
        kept = dict.fromkeys(shard.ids, ("", ""))
    table = read_table(made["excluded"])
    return kept | {
        name: (reason, detail) for name, reason, detail in table.select("image_id", "reason", "detail").rows()
    }


@contextmanager
def as_nobody():
    """Work as a user whom permissions bind, in this thread's process."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


# ----------------------------------------------------------------------------------------------- images


def test_an_image_that_vanishes_is_a_row_and_its_study_goes_on(tmp_path):
    result = cohort(tmp_path)
    (tmp_path / "0.dcm").unlink()
    (tmp_path / "1.dcm").unlink()
    assert frames(tmp_path, result) == {
        "i0": ("missing_file", ""), "i0b": ("", ""), "i1": ("missing_file", ""), "i2": ("", ""),
    }  # fmt: skip


def test_a_disk_that_is_gone_stops_the_job(tmp_path):
    result = cohort(tmp_path)
    for path in tmp_path.glob("*.dcm"):
        path.unlink()
    with pytest.raises(UserError, match="none of the 4 images of this shard exists any more: mount their disk"):
        frames(tmp_path, result)
    assert not (tmp_path / "0.h5").exists()


def test_a_manifest_none_of_whose_paths_is_right_stops_the_run(tmp_path):
    rows = [("p", "s", "i", "images/a.dcm", ""), ("q", "t", "j", "images/b.dcm", ""), ("q", "", "k", "c.dcm", "")]
    path = write_csv(tmp_path / "m.csv", COLUMNS, rows)
    with pytest.raises(UserError, match=r"none of the 2 images exists: the paths of cohort\.manifest are relative to"):
        run_cohort(tmp_path, manifest=path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_what_may_not_be_read_is_a_row(tmp_path_factory):
    # a folder that somebody else may enter
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    try:
        folder.chmod(0o755)
        result = cohort(folder)
        (folder / "1.dcm").chmod(0)
        (folder / "closed").mkdir()
        (folder / "2.dcm").rename(folder / "closed/2.dcm")
        (folder / "closed").chmod(0)
        (folder / "m.csv").write_text((folder / "m.csv").read_text().replace(",2.dcm", ",closed/2.dcm"))
        with as_nobody():
            from cxr.imaging.cohort.header import read_header

            told = {}
            for name in ("0.dcm", "1.dcm", "closed/2.dcm", "none.dcm"):
                try:
                    told[name] = read_header(str(folder / name)).view
                except files.Rejected as rejected:
                    told[name] = (rejected.reason, rejected.detail)
        assert told == {
            "0.dcm": "PA", "1.dcm": ("unreadable_file", "permission denied"),
            "closed/2.dcm": ("unreadable_file", "permission denied"), "none.dcm": ("missing_file", ""),
        }  # fmt: skip
        assert len(result.paths) == 1
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EACCES, "unreadable_file"), (errno.ENOENT, "missing_file"), (errno.ENOTDIR, "missing_file"),
     (errno.ELOOP, "unreadable_file"), (errno.ENAMETOOLONG, "unreadable_file")],
)  # fmt: skip
def test_an_error_of_a_file_is_a_row(number, reason):
    assert files.rejection_of(OSError(number, os.strerror(number), "/data/Doe")).reason == reason
    assert "Doe" not in files.rejection_of(OSError(number, os.strerror(number), "/data/Doe")).detail


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EMFILE])
def test_an_error_of_the_machine_is_no_row(tmp_path, monkeypatch, number):
    """A share that breaks would empty the cohort otherwise, and the run would be green."""
    cohort(tmp_path)

    def broken(path, *arguments, **more):
        if str(path).endswith("1.dcm"):
            raise OSError(number, os.strerror(number), str(path))
        return open_regular(path, *arguments, **more)

    monkeypatch.setattr("cxr.imaging.cohort.header.open_regular", broken)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        cohort(tmp_path)
    machine = "too many open files" if number == errno.EMFILE else "the disk or network failed"
    assert shortage(caught.value).startswith(machine)


# ---------------------------------------------------------------------------------------- MIMIC-CXR trees


@pytest.fixture
def closed_study(tmp_path, monkeypatch) -> Path:
    """A tree with a study's folder that may not be listed."""
    mimic_tree(tmp_path, XRAY)
    real = os.listdir

    def listdir(folder):
        if str(folder).endswith("s50000002"):
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return real(folder)

    monkeypatch.setattr("os.listdir", listdir)
    return tmp_path


def test_a_study_that_may_not_be_listed_is_no_empty_one(closed_study):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool, pytest.raises(UserError, match="no permission to read a folder"):
        read_mimic(str(closed_study), "", pool)
    write_tables(closed_study)
    with ThreadPoolExecutor(1) as pool:
        rows = {row.image_id: (row.reason, row.detail) for row in read_mimic(str(closed_study), "", pool)}
    assert rows["dddd-none"] == ("unreadable_file", "its folder cannot be read: permission denied")
    assert rows["aaaa-ap"] == (None, "")


# -------------------------------------------------------------------------------------- where a run writes


@contextmanager
def mounted(place: Path, size: str = "20m"):
    """A small file system at ``place``; the test is skipped where none can be mounted."""
    place.mkdir(exist_ok=True)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True
    ).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)  # a library may hold a file open


@pytest.mark.parametrize("what", every(2, [".", "results", "logs", ".snakemake"]))
def test_a_folder_without_write_permission_is_one_sentence(tmp_path, what):
    write_settings(tmp_path, SLICE)
    with mounted(tmp_path / what):
        write_settings(tmp_path, SLICE)
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / what)], check=True)
        done = snakemake(tmp_path, "cohort", check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        place = tmp_path if what == "." else tmp_path / what
        assert done.stderr.count(f"cxr-ils: {place} may not be written by this user, or its file system is") == 1
        assert "Error in rule" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_permissions_of_a_user_are_asked_before_any_job(tmp_path):
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    try:
        folder.chmod(0o755)
        (folder / "results").mkdir()
        # its modules are read before it becomes somebody else, who may not read them
        code = ("import os, sys; from pathlib import Path; from cxr.workflow.folder import *; os.setuid(65534)\n"
                "try: refuse_unwritable(Path(sys.argv[1]), ('results',))\n"
                "except Exception as error: print(error)")  # fmt: skip
        told = subprocess.run([sys.executable, "-c", code, str(folder)], env={"PYTHONPATH": str(ROOT / "scripts")},
                              capture_output=True, text=True, check=True).stdout  # fmt: skip
        assert told.startswith(f"{folder}/results may not be written by this user")
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_a_file_in_a_folders_place_is_told(tmp_path):
    refuse_unwritable(tmp_path)
    (tmp_path / "results").write_text("")
    with pytest.raises(UserError, match="results is a file, but a run needs a folder of that name: rename it"):
        refuse_unwritable(tmp_path)


def error_of(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "x"), "no space left"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "no space left"),
        (error_of(RuntimeError("cannot write"), OSError(errno.EDQUOT, "x")), "no space left"),
        (OSError("[Errno 5] Unable to write (errno = 28, error message = '')"), "no space left"),
        (PermissionError(errno.EACCES, "x", "results/a"), "no permission to read or write 'results/a' (permission"),
        (OSError(errno.EROFS, "x"), "no permission to read or write (read-only file system)"),
        (OSError(errno.ESTALE, "x"), "the disk or network failed (stale file handle): mount the file's folder again"),
        (OSError(errno.EMFILE, "x"), "too many open files: raise the limit (ulimit -n"),
        (OSError(524, "x"), "the disk or network failed (operation not supported)"),
        (ValueError("wrapped: [Errno 5] Input/output error"), "the disk or network failed (input/output error)"),
        (RuntimeError("our own fault"), ""),
        (ValueError("28"), ""),
    ],
)
def test_what_a_job_says_of_its_disk(error, words):
    said = shortage(error)
    assert said.startswith(words)
    assert bool(said) == bool(words)


def test_a_library_that_does_not_say_why_is_asked_of_the_disk(tmp_path, monkeypatch):
    """torch says 'PytorchStreamWriter failed writing file' alone."""
    monkeypatch.chdir(tmp_path)
    error = RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
    assert shortage(error) == ""
    with mounted(tmp_path / "results", "1m"):
        assert shortage(error) == ""
        subprocess.run(["dd", "if=/dev/zero", f"of={tmp_path / 'results/x'}"], capture_output=True, check=False)
        assert shortage(error).startswith("no space left on the device")


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path):
    with mounted(tmp_path / "logs", "1m"):
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "logs")], check=True)
        code = "import sys; from cxr.base import jobs; jobs.start_logging(sys.argv[1])"
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "logs/a.log")], capture_output=True,
                              text=True, env={"PYTHONPATH": str(ROOT / "scripts")}, check=False)  # fmt: skip
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "no permission to read or write" in done.stderr


def test_a_cohort_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    cohort(tmp_path)
    out = tmp_path / "small"
    with mounted(out, "4k"):
        paths = {"shards": [str(out / "0.parquet")], "images": str(out / "images.parquet"),
                 "excluded": str(out / "excluded.parquet")}  # fmt: skip
        with pytest.raises(OSError, match="No space") as caught:
            cohort_run(
                **paths, options=options(manifest=str(tmp_path / "m.csv"), shards=1), seed=1, attrs={}, threads=1
            )
        assert shortage(caught.value).startswith("no space left")
        assert not list(out.glob(".*"))


# ------------------------------------------------------------------------------- every way that stages write

WRITERS = ("shard", "parquet", "tsv", "lines", "figure", "sheet", "folder", "weights", "tensors")


@pytest.mark.parametrize("name", every(3, WRITERS))
def test_a_full_disk_is_told_however_a_stage_writes_and_leaves_no_half(tmp_path, name):
    with mounted(tmp_path / "results", "32k"):
        done = subprocess.run(
            [sys.executable, str(ROOT / "tests/support/full_disk.py"), name], cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode == 3:
            pytest.skip(done.stdout)
        assert done.returncode == 1  # a negative number would be a crash as Python ends
        assert "Traceback" not in done.stderr
        assert done.stderr.count("no space left on the device, or its quota is used up: free some space") == 1
        assert list((tmp_path / "results").iterdir()) == []
