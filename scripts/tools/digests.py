"""Compare two runs by a digest of the content of every file of results.

    python scripts/tools/digests.py results [other/results]

Content is the arrays of an HDF5 file, the rows of a Parquet file, the lines of a JSONL, TSV or CSV file, without the
record of how it was made (code digest, rule, settings). Without a second folder every digest is printed; with one, each
file that differs, and the exit status is 1 if any differs. Folders with times of jobs and records of runs are left out.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401 (its filters)
import numpy as np
import polars as pl

HOW_MADE = ("digests", "crc32")
UNCOMPARED = ("benchmarks", "records", "cohort/files_read", "page/costs.tsv", "page/jobs.tsv", "page/versions.tsv")


def digest_arrays(path: Path) -> str:
    """Return the digest of the names, types, shapes and values of an HDF5 file's datasets."""
    whole = hashlib.sha256()

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            values = item[()]
            content = (
                repr(values.tolist()).encode() if values.dtype.hasobject else np.ascontiguousarray(values).tobytes()
            )
            whole.update(f"{name} {values.dtype.str} {values.shape}\n".encode() + content)

    with h5py.File(path, locking=False) as file:
        file.visititems(add)
    return whole.hexdigest()


def digest_rows(path: Path) -> str:
    """Return the digest of a Parquet file's columns, their types and its rows in order."""
    table = pl.read_parquet(path)
    return hashlib.sha256(f"{table.schema}\n{table.rows()!r}".encode()).hexdigest()


def digest_bytes(path: Path) -> str:
    """Return the digest of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest_lines(path: Path) -> str:
    """Return the digest of a JSON Lines file, without what its lines say of how they were made."""
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    said = ({key: value for key, value in line.items() if key not in HOW_MADE} for line in lines)
    return hashlib.sha256("\n".join(json.dumps(line) for line in said).encode()).hexdigest()


KINDS: dict[str, Callable[[Path], str]] = {
    ".h5": digest_arrays, ".parquet": digest_rows, ".jsonl": digest_lines, ".tsv": digest_bytes, ".csv": digest_bytes,
}  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    """Return {path below the folder: digest of its content} of every file of a known kind."""
    files = ((path.relative_to(folder).as_posix(), path) for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        name: KINDS[path.suffix](path)
        for name, path in files
        if path.suffix in KINDS and not name.startswith(UNCOMPARED) and not name.endswith(".damaged")
    }


def main(arguments: list[str] | None = None) -> int:
    """Run as a program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("other", type=Path, nargs="?")
    given = parser.parse_args(arguments)
    first = digests(given.results)
    if not given.other:
        print("\n".join(f"{digest}  {name}" for name, digest in first.items()))
        return 0
    second = digests(given.other)
    differ = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    for name in differ:
        print(f"{name}: {first.get(name, 'not there')[:12]} {second.get(name, 'not there')[:12]}")
    print(f"{len(first.keys() & second.keys()) - sum(n in first and n in second for n in differ)} files alike")
    return 1 if differ or not first else 0


if __name__ == "__main__":
    sys.exit(main())
