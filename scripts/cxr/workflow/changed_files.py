"""Before a run is planned, find the images and reports that have changed since a job read them."""

import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from cxr.base.counting import counted
from cxr.base.errors import StoreError
from cxr.base.source_files import read_state, sizes_and_times
from cxr.base.tables import read_table

TABLES = Path("results/cohort/files_read")
"""Folder of the tables of states that jobs have written."""
CHECKED = Path(".snakemake/cxr-ils-files.json")
"""Files that were read again because their size or time differs: {path: [size, time, CRC-32]}."""
THREADS = 16
"""A shared file system answers late, so files are looked at in parallel."""
SHOWN_IDS = 3
NOUNS = {"reports": ("report has", "reports have"), "cohort": ("file has", "files have")}
"""What a stage reads, where it is not images."""


class ChangedFiles:
    """The files that differ from the tables of states (``base.source_files``) below a folder.

    changed: {table: ids of its changed files and deleted reports}, only tables with some. deleted: {table: ids of the
    deleted reports among these}. missing: {table: number of its files that existed and are gone}, whose results stay:
    images, which may be deleted to save space, and the reports if all of them are gone at once, as on a disk that is
    not mounted.
    """

    def __init__(self, tables: Path = TABLES, checked: Path = CHECKED):
        self._file = checked
        self._known = _read_checked(checked)
        self._checked: dict[str, list] = {}
        self.changed: dict[str, list[str]] = {}
        self.deleted: dict[str, list[str]] = {}
        self.missing: dict[str, int] = {}
        with ThreadPoolExecutor(THREADS) as pool:
            paths = sorted(map(str, tables.rglob("*.parquet")))
            compared = dict(zip(paths, pool.map(self._compare, paths), strict=True))
        reports = {table for table in paths if _stage(table, tables) == "reports"}
        num_gone = sum(len(compared[table][1]) for table in reports)
        all_are_gone = num_gone == sum(compared[table][2] for table in reports) > 1
        for table, (ids, gone, _) in compared.items():
            if table in reports and not all_are_gone:
                self.deleted |= {table: gone} if gone else {}
                ids, gone = ids + gone, []
            self.changed |= {table: ids} if ids else {}
            self.missing |= {table: len(gone)} if gone else {}
        self._keep()

    def _compare(self, table: str) -> tuple[list[str], list[str], int]:
        """Return the ids of a table's changed files, those of its files that are gone, and the number of all files."""
        states = _read_states(table)
        if states is None:
            return ["its table is damaged"], [], 0  # the job writes a new one
        changed, gone = [], []
        for (row_id, path, head_bytes, _, _, crc32), present in _differing(states):
            if self._crc32(path, head_bytes, present) != crc32:
                (gone if present == (None, None) else changed).append(row_id)
        return changed, gone, states["size"].count()

    def _crc32(self, path: str, head_bytes: int | None, present: tuple) -> int | None:
        key = _key(path, head_bytes)
        entry = self._known.get(key)
        if not (entry and tuple(entry[:2]) == present):
            state = read_state(path, head_bytes)
            entry = [*present, state and state.crc32]
        self._checked[key] = entry
        return entry[2]

    def accept(self, tables: Iterable[str]) -> None:
        """Count the present files of some tables as unchanged, as ``--touch`` asks."""
        for table in tables:
            states = _read_states(table)
            for (_, path, head_bytes, _, _, crc32), present in () if states is None else _differing(states):
                self._checked[_key(path, head_bytes)] = [*present, crc32]
        self._keep()

    def _keep(self) -> None:
        if self._checked == self._known:
            return
        new = self._file.with_name(f"{self._file.name}.{os.getpid()}.new")
        try:
            new.write_text(json.dumps(self._checked), encoding="utf-8")
            os.replace(new, self._file)
        except OSError:  # the folder may not be written: they are read again the next time
            new.unlink(missing_ok=True)

    def sentences(self, tables: Iterable[str]) -> list[str]:
        """Return the sentences about some tables: for each stage with changed or deleted files, for missing files."""
        tables = list(tables)
        changed = {table: set(self.changed.get(table, ())) - set(self.deleted.get(table, ())) for table in tables}
        sentences = [
            f"{stage}: {counted(len(ids), *NOUNS.get(stage, ('image has', 'images have')))} changed since this stage "
            f"ran ({_first(ids)}), so what depends on {_pronoun(ids)} runs again"
            for stage, ids in _ids_by_stage(changed)
        ] + [
            f"{stage}: {counted(len(ids), 'report has', 'reports have')} been deleted since this stage ran "
            f"({_first(ids)}), so what depends on {_pronoun(ids)} runs again without {_pronoun(ids)}"
            for stage, ids in _ids_by_stage({table: self.deleted.get(table, ()) for table in tables})
        ]
        if missing := sum(self.missing.get(table, 0) for table in tables):
            sentences.append(
                f"{counted(missing, 'image or report that was read is', 'images and reports that were read are')} "
                "missing now; the results made from them stay"
            )
        return sentences


def _ids_by_stage(ids_by_table: Mapping[str, Iterable[str]]) -> list[tuple[str, list[str]]]:
    """Return (stage, its distinct ids in order) of the stages with some."""
    ids_by_stage: dict[str, set[str]] = {}
    for table, ids in ids_by_table.items():
        ids_by_stage.setdefault(_stage(table), set()).update(ids)
    return [(stage, sorted(ids)) for stage, ids in sorted(ids_by_stage.items()) if ids]


def _first(ids: list[str]) -> str:
    return ", ".join(ids[:SHOWN_IDS]) + (", …" if len(ids) > SHOWN_IDS else "")


def _pronoun(ids: list[str]) -> str:
    return "it" if len(ids) == 1 else "them"


def _read_states(table: str) -> pl.DataFrame | None:
    """Return a table of states; None if it is damaged."""
    try:
        return read_table(table)
    except StoreError:
        return None


def _differing(states: pl.DataFrame) -> list[tuple[tuple, tuple]]:
    """Return (row, present size and time) of the files whose size or time differs."""
    present = sizes_and_times(states["path"].to_list())
    recorded = [*zip(states["size"].to_list(), states["modified_ns"].to_list(), strict=True)]
    if present == recorded:  # by far the most common case, which makes no row
        return []
    return [(row, now) for row, now, then in zip(states.rows(), present, recorded, strict=True) if now != then]


def _key(path: str, head_bytes: int | None) -> str:
    return path if head_bytes is None else f"{head_bytes}:{path}"


def _stage(table: str, tables: Path = TABLES) -> str:
    """Return the stage that wrote a table: "reports" of results/cohort/files_read/reports_structured/00.parquet."""
    return Path(table).relative_to(tables).with_suffix("").parts[0].partition("_")[0]


def _read_checked(file: Path) -> dict[str, list]:
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
        return {str(key): list(entry) for key, entry in entries.items() if len(entry) == 3}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
