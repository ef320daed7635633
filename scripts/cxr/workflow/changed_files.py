"""Find the images and reports that have changed since a job read them. This happens before a run is planned."""

import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import polars as pl

from cxr.base.errors import StoreError, count_phrase
from cxr.base.source_files import read_state, sizes_and_times
from cxr.base.tables import read_table

TABLES = Path("results/cohort/files_read")
"""Folder of the tables in which jobs note the state of each file that they read: size, time and CRC-32."""
CHECKED = Path(".snakemake/cxr-ils-files.json")
"""Cache of the checksums of files whose size or time has changed: {path: [size, time in ns, CRC-32]}."""
THREADS = 16
"""Number of files whose size and time are read in parallel, because a shared file system answers slowly."""
SHOWN_IDS = 3
NOUNS = {"reports": ("report has", "reports have"), "cohort": ("file has", "files have")}
"""{stage: (singular, plural)}, the words for the files that a stage reads. All other stages read images."""


class _Comparison(NamedTuple):
    """State of the files in a table: ids of changed and of missing files, and number of files that a job has read."""

    changed: list[str]
    missing: list[str]
    num_files: int


class ChangedFiles:
    """Files that differ from the states that jobs have noted in the tables below the folder ``tables``.

    changed: {table: ids of its changed files}. deleted: {table: ids of its deleted reports}. damaged: tables that
    cannot be read. missing: {table: number of its absent files whose results stay}. These are images, which a user may
    delete to save space, and reports if all reports are absent, because then their disk is probably not mounted.
    """

    def __init__(self, tables: Path = TABLES, checked: Path = CHECKED):
        self._file = checked
        self._known = _read_checked(checked)
        self._checked: dict[str, list] = {}
        self.changed: dict[str, list[str]] = {}
        self.deleted: dict[str, list[str]] = {}
        self.missing: dict[str, int] = {}
        paths = sorted(map(str, tables.rglob("*.parquet")))
        with ThreadPoolExecutor(THREADS) as pool:
            comparisons = dict(zip(paths, pool.map(self._compare, paths), strict=True))
        self.damaged = [table for table, comparison in comparisons.items() if comparison is None]
        readable = {table: comparison for table, comparison in comparisons.items() if comparison is not None}
        reports = {table for table in readable if _stage(table, tables) == "reports"}
        num_missing = sum(len(readable[table].missing) for table in reports)
        all_are_missing = num_missing == sum(readable[table].num_files for table in reports) > 1
        for table, comparison in readable.items():
            if comparison.changed:
                self.changed[table] = comparison.changed
            if comparison.missing and table in reports and not all_are_missing:
                self.deleted[table] = comparison.missing
            elif comparison.missing:
                self.missing[table] = len(comparison.missing)
        self._keep()

    @property
    def outdated(self) -> set[str]:
        """Return the tables whose jobs must run again: damaged tables, and tables of changed or deleted files."""
        return {*self.changed, *self.deleted, *self.damaged}

    def _compare(self, table: str) -> _Comparison | None:
        """Return how the present files differ from the states in a table, or None if the table is damaged."""
        states = _read_states(table)
        if states is None:
            return None
        changed, missing = [], []
        for (row_id, path, head_bytes, _, _, crc32), present in _differing(states):
            if self._crc32(path, head_bytes, present) != crc32:
                (missing if present == (None, None) else changed).append(row_id)
        return _Comparison(changed, missing, states["size"].count())

    def _crc32(self, path: str, head_bytes: int | None, present: tuple) -> int | None:
        key = _key(path, head_bytes)
        entry = self._known.get(key)
        if not (entry and tuple(entry[:2]) == present):
            state = read_state(path, head_bytes)
            entry = [*present, state and state.crc32]
        self._checked[key] = entry
        return entry[2]

    def accept(self, tables: Iterable[str]) -> None:
        """Treat the present files of some tables as unchanged from now on, as a run with ``--touch`` does."""
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
        except OSError:  # the folder is not writable, so the files will be read again the next time
            new.unlink(missing_ok=True)

    def sentences(self, tables: Iterable[str]) -> list[str]:
        """Return sentences for the user about the changed, deleted and missing files of some tables, by stage."""
        tables = set(tables)
        sentences = [
            f"{stage}: {count_phrase(len(ids), *NOUNS.get(stage, ('image has', 'images have')))} changed since this "
            f"stage ran ({_first(ids)}), so what depends on {_pronoun(ids)} runs again"
            for stage, ids in _ids_by_stage(self.changed, tables)
        ]
        sentences += [
            f"{stage}: {count_phrase(len(ids), 'report has', 'reports have')} been deleted since this stage ran "
            f"({_first(ids)}), so what depends on {_pronoun(ids)} runs again without {_pronoun(ids)}"
            for stage, ids in _ids_by_stage(self.deleted, tables)
        ]
        sentences += [f"{table} is damaged, so its job runs again" for table in self.damaged if table in tables]
        if missing := sum(self.missing.get(table, 0) for table in tables):
            sentences.append(
                f"{count_phrase(missing, 'image or report that was read is', 'images and reports that were read are')} "
                "missing now; the results made from them stay"
            )
        return sentences


def _ids_by_stage(ids_by_table: Mapping[str, Iterable[str]], tables: set[str]) -> list[tuple[str, list[str]]]:
    """Return (stage, sorted distinct ids) for each stage that has ids in ``tables``."""
    ids_by_stage: dict[str, set[str]] = {}
    for table in ids_by_table.keys() & tables:
        ids_by_stage.setdefault(_stage(table), set()).update(ids_by_table[table])
    return [(stage, sorted(ids)) for stage, ids in sorted(ids_by_stage.items())]


def _first(ids: list[str]) -> str:
    return ", ".join(ids[:SHOWN_IDS]) + (", …" if len(ids) > SHOWN_IDS else "")


def _pronoun(ids: list[str]) -> str:
    return "it" if len(ids) == 1 else "them"


def _read_states(table: str) -> pl.DataFrame | None:
    try:
        return read_table(table)
    except StoreError:
        return None


def _differing(states: pl.DataFrame) -> list[tuple[tuple, tuple]]:
    """Return (row of ``states``, (present size, present time)) for each file whose size or time has changed."""
    present = sizes_and_times(states["path"].to_list())
    recorded = [*zip(states["size"].to_list(), states["modified_ns"].to_list(), strict=True)]
    if present == recorded:  # by far the most common case, in which building rows would only cost time
        return []
    return [
        (row, current_state)
        for row, current_state, recorded_state in zip(states.rows(), present, recorded, strict=True)
        if current_state != recorded_state
    ]


def _key(path: str, head_bytes: int | None) -> str:
    return path if head_bytes is None else f"{head_bytes}:{path}"


def _stage(table: str, tables: Path = TABLES) -> str:
    """Return the stage that wrote a table: "reports" for results/cohort/files_read/reports_structured/00.parquet."""
    return Path(table).relative_to(tables).with_suffix("").parts[0].partition("_")[0]


def _read_checked(file: Path) -> dict[str, list]:
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
        return {str(key): list(entry) for key, entry in entries.items() if len(entry) == 3}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
