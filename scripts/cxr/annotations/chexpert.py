"""CheXpert (Stanford): ``train.csv``, ``valid.csv`` and ``test.csv``, one row per image, with the 14 labels."""

from collections import Counter
from pathlib import Path

import polars as pl

from cxr.annotations.label_tables import LABELS, count_unknown_cells, decode_labels, decode_sex, read_columns

TABLES = {"train": "train.csv", "validate": "valid.csv", "test": "test.csv"}  # {split: its table}
PREFIX = r"^(?:CheXpert-v1\.0(?:-small)?/)"  # leading folder of the release's paths
PLACE = r"(patient\d+)/(study\d+)/(view\d+_(frontal|lateral)[^/]*)$"
BESIDES = ("Sex", "AP/PA")


def find_table(folder: Path, name: str) -> Path | None:
    """Return the path of the file ``name`` in a folder, or else of ``name.gz``; None if neither exists."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def read_table(key: str, path: Path, split: str, unknown: Counter[str]) -> pl.DataFrame:
    """Return a table with the columns path, image_id, study_id, subject_id, split, view, sex, frontal and the labels.

    ``image_id`` is patient, study and file joined by "-". Ids are null if the path is not patient/study/view.
    ``frontal`` follows from the file's name. ``split`` is copied into each row. ``unknown`` receives {label: number of
    cells with an unknown value}. Raises UserError, which names the setting ``key``, for a missing column."""
    table = read_columns(key, path, "CheXpert", ("Path", *LABELS), BESIDES, ids=("Path",))
    unknown.update(count_unknown_cells(table))
    place = pl.col("Path").str.extract_groups(PLACE)
    part = [place.struct.field(str(number)) for number in (1, 2, 3, 4)]
    return decode_labels(table).select(
        path=pl.col("Path").str.replace(PREFIX, ""),
        image_id=pl.concat_str(part[0], part[1], part[2].str.replace(r"\.[A-Za-z]+$", ""), separator="-"),
        study_id=pl.concat_str(part[0], part[1], separator="-"),
        subject_id=part[0],
        split=pl.lit(split),
        view=pl.when(pl.col("AP/PA").is_in(["AP", "PA"])).then(pl.col("AP/PA")),
        sex=decode_sex("Sex"),
        frontal=part[3] == "frontal",
        **{name: pl.col(name) for name in LABELS},
    )
