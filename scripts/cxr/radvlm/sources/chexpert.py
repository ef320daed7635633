"""Readers of the formats ``chexpert`` (labels and views) and ``chexpert_plus`` (labels, views and texts)."""

import re
from collections import Counter

import polars as pl

from cxr.annotations import chexpert, chexpert_plus
from cxr.annotations.label_tables import LABELS
from cxr.base.errors import UserError
from cxr.base.resources import load_resource
from cxr.imaging.cohort.split import split_name
from cxr.radvlm.sources.facts import (
    IMAGES,
    NUM_CHECKED,
    ReadOptions,
    SourceRecords,
    find_ending,
    label_table_facts,
)

RESOURCE_FILES = ("radvlm/acronyms.yaml",)
_WORD = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)*\d{0,2}(?![a-z])")


def read_chexpert(options: ReadOptions) -> SourceRecords:
    """Return the frontal images with their labels. Raises UserError if the folder has no table."""
    path_by_split = {split: chexpert.find_table(options.folder, name) for split, name in chexpert.TABLES.items()}
    unknown: Counter[str] = Counter()
    parts = [chexpert.read_table(options.key, path, split, unknown) for split, path in path_by_split.items() if path]
    if not parts:
        names = ", ".join(chexpert.TABLES.values())
        raise UserError(f"{options.key}: {options.folder} has none of {names}: give the folder of CheXpert's tables")
    records, table = SourceRecords(), pl.concat(parts)
    records.count_unknown_cells(unknown)
    records.counts["table rows"] = records.num_rows[IMAGES] = table.height
    frontal_rows = _add_frontal_images(records, table, options)
    records.tables.append(label_table_facts(frontal_rows, LABELS, options.uncertain))
    return records


def read_chexpert_plus(options: ReadOptions) -> SourceRecords:
    """Return the frontal images with their texts and labels. Raises UserError for a missing table or column."""
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
    frontal_rows = _add_frontal_images(records, table.drop_nulls("split"), options)
    file = options.folder / chexpert_plus.LABEL_FILE
    if file.is_file():
        records.add_label_table(frontal_rows, chexpert_plus.read_labels(options.key, file), "path", options)
    for _, rows in frontal_rows.group_by("study_id", maintain_order=True):
        study_rows = rows.to_dicts()
        row = next((row for row in study_rows if row["findings"] or row["impression"]), study_rows[0])
        section = "findings" if row["findings"] else "impression"
        text = to_sentence_case(row[section] or "")
        records.add_text(options, row, [study_row["image_id"] for study_row in study_rows], section, text)
    return records


def to_sentence_case(text: str) -> str:
    """Return a text in sentence case if most of its letters are capitals. Acronyms keep their capitals."""
    letters = [letter for letter in text if letter.isalpha()]
    if sum(map(str.isupper, letters)) <= len(letters) / 2:
        return text
    cased_letters, start = [], True
    for letter in text.lower():
        cased_letters.append(letter.upper() if start and letter.isalpha() else letter)
        start = (start and not letter.isalpha()) or letter in ".!?\n"
    spellings = {word.lower(): word for word in load_resource(RESOURCE_FILES[0])}
    return _WORD.sub(lambda word: spellings.get(word[0].lower(), word[0]), "".join(cased_letters))


def _add_frontal_images(records: SourceRecords, table: pl.DataFrame, options: ReadOptions) -> pl.DataFrame:
    """Add the frontal images and return their table rows, one per image. Exclude all other rows with a reason."""
    identified_rows = table.filter(pl.col("image_id").is_not_null())
    num_unidentified, detail = table.height - identified_rows.height, "the path is not <patient>/<study>/<file>"
    records.exclude("bad_row", detail=detail, record_kind=IMAGES, rows=num_unidentified)
    is_repeated = pl.col("frontal") & ~pl.struct("image_id", "frontal").is_first_distinct()
    for reason, condition in (("not_frontal", ~pl.col("frontal")), ("duplicate_image", is_repeated)):
        for row in identified_rows.filter(condition).select("image_id", "study_id").iter_rows():
            records.exclude(reason, *row, record_kind=IMAGES)
    frontal_rows = identified_rows.filter("frontal").unique("image_id", keep="first", maintain_order=True)
    ending = find_ending(options, frontal_rows["path"].head(NUM_CHECKED).to_list())
    for row in frontal_rows.iter_rows(named=True):
        fields = {name: row[name] for name in ("image_id", "study_id", "subject_id", "split", "view", "sex")}
        path = options.pictures / row["path"]
        path = str(path.with_suffix(ending) if ending else path)
        records.images.append(fields | {"rows": None, "columns": None, "path": path, "frames": options.name})
    return frontal_rows
