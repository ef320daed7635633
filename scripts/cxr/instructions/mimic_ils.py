"""Writing the files of the published MIMIC-ILS: a JSON file {split: {study: entry}}, and an index of the masks."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, Columns, schema

JSON_NAME, MASK_FOLDER = "mimic_ils_instruction_answer.json", "lesion_mask"


def write_studies(path: Path, splits: Mapping[str, Iterable[tuple[str, dict]]]) -> None:
    """Write {split: {study: entry}} as JSON, a line per study. ``splits`` has (study, entry) pairs for each split."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("{")
        for number, (split, studies) in enumerate(splits.items()):
            file.write(f"{',' * (number > 0)}\n{json.dumps(split)}: {{")
            for position, (study, entry) in enumerate(studies):
                text = json.dumps(entry, ensure_ascii=False)
                file.write(f"{',' * (position > 0)}\n{json.dumps(study)}: {text}")
            file.write("\n}")
        file.write("\n}\n")


INDEX: Columns = {
    "mask_id": Column(pl.String, "Mask."),
    "shard": Column(pl.String, "Shard whose HDF5 file holds the mask."),
    "row": Column(pl.Int64, "Row of the mask in the shard, from 0."),
}


def make_index_table(rows: Iterable[tuple[str, str, int]]) -> pl.DataFrame:
    """Return the rows (mask_id, shard, row) as a table, sorted by mask id."""
    return pl.DataFrame(list(rows), schema=schema(INDEX), orient="row").sort("mask_id")
