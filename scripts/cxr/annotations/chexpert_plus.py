"""CheXpert Plus (Stanford): a table of images with sections of their reports, and label files in JSON Lines."""

import json
from pathlib import Path

import polars as pl

from cxr.annotations.label_tables import LABELS, VALUE_BY_CELL, decode_sex, read_columns
from cxr.annotations.tabular import refuse_damaged
from cxr.base.ids import clean_id

TABLE = "df_chexpert_plus_240401.csv"
LABEL_FILE = "chexbert_labels/report_fixed.json"
COLUMNS = ("path_to_image", "frontal_lateral", "deid_patient_id", "section_findings", "section_impression", "split")
BESIDES = ("ap_pa", "sex")
IDS = ("path_to_image", "deid_patient_id")
PLACE = r"(patient\d+)/(study\d+)/([^/]+?)(?:\.[A-Za-z]+)?$"


def read_table(key: str, path: Path) -> pl.DataFrame:
    """Return a table: path, image_id, study_id, subject_id, split, view, sex, frontal, findings and impression.
    Columns on race, ethnicity, language and insurance are not read. Raises UserError for a missing column."""
    table = read_columns(key, path, "CheXpert Plus", COLUMNS, BESIDES, ids=IDS, words=IDS[:1])
    place = pl.col("path_to_image").str.extract_groups(PLACE)
    part = [place.struct.field(str(number)) for number in (1, 2, 3)]
    return table.select(
        path="path_to_image",
        image_id=pl.concat_str(*part, separator="-"),
        study_id=pl.concat_str(part[0], part[1], separator="-"),
        subject_id=pl.when(pl.col("deid_patient_id") != "").then(pl.col("deid_patient_id")).otherwise(part[0]),
        split="split",
        view=pl.when(pl.col("ap_pa").is_in(["AP", "PA"])).then(pl.col("ap_pa")),
        sex=decode_sex("sex"),
        frontal=pl.col("frontal_lateral").str.to_lowercase() == "frontal",
        findings="section_findings",
        impression="section_impression",
    )


def read_labels(key: str, path: Path) -> pl.DataFrame:
    """Return the columns ``path`` and the 14 labels of a label file in JSON Lines. Raises UserError for other files."""
    rows, fault = [], f"{key}: {path} is not a label file of CheXpert Plus"
    with refuse_damaged(path, fault):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    for number, line in enumerate(lines, 1):
        with refuse_damaged(path, f"{fault}, line {number}"):
            record = json.loads(line)
            cells = {name: VALUE_BY_CELL.get(str(record.get(name)).strip()) for name in LABELS}
            rows.append({"path": clean_id(record["path_to_image"]), **cells})
    return pl.DataFrame(rows, schema={"path": pl.String} | dict.fromkeys(LABELS, pl.String))
