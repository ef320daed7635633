"""A machine's fault is named as such: locks, permission, open files; only damaged content is called damaged."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from conftest import ROOT
from cxr.base import errors
from cxr.base.hdf5 import Shard, ShardWriter

NO_LOCKS = {"EAGAIN": 11, "EACCES": 13, "ENOLCK": 37, "ENOSYS": 38, "ENOTSUP": 95, "ENOTSUPP": 524}


@pytest.fixture(scope="module")
def failing_calls(tmp_path_factory) -> str:
    """Return the library that makes calls of the system fail."""
    compiler = next(filter(shutil.which, ("gcc", "cc", "clang")), None)
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler for Linux, which the library of failing calls needs")
    library = tmp_path_factory.mktemp("c") / "failing_calls.so"
    source = ROOT / "tests/support/failing_calls.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return str(library)


def run_python(code: str, *arguments: object, **environment: str) -> str:
    """Return what a Python program prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts"), "OMP_NUM_THREADS": "1"} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------------------------------------- no file locks

WRITE_AND_READ = """
import os, sys
import numpy as np
from cxr.base.hdf5 import Shard, ShardWriter
for number in sys.argv[2:]:
    os.environ["FAIL_LOCK"] = number
    with ShardWriter(sys.argv[1]) as writer:
        writer.append("a", image=np.full((64, 64), 7, np.uint8))
    with Shard(sys.argv[1]) as shard:
        print(number, int(shard.get("image", "a").sum()))
"""


def test_shards_need_no_file_locks(failing_calls, tmp_path):
    numbers = [str(number) for number in NO_LOCKS.values()]
    said = run_python(WRITE_AND_READ, tmp_path / "00.h5", *numbers, LD_PRELOAD=failing_calls)
    assert said.split("\n")[:-1] == [f"{number} {64 * 64 * 7}" for number in numbers]


def test_a_locked_shard_is_read_and_a_lock_of_the_environments_is_explained(tmp_path):
    path = tmp_path / "00.h5"
    with ShardWriter(path) as writer:
        writer.append("a", image=np.ones((8, 8), np.uint8))
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError), h5py.File(path):
            pass
        with Shard(path) as shard:
            assert shard.get("image", "a").sum() == 64
        # who asks HDF5 for locks is told where
        code = "import sys; from cxr.base.hdf5 import Shard\ntry: Shard(sys.argv[1]).__enter__()\n"
        code += "except Exception as error: print(error)"
        said = run_python(code, path, HDF5_USE_FILE_LOCKING="TRUE")
    assert said == (
        f"{path} cannot be read, though it may be intact: the file system has no file locks (resource temporarily "
        "unavailable): unset HDF5_USE_FILE_LOCKING and run again\n"
    )


def test_every_opening_of_an_hdf5_file_goes_without_locks():
    """Also those of the tools, the benchmarks and the examples in the documentation, which users copy."""
    places = [*ROOT.glob("scripts/**/*.py"), *ROOT.glob("benchmarks/*.py"), *ROOT.glob("docs/**/*.md")]
    calls = [(path, line) for path in places for line in path.read_text("utf-8").splitlines() if "h5py.File(" in line]
    assert len(calls) > 8
    assert not [place for place in calls if "locking=False" not in place[1]]


# ------------------------------------------------------------------------------------------- many files at once

MANY_SHARDS = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from cxr.base.hdf5 import Shards
paths = sorted(Path(sys.argv[1]).glob("*.h5"))
with Shards(list(map(str, paths))) as shards:
    for _ in range(2):
        print(sum(int(shards.shard_of(path.stem).get("image", path.stem)[0]) for path in paths))
    opened = [shards.shard_of(path.stem) for path in paths]
    print({shard.shape("image") for shard in opened}, {shard.attrs["n"] for shard in opened})
"""


@pytest.mark.slow
def test_300_shards_are_read_where_256_files_may_be_open(tmp_path):
    for number in range(300):
        with ShardWriter(tmp_path / f"{number:03d}.h5", attrs={"n": 1}) as writer:
            writer.append(f"{number:03d}", image=np.array([number]))
    total = sum(range(300))
    assert run_python(MANY_SHARDS, tmp_path) == f"{total}\n{total}\n{{(1,)}} {{1}}\n"


def test_a_job_may_open_as_many_files_as_its_user(tmp_path):
    code = (
        "import resource as r, sys; from cxr.base import jobs\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, r.getrlimit(r.RLIMIT_NOFILE)[1])); jobs.start_logging(sys.argv[1])\n"
        "print(r.getrlimit(r.RLIMIT_NOFILE))"
    )
    soft, hard = json.loads(run_python(code, tmp_path / "log").translate(str.maketrans("()", "[]")))
    assert soft == (min(65536, hard) if hard >= 0 else 65536)


# ---------------------------------------------------------------------------------------- every kind of file

SENTENCES = {
    5: "the disk or network failed (input/output error): check the disk",
    13: "no permission to read or write",
    23: "too many open files on this computer: run fewer jobs at once",
    24: "too many open files: raise the limit (ulimit -n 4096",
    37: "the disk or network failed (no locks available)",
    110: "the disk or network failed (connection timed out)",
    116: "the disk or network failed (stale file handle): mount the file's folder again",
    524: "the disk or network failed (operation not supported)",
}


@pytest.mark.parametrize("kind", ["files", pytest.param("models", marks=pytest.mark.slow)])
def test_no_intact_file_is_called_damaged_or_missing(failing_calls, tmp_path, kind):
    program = (ROOT / "tests/support/read_stores.py").read_text("utf-8").replace("__file__", "sys.argv[3]")
    environment = {"LD_PRELOAD": failing_calls, "FAIL_PATH": f"{tmp_path}/"}
    said = json.loads(run_python(program, tmp_path, kind, ROOT / "tests/support/x.py", **environment))
    assert len(said) > 5
    for store, answers in said.items():
        for call, message in answers.items():
            number = int(call.split()[1])
            # what is mapped into memory is read without a call
            assert message or call.startswith("READ"), (store, call)
            if message.startswith("StoreError"):
                assert f"cannot be read, though it may be intact: {SENTENCES[number]}" in message, (store, call)
            elif message:
                assert message.split(":")[0] in ("OSError", "PermissionError", "TimeoutError"), (store, call, message)


def test_a_number_that_says_nothing_of_the_machine_leaves_the_file_alone(tmp_path):
    path = tmp_path / "00.h5"
    path.write_bytes(b"x")
    found = errors.unreadable_file_error(path, OSError("read failed: errno = 22, error message = 'Invalid argument'"))
    assert found.damaged is None
    assert "check the disk and run again" in str(found)
    assert "delete" not in str(found)
    gone = errors.unreadable_file_error(tmp_path / "none.h5", FileNotFoundError(errno.ENOENT, "x"))
    assert str(gone) == f"{tmp_path}/none.h5 is missing: run again to make it"


# ------------------------------------------------------------------------------------- no patient's text in logs

TEXT = "Frau Müller, MRN 7700008: pleural effusion"


@pytest.mark.parametrize(
    "code",
    [
        f"int({TEXT!r})",
        f"{{}}[{TEXT!r}]",
        f"raise ValueError('a finding {{!r}} is unknown'.format({TEXT!r}))",
        f"import polars as pl; pl.DataFrame({{'a': [{TEXT!r}]}}).cast(pl.Int64)",
        f"import jsonschema; jsonschema.validate({TEXT!r}, {{'type': 'integer'}})",
        f"import jsonschema; jsonschema.validate({{'a': {TEXT!r}}}, {{'required': ['b']}})",
        f"open({TEXT!r})",
        f"import datetime; datetime.date.fromisoformat({TEXT!r})",
        f"import yaml; yaml.safe_load('a: [' + {TEXT!r})",
        f"raise RuntimeError('first line\\n' + {TEXT!r})",
        f"raise RuntimeError('cut off: \"' + {TEXT!r})",
        f"raise RuntimeError('not `' + {TEXT!r} + '`')",
    ],
)
def test_no_unexpected_error_prints_a_patients_text(tmp_path, code):
    program = "import sys; from cxr.base import jobs; jobs.start_logging(sys.argv[1])\n"
    program += "try:\n  " + code.replace("; ", "\n  ") + "\nexcept Exception as error:\n  raise TypeError from error\n"
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "log"], capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
    )  # fmt: skip
    assert done.returncode == 1
    log = Path(tmp_path / "log").read_text("utf-8")
    assert "unexpected error: TypeError (traceback in" in done.stderr
    assert log.count("Traceback (most recent call last)") == 2
    for word in ("Müller", "7700008", "effusion"):
        assert word not in done.stderr + log


def test_no_process_of_a_training_prints_a_patients_text(tmp_path):
    (tmp_path / "job").write_text("")
    program = f"""
import sys
from pathlib import Path
from cxr.nets.fitting.launch import run_process
def work(job):
    raise ValueError("no token for {{!r}}".format({TEXT!r}))
run_process(Path(sys.argv[1]), work)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "job"], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts"), "RANK": "0"},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.endswith("ValueError: no token for '…'\n")
    assert "in work" in done.stdout
    assert done.stderr == ""
