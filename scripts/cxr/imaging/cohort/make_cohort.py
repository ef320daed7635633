"""The cohort stage: assigns each input image to a shard, or excludes it with a reason."""

import os
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.errors import UserError, count_phrase
from cxr.base.jobs import log, progress
from cxr.base.ledger import Ledger
from cxr.base.seeds import shard_names, shard_of
from cxr.base.source_files import state_row, write_states
from cxr.base.tables import write_table
from cxr.dicom.files import Rejected, quote_value
from cxr.imaging.cohort import rows as cohort_rows
from cxr.imaging.cohort.check import check_inputs
from cxr.imaging.cohort.header import MIN_SIDE, check_kind, check_view, read_header
from cxr.imaging.cohort.manifest import read_manifest
from cxr.imaging.cohort.mimic import read_mimic
from cxr.imaging.cohort.openi import read_openi
from cxr.imaging.cohort.openi_files import reports_folder
from cxr.imaging.cohort.rows import IMAGES, SHARD, Row, in_batches
from cxr.imaging.cohort.settings import DEFAULT_SHARDS, CohortSettings
from cxr.imaging.cohort.split import subject_splits

WAITING = 8  # number of concurrent file operations per thread; on a shared file system each waits milliseconds
HEADER_BYTES = 1 << 16  # number of leading bytes, which contain the header; their change makes the cohort outdated


def complete_row(row: Row, options: CohortSettings) -> None:
    """Add view, size and time from the image file's header to a row. Exclude the row if it is no frontal chest X-ray.

    The view in a table takes precedence over the header. If a table gives view and size, the file is not opened.
    """
    view_source = "the table"
    try:
        view = row.view or None
        if row.needs_header:
            header = read_header(row.path)
            check_kind(header, options.modalities, options.body_parts)
            row.size = row.size or header.size
            row.acquired = row.acquired or header.acquired
            if view is None:
                view, view_source = header.view, header.view_field
                row.view = view or ""
        if view is None and row.view_text:
            view_source = f"the table's {quote_value(row.view_text)} is not understood; the file: {view_source}"
        row.view = check_view(view, view_source, options.views, options.unknown_view == "accept")
        if row.size is not None and min(row.size) < MIN_SIDE:
            raise Rejected("too_small", f"{row.size[0]} x {row.size[1]}")
    except Rejected as rejected:
        is_missing = rejected.reason == "missing_file"
        row.exclude(rejected.reason, rejected.detail or (row.path_problem if is_missing else ""))


def rank_in_study(rows: Iterable[Row], views: list[str]) -> dict[str, int]:
    """Return {image_id: rank in its study}, by the order of ``views`` (unknown view last), then time, then image_id."""

    def order(row: Row) -> tuple:
        place = views.index(row.view) if row.view in views else len(views)
        return place, row.acquired is None, row.acquired or "", row.image_id

    studies = cohort_rows.group_rows(rows, "study_id").values()
    return {row.image_id: rank for images in studies for rank, row in enumerate(sorted(images, key=order))}


def list_rows(options: CohortSettings, pool: ThreadPoolExecutor, *, check_files: bool = True) -> list[Row]:
    """Return a row for each image in the user's tables or folders. With ``check_files``, exclude missing images."""
    if options.source == "mimic":
        rows = read_mimic(options.root, options.tables, pool, check_files=check_files)
    elif options.source == "openi":
        rows = read_openi(options.root, options.tables, pool)
    else:
        rows = read_manifest(options.manifest, pool, check_files=check_files)
    cohort_rows.settle_ids(rows, options.shared_images)
    if options.exclude and (unused := cohort_rows.exclude_listed(rows, options.exclude)):
        log.warning("cohort.exclude: %s no image", count_phrase(unused, "of its ids names", "of its ids name"))
    if options.chexstruct:
        cohort_rows.exclude_failed(rows, options.chexstruct)
    return rows


def _collect(options: CohortSettings, pool: ThreadPoolExecutor) -> tuple[list[Row], list[tuple]]:
    """Return all rows, sorted by image_id, and the state (size, time, CRC-32) of each file read or missing."""
    states: list[tuple] = []
    if options.source == "openi":
        reports = [str(path) for path in reports_folder(options.root).glob("*.xml")]
        states += in_batches(pool, lambda path: state_row(os.path.basename(path), path), reports)
    rows = list_rows(options, pool)

    def inspect(row: Row) -> None:
        if row.needs_header:  # the state is taken before reading, so that the next run notices a later change
            states.append(state_row(row.image_id, row.path, HEADER_BYTES))
        complete_row(row, options)

    open_rows = [row for row in rows if row.reason is None]
    for _ in progress(in_batches(pool, inspect, open_rows), len(open_rows), "headers"):
        pass
    missing = {row.path: row.image_id for row in rows if row.reason == "missing_file" and row.path}
    missing |= {row.expected_report: row.study_id for row in rows if row.report_missing and row.expected_report}
    known_paths = {path for _, path, *_ in states}
    missing = {path: name for path, name in missing.items() if path not in known_paths}
    states += in_batches(pool, lambda path: state_row(missing[path], path), list(missing))
    return sorted(rows, key=lambda row: row.image_id), states


def usable_subjects(accepted: Iterable[Row]) -> set[str]:
    """Return the patients of accepted images with a report, or of all accepted images if none has a report."""
    with_report = {row.subject_id for row in accepted if row.report_path or row.findings or row.impression}
    return with_report or {row.subject_id for row in accepted}


def _table(rows: list[Row], declared: Columns, computed: dict[str, list]) -> pl.DataFrame:
    values = {name: computed[name] if name in computed else [getattr(row, name) for row in rows] for name in declared}
    return pl.DataFrame(values, schema=schema(declared))


def _write_images(path: str, rows: list[Row], shard: dict[str, str], splits: dict[str, str]) -> None:
    computed = {"split": [splits.get(row.subject_id) for row in rows]}
    computed |= {"shard": [shard.get(row.subject_id) for row in rows]}
    table, columns = _table(rows, IMAGES, computed), dict(IMAGES)
    for name in sorted({name for row in rows for name in row.extra}):
        column = f"manifest_{name}" if name in IMAGES else name  # rename a user's column whose name is taken
        table = table.with_columns(pl.Series(column, [row.extra.get(name) for row in rows], dtype=pl.String))
        columns[column] = Column(pl.String, "Column of the manifest.")
    write_table(path, table, columns)


def run(
    *,
    shards: list[str],
    images: str,
    excluded: str,
    options: CohortSettings,
    seed: int,
    attrs: dict,
    threads: int,
    files_read: str | None = None,
    **sources: object,
) -> None:
    """Write the accepted images of every shard, the table of all images, and the table of excluded images.

    ``shards``: output paths in the order of ``seeds.shard_names``; ``sources``: input files, which ``options`` names
    too; ``files_read``: output table with size, time and CRC-32 of the files that were read. Provenance (``attrs``) is
    not written, so that a shard without new studies keeps identical bytes. Raises UserError for wrong settings.
    """
    check_inputs(options)
    num_shards = options.shards or DEFAULT_SHARDS
    with ThreadPoolExecutor(WAITING * max(1, threads)) as pool:
        rows, states = _collect(options, pool)
    looked_for = [row for row in rows if row.reason not in ("bad_row", "listed", "failed_quality_table")]
    if len(looked_for) > 1 and all(row.reason == "missing_file" for row in looked_for):
        where = "the paths of cohort.manifest are relative to its folder"
        if options.source != "manifest":
            content = "files/p10/p10000032/…" if options.source == "mimic" else "them"
            where = f"cohort.root is the folder that holds {content}"
        raise UserError(f"none of the {len(looked_for)} images exists: {where}; correct them, or mount their disk")
    identified_rows = [row for row in rows if row.reason != "bad_row"]
    accepted = [row for row in rows if row.reason is None]
    table_splits = ((row.subject_id, row.split) for row in identified_rows)
    splits = subject_splits(table_splits, options.split_shares(), seed, usable_subjects(accepted))
    names = shard_names(num_shards)
    shard = {subject: names[shard_of(subject, num_shards)] for subject in splits}

    rank = rank_in_study(accepted, options.views)
    computed = {"split": [splits[row.subject_id] for row in accepted], "rank": [rank[row.image_id] for row in accepted]}
    table = _table(accepted, SHARD, computed)
    shard_of_row = pl.Series([shard[row.subject_id] for row in accepted], dtype=pl.String)
    for name, path in zip(names, [shards] if isinstance(shards, str) else shards, strict=True):
        write_table(path, table.filter(shard_of_row == name), SHARD)
    _write_images(images, rows, shard, splits)

    ledger = Ledger("cohort")
    for row in rows:
        if row.reason is None:
            ledger.accept(row.image_id)
        else:
            ledger.exclude(row.image_id, row.study_id, row.reason, row.detail)
    ledger.finish(excluded, (row.image_id for row in rows))
    if files_read:
        write_states(files_read, states)
    reasons = Counter(row.reason for row in rows if row.reason)
    log.info("%d images, %d accepted; excluded: %s", len(rows), len(accepted), dict(sorted(reasons.items())))
