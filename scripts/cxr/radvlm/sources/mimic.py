"""The source mimic: MIMIC-CXR's frontal images with texts, labels and the official split."""

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cxr.annotations.label_tables import LABELS, count_unknown_cells, decode_labels, normalise_id, read_columns
from cxr.base.errors import UserError
from cxr.imaging.cohort.mimic import read_mimic as read_tree
from cxr.imaging.cohort.rows import Row
from cxr.language.reports import reading
from cxr.radvlm.sources.facts import IMAGES, TEXTS, ReadOptions, SourceRecords, count_labels, label_table_facts

LABEL_TABLE = "*-chexpert.csv"
ID_COLUMNS = ("dicom_id",)
"""Id column of Chest ImaGenome's image lists."""
FRONTAL = ("PA", "AP")
NUM_THREADS = 16
"""Threads that read files."""


@dataclass(frozen=True)
class _SectionOptions:
    max_characters: int
    section_overrides: bool
    sections: str = "mimic"
    scrub: bool = False  # MIMIC-CXR's publishers have removed identifiers


def read_mimic(options: ReadOptions) -> SourceRecords:
    """Read every frontal image; frames.per_study and cohort.exclude do not apply.

    Raises UserError for a missing table or column.
    """
    records = SourceRecords()
    labels = _read_labels(options, records)
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        rows = _read_rows(options, pool)
        records.counts["table rows"] = records.num_rows[IMAGES] = len(rows)
        frontal_rows = [row for row in rows if _is_used(row, records)]
        studies: dict[str, list[Row]] = {}
        for row in frontal_rows:
            studies.setdefault(row.study_id, []).append(row)
            records.images.append(_image_row(row, options.name))
        section_options = _SectionOptions(options.max_characters, options.section_overrides)
        texts = pool.map(
            lambda study_rows: reading.read_section(
                {name: getattr(study_rows[0], name) for name in ("study_id", "report_path", "report_missing")},
                section_options,
            ),
            studies.values(),
        )
        for (study_id, study_rows), section in zip(studies.items(), texts, strict=True):
            _add_text(records, options.name, study_id, study_rows, section)
    records.num_rows[TEXTS] = len(studies)
    records.num_kept.update({IMAGES: len(records.images), TEXTS: len(records.texts)})
    table = pl.DataFrame(
        [(row.image_id, row.study_id) for row in frontal_rows],
        schema={"image_id": pl.String, "study_id": pl.String}, orient="row",
    )  # fmt: skip
    all_labels, labels = labels, labels.unique("study_id", keep="first", maintain_order=True)
    joined = table.join(labels.with_columns(known=pl.lit(True)), on="study_id", how="left", maintain_order="left")
    count_labels(records, all_labels, "study_id", joined)
    for image_id, study_id in joined.filter(pl.col("known").is_null()).select("image_id", "study_id").iter_rows():
        records.exclude("no_labels", image_id, study_id)
    records.tables.append(label_table_facts(joined.drop_nulls("known"), LABELS, options.uncertain))
    return records


def _read_rows(options: ReadOptions, pool: Executor) -> list[Row]:
    """Return the rows of the file tree; errors name the source's settings keys instead of the cohort's."""
    try:
        return read_tree(str(options.pictures), str(options.folder), pool)
    except UserError as error:
        pictures = f"{options.key.removesuffix('path')}pictures"
        message = str(error).replace("cohort.tables", options.key).replace("cohort.root", pictures)
        raise UserError(message) from None


def _read_labels(options: ReadOptions, records: SourceRecords) -> pl.DataFrame:
    """Return study_id and labels, one row per table row. Raises UserError if the table is missing."""
    table_paths = sorted({*options.folder.glob(LABEL_TABLE), *options.folder.glob(f"{LABEL_TABLE}.gz")})
    if not table_paths:
        raise UserError(
            f"{options.key}: {options.folder} lacks the table of labels {LABEL_TABLE} (MIMIC-CXR-JPG): put it there"
        )
    table = read_columns(options.key, table_paths[0], "MIMIC-CXR-JPG", ("study_id", *LABELS), ids=("study_id",))
    records.count_unknown_cells(count_unknown_cells(table))
    identified_rows = table.with_columns(normalise_id("study_id").str.strip_prefix("s"))
    return decode_labels(identified_rows)


def _is_used(row: Row, records: SourceRecords) -> bool:
    """True if a row is used; otherwise exclude it with a reason."""
    reason = row.reason or ("" if row.view in FRONTAL else "not_frontal" if row.view else "unknown_view")
    reason = reason or ("" if row.split else "no_split")
    if reason:
        records.exclude(reason, row.image_id, row.study_id, row.detail, record_kind=IMAGES)
    return not reason


def _image_row(row: Row, name: str) -> dict:
    rows, columns = row.size or (None, None)
    return {
        "image_id": row.image_id, "study_id": row.study_id, "subject_id": row.subject_id, "split": row.split,
        "view": row.view, "sex": None, "rows": rows, "columns": columns, "path": row.path, "frames": name,
    }  # fmt: skip


def _add_text(records: SourceRecords, name: str, study_id: str, rows: list[Row], section) -> None:
    images = sorted(row.image_id for row in rows)
    if not isinstance(section, reading.Section):
        records.exclude(section[0], images[0], study_id, section[1], record_kind=TEXTS)
        return
    fields = {"source": name, "study_id": study_id, "subject_id": rows[0].subject_id, "split": rows[0].split}
    records.texts.append(fields | {"image_ids": images, "section": section.name, "text": section.text})


def read_published_splits(folder: Path, key: str) -> dict[str, str]:
    """Return {image: split} of Chest ImaGenome's split files. Raises UserError for a missing file or column."""
    split_by_image = {}
    for split, name in (("train", "train"), ("validate", "valid"), ("test", "test")):
        path = folder / "silver_dataset" / "splits" / f"{name}.csv"
        if not path.is_file():
            raise UserError(f"{key}: {folder} lacks silver_dataset/splits/{name}.csv, which split: published needs")
        split_by_image |= dict.fromkeys(
            read_columns(key, path, "Chest ImaGenome", ID_COLUMNS, ids=ID_COLUMNS)["dicom_id"], split
        )
    return split_by_image
