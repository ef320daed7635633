"""The sources chexpert and chexpert_plus: labels and views of tables; of the latter texts too."""

from collections import Counter

import polars as pl

from cxr.annotations import chexpert, chexpert_plus
from cxr.annotations.label_tables import LABELS
from cxr.base.errors import UserError
from cxr.imaging.cohort.split import split_name
from cxr.radvlm.sources.facts import IMAGES, TEXTS, Held, count_labels, label_facts, visible
from cxr.radvlm.sources.options import ReadOptions

META = ("image_id", "study_id", "subject_id", "split", "view", "sex")


def read_chexpert(options: ReadOptions) -> Held:
    """Return the frontal images of the tables with their labels. Raises UserError for a folder without a table."""
    found = {split: chexpert.find(options.folder, name) for split, name in chexpert.TABLES.items()}
    unknown: Counter[str] = Counter()
    parts = [chexpert.read(options.key, path, split, unknown) for split, path in found.items() if path]
    if not parts:
        names = ", ".join(chexpert.TABLES.values())
        raise UserError(f"{options.key}: {options.folder} holds none of {names}: give the folder of CheXpert's tables")
    held, table = Held(), pl.concat(parts)
    held.tell_unknown(unknown)
    held.counts["table rows"] = held.rows[IMAGES] = table.height
    kept = _kept(held, table)
    held.images += [_image(row, options) for row in kept.iter_rows(named=True)]
    held.tables.append(label_facts(kept, LABELS, options.uncertain))
    held.kept[IMAGES] = held.tables[0]["image_id"].n_unique()
    return held


def read_chexpert_plus(options: ReadOptions) -> Held:
    """Return the frontal images with their texts and labels. Raises UserError for a missing table or column."""
    path = chexpert.find(options.folder, chexpert_plus.TABLE)
    if path is None:
        raise UserError(f"{options.key}: {options.folder} lacks {chexpert_plus.TABLE}: give CheXpert Plus's folder")
    table = chexpert_plus.read(options.key, path)
    held = Held()
    held.counts["table rows"] = held.rows[IMAGES] = table.height
    splits = {text: split_name(text) or None for text in table["split"].unique()}
    table = table.with_columns(pl.col("split").replace_strict(splits, return_dtype=pl.String))
    for row in table.filter(pl.col("split").is_null()).iter_rows(named=True):
        held.leave_out("no_split", row["image_id"], row["study_id"], of=IMAGES)
    kept = _kept(held, table.drop_nulls("split"))
    held.images += [_image(row, options) for row in kept.iter_rows(named=True)]
    file = options.folder / chexpert_plus.LABEL_FILE
    if file.is_file():
        every = chexpert_plus.read_labels(options.key, file)
        labels = every.unique("path", keep="first", maintain_order=True)
        joined = kept.join(labels.with_columns(known=pl.lit(True)), on="path", how="left")
        count_labels(held, every, "path", joined)
        for row in joined.filter(pl.col("known").is_null()).iter_rows(named=True):
            held.leave_out("no_labels", row["image_id"], row["study_id"])
        held.tables.append(label_facts(joined.drop_nulls("known"), LABELS, options.uncertain))
    for (study_id,), rows in kept.group_by("study_id", maintain_order=True):
        _add_text(held, options, study_id, rows)
    held.rows[TEXTS] = kept["study_id"].n_unique()
    held.kept.update({IMAGES: len(held.images), TEXTS: len(held.texts)})
    return held


def _add_text(held: Held, options: ReadOptions, study_id: str, rows: pl.DataFrame) -> None:
    told = next((row for row in rows.iter_rows(named=True) if row["findings"] or row["impression"]), None)
    if told is None:
        held.leave_out("empty_report", rows["image_id"][0], study_id, of=TEXTS)
        return
    section = "findings" if told["findings"] else "impression"
    if len(told[section]) > options.max_characters:
        held.leave_out("too_long", rows["image_id"][0], study_id, f"{len(told[section])} characters", of=TEXTS)
        return
    ids = {"source": options.name, "study_id": study_id, "subject_id": told["subject_id"], "split": told["split"]}
    text = in_sentence_case(visible(told[section]))
    held.texts.append(ids | {"image_ids": rows["image_id"].sort().to_list(), "section": section, "text": text})


def in_sentence_case(text: str) -> str:
    """Return a text that is mostly in capitals with only the first letter of its sentences in capitals."""
    letters = [letter for letter in text if letter.isalpha()]
    if sum(map(str.isupper, letters)) <= len(letters) / 2:
        return text
    found, start = [], True
    for letter in text.lower():
        found.append(letter.upper() if start and letter.isalpha() else letter)
        start = (start and not letter.isalpha()) or letter in ".!?\n"
    return "".join(found)


def _kept(held: Held, table: pl.DataFrame) -> pl.DataFrame:
    """Return the frontal rows, each image once; the others are left out with their reasons."""
    known = table.filter(pl.col("image_id").is_not_null())
    for _ in range(table.height - known.height):
        held.leave_out("bad_row", detail="the path is not patient, study and file", of=IMAGES)
    for row in known.filter(~pl.col("frontal")).select("image_id", "study_id").iter_rows():
        held.leave_out("not_frontal", *row, of=IMAGES)
    frontal = known.filter(pl.col("frontal"))
    once = frontal.unique("image_id", keep="first", maintain_order=True)
    again = frontal.select("image_id", "study_id").with_row_index().filter(~pl.col("image_id").is_first_distinct())
    for row in again.drop("index").iter_rows():
        held.leave_out("duplicate_image", *row, of=IMAGES)
    return once


def _image(row: dict, options: ReadOptions) -> dict:
    path = str(options.pictures / row["path"])
    return {name: row[name] for name in META} | {"rows": None, "columns": None, "path": path, "frames": options.name}
