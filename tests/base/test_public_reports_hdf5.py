"""Shards on machines after public bug reports: file systems without locks, errors that are no damage."""

import errno
import shutil
import subprocess

import h5py
import numpy as np
import pytest

from cxr.base.errors import shortage
from cxr.base.hdf5 import Shard, ShardWriter
from input_doors import run_python

WRITE_AND_READ = """
import sys
import numpy as np
from cxr.base.hdf5 import Shard, ShardWriter
with ShardWriter(sys.argv[1]) as writer:
    writer.append("i1", image=np.arange(4096, dtype=np.uint8).reshape(64, 64))
with Shard(sys.argv[1]) as shard:
    print(int(shard.get("image", "i1").sum()))
"""
OPEN_MANY = """
import resource, sys
from cxr.base.errors import shortage
from cxr.base.hdf5 import Shards
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
try:
    with Shards(sys.argv[1:]) as shards:
        print("read", int(shards.shard_of("i299").get("image", "i299").sum()))
except Exception as error:
    print(error, shortage(error))
"""


def test_a_file_system_without_locks_is_written_and_read(shared, tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("no gcc, which makes the file system without locks")
    source = shared / "fixtures/public_reports/h1_no_file_locks/nolock.c"
    library = tmp_path / "nolock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    done = run_python(WRITE_AND_READ, str(tmp_path / "a.h5"), LD_PRELOAD=str(library), FAKE_FLOCK="37")
    assert done.stdout.strip() == str(int(np.arange(4096, dtype=np.uint8).sum())), done.stderr[-600:]


def write_shard(path, row_id: str = "i1") -> None:
    with ShardWriter(path) as writer:
        writer.append(row_id, image=np.ones((8, 8), np.uint8))


def failure_of(path) -> str:
    """Return what a user is told of a shard that cannot be opened."""
    with pytest.raises(Exception) as caught, Shard(path):  # noqa: PT011  (which class says it is free)
        pass
    return f"{caught.value} {shortage(caught.value)}".lower()


FAULTS = {
    errno.EMFILE: "open files", errno.EACCES: "permission", errno.EIO: "input/output", errno.ESTALE: "stale",
    errno.ENOLCK: "lock",
}  # fmt: skip


@pytest.mark.parametrize("number", FAULTS)
def test_an_error_of_the_machine_is_named_and_the_file_is_not_blamed(tmp_path, monkeypatch, number):
    write_shard(tmp_path / "a.h5")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, f"Unable to synchronously open file (errno = {number})")

    monkeypatch.setattr(h5py, "File", fail)
    sentence = failure_of(tmp_path / "a.h5")
    assert FAULTS[number] in sentence
    assert "damaged" not in sentence
    assert "delete it" not in sentence


def test_three_hundred_shards_are_read_or_the_limit_is_named(tmp_path):
    paths = [tmp_path / f"{number:03}.h5" for number in range(300)]
    for number, path in enumerate(paths):
        write_shard(path, f"i{number}")
    sentence = run_python(OPEN_MANY, *map(str, paths)).stdout.lower()
    assert "read 64" in sentence or ("open files" in sentence and "ulimit -n" in sentence)
    assert "damaged" not in sentence
