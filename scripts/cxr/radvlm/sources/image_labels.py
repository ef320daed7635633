"""VinDr-CXR's labels of whole images: what each reader says (train), or the consensus (test).

They are facts with a reader, like the boxes that were fused, so no task asks them: global diagnoses have no box.
"""

from collections import Counter
from pathlib import Path

import polars as pl

from cxr.annotations.reading import image_name
from cxr.annotations.vindr import LABELS as KNOWN
from cxr.annotations.vindr import read_labels
from cxr.base.jobs import log
from cxr.dicom.files import shown
from cxr.radvlm.labels import ABSENT, PRESENT
from cxr.radvlm.sources.columns import FACTS_SCHEMA
from cxr.radvlm.sources.facts import BARE, LABEL, LABELS, Held

FILES = {"train": ("annotations/image_labels_train.csv", "image_labels_train.csv"),
         "test": ("annotations/image_labels_test.csv", "image_labels_test.csv")}  # fmt: skip
"""{split: where its table may lie}."""
CONSENSUS = "consensus"
"""The reader of a table that names none."""
CELLS = {"1": PRESENT, "1.0": PRESENT, "0": ABSENT, "0.0": ABSENT}


def add_image_labels(records: Held, key: str, split: str, path: Path) -> None:
    """Add a fact for each label of each row of a table, of the images of its split that are held.

    Rows of other images, and a second row of a reader on an image, are left out. ``key``: of the settings. Raises
    UserError for another table.
    """
    table = read_labels(key, path)
    labels = [name for name in table.columns if name not in ("image_id", "rad_id")]
    names = table["image_id"].map_elements(lambda name: image_name("{stem}", name), pl.String)
    reader = pl.when(pl.col("rad_id") == "").then(pl.lit(CONSENSUS)).otherwise(pl.col("rad_id"))
    table = table.with_columns(image_id=names, reader=reader).drop("rad_id")
    image_ids = [image["image_id"] for image in records.images if image["split"] == split]
    is_first = pl.struct("image_id", "reader").is_first_distinct()
    has_image = pl.col("image_id").is_in(image_ids)
    records.counts["rows of image labels"] += table.height
    records.rows[LABELS] += table.height
    for reason, rows in (("no_image", table.filter(~has_image)), ("bad_row", table.filter(has_image & ~is_first))):
        for image_id in rows["image_id"]:
            records.leave_out(reason, image_id or None, detail=f"{path.name}: {told(reason)}", record_kind=LABELS)
    _tell_unknown(records, labels, table)
    used = table.filter(has_image & is_first)
    records.kept[LABELS] += used.height
    records.tables.append(_facts(used, labels))


def told(reason: str) -> str:
    """Return what a reason means of a row of labels."""
    return "its reader has another row of it" if reason == "bad_row" else "no picture of it was read in this split"


def _tell_unknown(records: Held, labels: list[str], table: pl.DataFrame) -> None:
    unknown = Counter({name: table.height for name in labels if name not in KNOWN})
    for name, number in sorted(unknown.items()):
        records.counts[f"unknown_label: {shown(name)}"] += number
    if unknown:
        log.warning("%d labels are none of VinDr-CXR's, they are kept: see counts.tsv", len(unknown))
    cells = table.select((~pl.col(name).is_in([*CELLS, ""])).sum() for name in labels).row(0, named=True)
    records.tell_unknown({name: number for name, number in cells.items() if number})


def _facts(table: pl.DataFrame, labels: list[str]) -> pl.DataFrame:
    values = pl.col(labels).replace_strict(CELLS, default=None, return_dtype=pl.String)
    facts = table.with_columns(values).unpivot(
        labels, index=["image_id", "reader"], variable_name="name", value_name="stated"
    )
    bare = [pl.lit(None, FACTS_SCHEMA[name]).alias(name) for name in BARE if name not in ("value", "stated", "reader")]
    facts = facts.drop_nulls("stated").with_columns(pl.lit(LABEL).alias("kind"), *bare, value=pl.col("stated"))
    return facts.select(name for name in FACTS_SCHEMA if name != "fact_id")
