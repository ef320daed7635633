"""Compare two runs by a digest of the content of every file of results.

    python scripts/tools/digests.py results [other/results] [--renamed scripts/tools/renamed_results.tsv]

The content is the arrays of an HDF5 file, the rows of a Parquet file, or the lines of a JSONL, TSV or CSV file, without
the record of how it was made (code digest, rule, settings). Without a second folder, every digest is printed. With one,
each file that differs is printed, and the exit status is 1 if there is any. Times of jobs and records of runs are not
compared. ``--renamed`` names a TSV table of renamed columns and files, for the comparison of an older first folder.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401 (its filters)
import numpy as np
import polars as pl

HOW_MADE = ("digests", "crc32")
UNCOMPARED = ("benchmarks", "records", "cohort/files_read", "page/costs.tsv", "page/jobs.tsv", "page/versions.tsv")


def digest_arrays(path: Path, _: Mapping[str, str]) -> str:
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


def digest_rows(path: Path, names: Mapping[str, str]) -> str:
    """Return the digest of a Parquet file's columns, types and rows in order. ``names``: {old column: new one}."""
    table = pl.read_parquet(path).rename(dict(names), strict=False)
    return hashlib.sha256(f"{table.schema}\n{table.rows()!r}".encode()).hexdigest()


def digest_bytes(path: Path, names: Mapping[str, str]) -> str:
    """Return the digest of the bytes of a CSV or TSV table. ``names`` is {old: new} of columns to rename first."""
    head, line_end, rows = path.read_bytes().partition(b"\n")
    mark = b"," if path.suffix == ".csv" else b"\t"
    columns = [names.get(column.decode(), column.decode()).encode() for column in head.split(mark)]
    return hashlib.sha256(mark.join(columns) + line_end + rows).hexdigest()


def digest_lines(path: Path, _: Mapping[str, str]) -> str:
    """Return the digest of a JSON Lines file, without the fields ``HOW_MADE`` of its lines."""
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    said = ({key: value for key, value in line.items() if key not in HOW_MADE} for line in lines)
    return hashlib.sha256("\n".join(json.dumps(line) for line in said).encode()).hexdigest()


KINDS: dict[str, Callable[[Path, Mapping[str, str]], str]] = {
    ".h5": digest_arrays, ".parquet": digest_rows, ".jsonl": digest_lines, ".tsv": digest_bytes, ".csv": digest_bytes,
}  # fmt: skip


def digests(folder: Path, renamed: Sequence[tuple[str, str, str]] = ()) -> dict[str, str]:
    """Return {path below the folder: digest of its content} of every file of a known kind.

    ``renamed`` has (pattern of paths, old name, new name) for each column, or end of a file's name, to rename first.
    """
    found_digests = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.suffix not in KINDS or name.startswith(UNCOMPARED) or name.endswith(".damaged"):
            continue
        names = {old: new for pattern, old, new in renamed if fnmatch(name, pattern)}
        ending = next((old for old in names if name.endswith(old)), None)
        new_name = name.removesuffix(ending) + names[ending] if ending else name
        found_digests[new_name] = KINDS[path.suffix](path, names)
    return found_digests


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--renamed", type=Path)
    options = parser.parse_args(arguments)
    renamed = pl.read_csv(options.renamed, separator="\t").rows() if options.renamed else []
    first = digests(options.results, renamed)
    if not options.other:
        print("\n".join(f"{digest}  {name}" for name, digest in first.items()))
        return 0
    second = digests(options.other)
    differ = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    for name in differ:
        print(f"{name}: {first.get(name, 'not there')[:12]} {second.get(name, 'not there')[:12]}")
    print(f"{len(first.keys() & second.keys()) - sum(n in first and n in second for n in differ)} files alike")
    return 1 if differ or not first else 0


if __name__ == "__main__":
    sys.exit(main())
