"""Cheap checks of the user's paths and tables, called before any job is planned (standard library only)."""

import csv
import gzip
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ils.core.run import UserError, existing_file

ID_COLUMNS = ("subject_id", "study_id", "image_id", "image_path")
REPORT_COLUMNS = ("report_path", "findings", "impression")
TABLE_COLUMNS = {
    "record-list": ("subject_id", "study_id", "dicom_id", "path"),
    "metadata": ("dicom_id",),
    "split": ("dicom_id", "split"),
}
"""The official tables by the end of their name, and the columns we cannot do without."""

CHEXSTRUCT_NAMES = {"abdominal_xray": ("abdominal_xray", "abdomial_xray")}
"""File stems under which a CheXStruct table was published, where there is more than one."""
CHEXSTRUCT_IDS = ("image_id", "image_file", "dicom_id")

csv.field_size_limit(1 << 27)


@contextmanager
def csv_lines(path: str | Path, key: str) -> Iterator[Iterator[list[str]]]:
    """Yield the rows of a CSV (by its ending TSV; ``.gz`` too). Raises UserError if it cannot be read as one."""
    path = Path(path)
    opener = gzip.open if path.suffix == ".gz" else open
    tabs = path.name.removesuffix(".gz").endswith(".tsv")
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield csv.reader((line.replace("\0", "") for line in file), delimiter="\t" if tabs else ",")
    except UnicodeDecodeError:
        raise UserError(f"{key}: {path} is not UTF-8 text: save it as UTF-8 CSV") from None
    except (OSError, EOFError, csv.Error) as error:
        raise UserError(f"{key}: {path} cannot be read as CSV ({error}): check the path and the file") from None


def _folder(key: str, value: str) -> Path:
    if not value:
        raise UserError(f"{key} is empty: give the folder")
    if not Path(value).is_dir():
        raise UserError(f"{key}: there is no folder {value!r}: correct the path")
    return Path(value)


def header_of(path: Path, key: str) -> list[str]:
    """Return the column names of a CSV that must have at least one row. Raises UserError."""
    with csv_lines(path, key) as lines:
        header = [name.strip() for name in next(lines, [])]
        if not header or next((line for line in lines if any(line)), None) is None:
            raise UserError(f"{key}: {path} has no rows: put a header and at least one row into it")
    repeated = sorted({name for name in header if header.count(name) > 1 and name})
    if repeated:
        raise UserError(f"{key}: {path} has the column {repeated[0]!r} twice: rename one")
    return header


def _need(path: Path, key: str, header: list[str], columns: tuple[str, ...]) -> None:
    missing = [name for name in columns if name not in header]
    if missing:
        raise UserError(
            f"{key}: {path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}: add "
            f"{'them' if len(missing) > 1 else 'it'} (it has {', '.join(header)})"
        )


def mimic_base(root: str) -> Path:
    """Return the folder that holds ``files/`` (``root`` itself, or its parent if ``root`` is ``files``)."""
    folder = _folder("cohort.root", root)
    if not (folder / "files").is_dir() and folder.name == "files":
        return folder.parent
    return folder


def mimic_tables(root: str, tables: str) -> dict[str, Path]:
    """Return the official tables present, by kind (``record-list``, ``metadata``, ``split``).

    They are looked for in ``tables`` (a folder) where it is given, then in ``root``. Raises UserError if two could be
    meant, or if the folder given has none.
    """
    folders = ([_folder("cohort.tables", tables)] if tables else []) + [mimic_base(root)]
    found = {}
    for kind, folder in itertools.product(TABLE_COLUMNS, folders):
        matches = sorted(path for ending in ("csv", "csv.gz") for path in folder.glob(f"*-{kind}.{ending}"))
        stems = sorted({path.name.removesuffix(".gz") for path in matches})
        if len(stems) > 1:
            raise UserError(
                f"cohort.tables: {folder} holds {' and '.join(stems)}: leave one of them, "
                "or set cohort.tables to another folder"
            )
        if matches:
            found.setdefault(kind, matches[0])
    if tables and not any(path.parent == folders[0] for path in found.values()):
        names = ", ".join(f"*-{kind}.csv" for kind in TABLE_COLUMNS)
        raise UserError(
            f"cohort.tables: {folders[0]} holds none of {names}: correct the path, or leave the key out to do without"
        )
    return found


def chexstruct_tables(folder: str, names: list[str]) -> dict[str, Path]:
    """Return the named CheXStruct tables, anywhere under ``folder``. Raises UserError for one that is not there."""
    root = _folder("cohort.chexstruct", folder)
    files = {path.stem: path for path in sorted(root.rglob("*.csv"))}
    found = {}
    for name in names:
        path = next((files[stem] for stem in CHEXSTRUCT_NAMES.get(name, (name,)) if stem in files), None)
        if path is None:
            raise UserError(
                f"cohort.chexstruct: {root} holds no {name}.csv: add it or take {name} out of cohort.chexstruct_tables"
            )
        found[name] = path
    return found


def _check_mimic(options) -> None:
    base = mimic_base(options.root)
    tables = mimic_tables(options.root, options.tables)
    if not (base / "files").is_dir():
        raise UserError(
            f"cohort.root: {options.root!r} has no folder files/: set it to the folder that holds files/p10/p10000032/…"
        )
    for kind, path in tables.items():
        _need(path, "cohort.tables", header_of(path, "cohort.tables"), TABLE_COLUMNS[kind])
    if "record-list" not in tables and not any(entry.is_dir() for entry in os.scandir(base / "files")):
        raise UserError(f"cohort.root: {base / 'files'} is empty: set it to the folder that holds files/p10/…")


def _check_manifest(options) -> None:
    path = existing_file("cohort.manifest", options.manifest)
    header = header_of(path, "cohort.manifest")
    _need(path, "cohort.manifest", header, ID_COLUMNS)
    if not set(REPORT_COLUMNS) & set(header):
        raise UserError(
            f"cohort.manifest: {path} has none of the columns {', '.join(REPORT_COLUMNS)}: add "
            "report_path, or findings and impression (a study without a report leaves them empty)"
        )


def source_files(options) -> dict[str, str | list[str]]:
    """Return the files that the cohort is read from (names of rule inputs): a change in one makes the cohort anew.

    The images and reports are not among them, and a tree without tables has none: there, ask with ``--forcerun``.
    """
    files: dict[str, str | list[str]] = {}
    if options.source == "mimic":
        files["tables"] = [str(path) for path in mimic_tables(options.root, options.tables).values()]
    else:
        files["manifest"] = options.manifest
    if options.exclude:
        files["exclude"] = options.exclude
    if options.chexstruct:
        tables = chexstruct_tables(options.chexstruct, options.chexstruct_tables)
        files["chexstruct"] = [str(path) for path in tables.values()]
    return files


def check_inputs(options) -> None:
    """Raise UserError with one sentence if the cohort's settings name something that is not there.

    Looks at folders and at the first rows of tables only. ``options`` has the fields of ``stage.Options``.
    """
    if options.source == "mimic":
        _check_mimic(options)
    elif options.source == "manifest":
        _check_manifest(options)
    else:
        raise UserError(f"cohort.source is {options.source!r}: set it to mimic or manifest")
    check_lists(options)


def check_lists(options) -> None:
    """Raise UserError with one sentence if a list of images to leave out is not there or lacks a column."""
    if options.exclude:
        existing_file("cohort.exclude", options.exclude)
    if options.chexstruct:
        for path in chexstruct_tables(options.chexstruct, options.chexstruct_tables).values():
            header = header_of(path, "cohort.chexstruct")
            _need(path, "cohort.chexstruct", header, ("label",))
            if not set(CHEXSTRUCT_IDS) & set(header):
                _need(path, "cohort.chexstruct", header, ("image_id",))
