"""The sources chexpert and chexpert_plus: labels and views; the latter has texts too."""

from collections import Counter

import polars as pl

from cxr.annotations import chexpert, chexpert_plus
from cxr.annotations.label_tables import LABELS
from cxr.base.errors import UserError
from cxr.imaging.cohort.split import split_name
from cxr.radvlm.sources.facts import (
    IMAGES,
    TEXTS,
    ReadOptions,
    SourceRecords,
    count_labels,
    label_table_facts,
    replace_control_characters,
)

COPIED_COLUMNS = ("image_id", "study_id", "subject_id", "split", "view", "sex")


def read_chexpert(options: ReadOptions) -> SourceRecords:
    """Read the frontal images with their labels. Raises UserError for a folder without a table."""
    path_by_split = {split: chexpert.find_table(options.folder, name) for split, name in chexpert.TABLES.items()}
    unknown: Counter[str] = Counter()
    parts = [chexpert.read_table(options.key, path, split, unknown) for split, path in path_by_split.items() if path]
    if not parts:
        names = ", ".join(chexpert.TABLES.values())
        raise UserError(f"{options.key}: {options.folder} holds none of {names}: give the folder of CheXpert's tables")
    records, table = SourceRecords(), pl.concat(parts)
    records.count_unknown_cells(unknown)
    records.counts["table rows"] = records.num_rows[IMAGES] = table.height
    frontal_rows = _frontal_rows(records, table)
    records.images += [_image_row(row, options) for row in frontal_rows.iter_rows(named=True)]
    records.tables.append(label_table_facts(frontal_rows, LABELS, options.uncertain))
    records.num_kept[IMAGES] = records.tables[0]["image_id"].n_unique()
    return records


def read_chexpert_plus(options: ReadOptions) -> SourceRecords:
    """Read the frontal images with their texts and labels. Raises UserError for a missing table or column."""
    path = chexpert.find_table(options.folder, chexpert_plus.TABLE)
    if path is None:
        raise UserError(f"{options.key}: {options.folder} lacks {chexpert_plus.TABLE}: give CheXpert Plus's folder")
    table = chexpert_plus.read_table(options.key, path)
    records = SourceRecords()
    records.counts["table rows"] = records.num_rows[IMAGES] = table.height
    splits = {text: split_name(text) or None for text in table["split"].unique()}
    table = table.with_columns(pl.col("split").replace_strict(splits, return_dtype=pl.String))
    for row in table.filter(pl.col("split").is_null()).iter_rows(named=True):
        records.exclude("no_split", row["image_id"], row["study_id"], record_kind=IMAGES)
    frontal_rows = _frontal_rows(records, table.drop_nulls("split"))
    records.images += [_image_row(row, options) for row in frontal_rows.iter_rows(named=True)]
    file = options.folder / chexpert_plus.LABEL_FILE
    if file.is_file():
        all_labels = chexpert_plus.read_labels(options.key, file)
        labels = all_labels.unique("path", keep="first", maintain_order=True)
        joined = frontal_rows.join(labels.with_columns(known=pl.lit(True)), on="path", how="left")
        count_labels(records, all_labels, "path", joined)
        for row in joined.filter(pl.col("known").is_null()).iter_rows(named=True):
            records.exclude("no_labels", row["image_id"], row["study_id"])
        records.tables.append(label_table_facts(joined.drop_nulls("known"), LABELS, options.uncertain))
    for (study_id,), rows in frontal_rows.group_by("study_id", maintain_order=True):
        _add_text(records, options, study_id, rows)
    records.num_rows[TEXTS] = frontal_rows["study_id"].n_unique()
    records.num_kept.update({IMAGES: len(records.images), TEXTS: len(records.texts)})
    return records


def _add_text(records: SourceRecords, options: ReadOptions, study_id: str, rows: pl.DataFrame) -> None:
    report = next((row for row in rows.iter_rows(named=True) if row["findings"] or row["impression"]), None)
    if report is None:
        records.exclude("empty_report", rows["image_id"][0], study_id, record_kind=TEXTS)
        return
    section = "findings" if report["findings"] else "impression"
    if len(report[section]) > options.max_characters:
        records.exclude(
            "too_long", rows["image_id"][0], study_id, f"{len(report[section])} characters", record_kind=TEXTS
        )
        return
    ids = {"source": options.name, "study_id": study_id, "subject_id": report["subject_id"], "split": report["split"]}
    text = to_sentence_case(replace_control_characters(report[section]))
    records.texts.append(ids | {"image_ids": rows["image_id"].sort().to_list(), "section": section, "text": text})


def to_sentence_case(text: str) -> str:
    """Return a text in sentence case if most of its letters are capitals, else unchanged."""
    letters = [letter for letter in text if letter.isalpha()]
    if sum(map(str.isupper, letters)) <= len(letters) / 2:
        return text
    cased_letters, start = [], True
    for letter in text.lower():
        cased_letters.append(letter.upper() if start and letter.isalpha() else letter)
        start = (start and not letter.isalpha()) or letter in ".!?\n"
    return "".join(cased_letters)


def _frontal_rows(records: SourceRecords, table: pl.DataFrame) -> pl.DataFrame:
    """Return the frontal rows, each image once; exclude the others with a reason."""
    identified_rows = table.filter(pl.col("image_id").is_not_null())
    num_unidentified, detail = table.height - identified_rows.height, "the path is not patient, study and file"
    records.exclude("bad_row", detail=detail, record_kind=IMAGES, rows=num_unidentified)
    for row in identified_rows.filter(~pl.col("frontal")).select("image_id", "study_id").iter_rows():
        records.exclude("not_frontal", *row, record_kind=IMAGES)
    frontal = identified_rows.filter(pl.col("frontal"))
    unique_rows = frontal.unique("image_id", keep="first", maintain_order=True)
    duplicates = frontal.select("image_id", "study_id").with_row_index().filter(~pl.col("image_id").is_first_distinct())
    for row in duplicates.drop("index").iter_rows():
        records.exclude("duplicate_image", *row, record_kind=IMAGES)
    return unique_rows


def _image_row(row: dict, options: ReadOptions) -> dict:
    path = str(options.pictures / row["path"])
    return {name: row[name] for name in COPIED_COLUMNS} | {
        "rows": None,
        "columns": None,
        "path": path,
        "frames": options.name,
    }
