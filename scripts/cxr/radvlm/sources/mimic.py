"""Reader of the format ``mimic``: frontal images of MIMIC-CXR with texts, labels and the official split."""

from concurrent.futures import Executor, ThreadPoolExecutor
from types import SimpleNamespace

import polars as pl

from cxr.annotations.label_tables import LABELS, count_unknown_cells, decode_labels, normalise_id, read_columns
from cxr.base.errors import UserError
from cxr.imaging.cohort.mimic import read_mimic as read_tree
from cxr.imaging.cohort.rows import Row
from cxr.language.reports import reading
from cxr.radvlm.sources.facts import IMAGES, TEXTS, ReadOptions, SourceRecords, text_line

LABEL_TABLE = "*-chexpert.csv"
FRONTAL = ("PA", "AP")
NUM_THREADS = 16  # threads that read files


def read_mimic(options: ReadOptions) -> SourceRecords:
    """Return all frontal images with texts and labels. Settings that select images for the cohort do not apply. Raises
    UserError for a missing table or column."""
    records = SourceRecords()
    labels = _read_labels(options, records)
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        rows = _read_rows(options, pool)
        records.counts["table rows"] = records.num_rows[IMAGES] = len(rows)
        studies: dict[str, list[Row]] = {}
        for row in rows:
            reason = row.reason or ("" if row.view in FRONTAL else "not_frontal" if row.view else "unknown_view")
            if reason := reason or ("" if row.split else "no_split"):
                records.exclude(reason, row.image_id, row.study_id, row.detail, record_kind=IMAGES)
            else:
                studies.setdefault(row.study_id, []).append(row)
                records.images.append(_image_row(row, options.name))
        # MIMIC-CXR's publishers have removed identifiers
        limits = {"max_characters": options.max_characters, "section_overrides": options.section_overrides}
        section_options = SimpleNamespace(sections="mimic", scrub=False, **limits)
        fields = ("study_id", "report_path", "report_missing")
        reports = ({name: getattr(study_rows[0], name) for name in fields} for study_rows in studies.values())
        sections = pool.map(lambda report: reading.read_section(report, section_options), reports)
        for (study_id, study_rows), section in zip(studies.items(), sections, strict=True):
            image_ids = sorted(row.image_id for row in study_rows)
            if isinstance(section, reading.Section):
                row = _image_row(study_rows[0], options.name)
                records.texts.append(text_line(options.name, row, image_ids, section.name, section.text))
            else:
                records.exclude(section[0], image_ids[0], study_id, section[1], record_kind=TEXTS)
    records.num_rows[TEXTS] = len(studies)
    if studies and all(study_rows[0].report_missing for study_rows in studies.values()):
        raise UserError(
            f"{options.key.removesuffix('path')}reports: none of the {len(studies)} studies has a report below "
            f"{options.reports}/files/: give the folder that contains files/p10/p10000032/s50414267.txt"
        )
    id_columns = {name: [row[name] for row in records.images] for name in ("image_id", "study_id")}
    images = pl.DataFrame(id_columns, schema=dict.fromkeys(id_columns, pl.String))
    records.add_label_table(images, labels, "study_id", options)
    return records


def _read_rows(options: ReadOptions, pool: Executor) -> list[Row]:
    """Return a row per image in the folder. Error messages name the settings of the source, not the cohort's."""
    try:
        return read_tree(str(options.pictures), str(options.folder), pool, reports=str(options.reports))
    except UserError as error:
        pictures = f"{options.key.removesuffix('path')}pictures"
        message = str(error).replace("cohort.tables", options.key).replace("cohort.root", pictures)
        raise UserError(message) from None


def _read_labels(options: ReadOptions, records: SourceRecords) -> pl.DataFrame:
    table_paths = sorted({*options.folder.glob(LABEL_TABLE), *options.folder.glob(f"{LABEL_TABLE}.gz")})
    if not table_paths:
        raise UserError(
            f"{options.key}: {options.folder} lacks the table of labels {LABEL_TABLE} (MIMIC-CXR-JPG): put it there"
        )
    table = read_columns(options.key, table_paths[0], "MIMIC-CXR-JPG", ("study_id", *LABELS), ids=("study_id",))
    records.count_unknown_cells(count_unknown_cells(table))
    return decode_labels(table.with_columns(normalise_id("study_id").str.strip_prefix("s")))


def _image_row(row: Row, name: str) -> dict:
    rows, columns = row.size or (None, None)
    fields = {name: getattr(row, name) for name in ("image_id", "study_id", "subject_id", "split", "view", "path")}
    return fields | {"sex": None, "rows": rows, "columns": columns, "frames": name}
