"""Joins the samples of a mix's sources: removes patients in two splits, and orders the lines.

It also writes the test lines with another patient's image (exchanged), and a table of counts like the paper's Table 1.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.columns import Column, Columns, schema
from cxr.base.conservation import CountRow, counted_rows
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_lines, write_table
from cxr.base.vocabulary import SPLITS
from cxr.radvlm.instructions.mix import TEST, TRAIN, MixRow, rows_from_options
from cxr.radvlm.instructions.source_block import LineFiles
from cxr.radvlm.instructions.write_part import INDEX, OUTCOMES, STAGE
from cxr.radvlm.samples import TASKS

VALIDATE, EXCHANGED = "validate", "exchanged"
T = TypeVar("T")
TABLE1: Columns = {
    "task": Column(pl.String, "Task; total: all tasks."),
    "source": Column(pl.String, "Source; the format, if no source of this format is configured."),
    "facts": Column(pl.Int64, "Number of facts on which the train lines are based."),
    "pairs": Column(pl.Int64, "Number of pairs of question and answer in train, without repeats."),
    "passes": Column(pl.Int64, "Number of passes over the pairs, each in new wordings; null for the total."),
    "lines": Column(pl.Int64, "Number of train lines."),
    "validate": Column(pl.Int64, "Number of validate lines."),
    "evaluation": Column(pl.Int64, "Number of test lines."),
    "paper": Column(pl.Int64, "Number of train lines in the paper's mix: pairs times passes; null if it has none."),
    "code": Column(pl.Int64, "Number of train lines in the mix of the authors' code; null if it has none."),
    "difference": Column(pl.Int64, "Lines minus those of the paper; null if the paper has none."),
    "note": Column(pl.String, "`not configured`: no source of this format is in use."),
}


def read_indices(paths: Sequence[str]) -> pl.DataFrame:
    """Return the rows of all INDEX tables, with the number of the table (``part``) and of the row in it (``row``)."""
    tables = [read_table(path) for path in paths] or [pl.DataFrame(schema=schema(INDEX))]
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    return pl.concat(table.with_columns(part=pl.lit(at, pl.Int64), row=row) for at, table in enumerate(tables))


def drop_conflicts(index: pl.DataFrame, families: Mapping[str, str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return (remaining rows, removed rows) of the index. Some sources train on images of their validate split.
    Subjects of these images lose their validate lines in all sources of a family (``families``: {source: family})."""
    index = index.with_columns(family=pl.col("source").replace_strict(families, default=pl.col("source")))
    trained = index.filter(pl.col("source_split") != TRAIN, split=TRAIN)
    training_subjects = trained.select("family", "subject_id").unique()
    conflicts = index.filter(split=VALIDATE).join(training_subjects, on=["family", "subject_id"], how="semi")
    return index.join(conflicts, on=["part", "row"], how="anti").drop("family"), conflicts.drop("family")


def sort_split(index: pl.DataFrame, split: str, seed: int) -> pl.DataFrame:
    """Return the index rows of a split in their final order: train by a hash, other splits by image."""
    split_index = index.filter(split=split)
    if split == TRAIN:
        place = pl.Series([stable_hash(seed, "order", name) for name in split_index["sample_id"]], dtype=pl.UInt64)
        return split_index.with_columns(place=place).sort("place", "sample_id").drop("place")
    task = pl.col("task").replace_strict(list(TASKS), range(len(TASKS)), return_dtype=pl.Int64)
    return split_index.sort("source", "image_id", task, "unit", "pass", "sample_id")


def run(
    *, lines: Sequence[str], indices: Sequence[str], excluded: Sequence[str], train: str, validate: str, test: str,
    exchanged_out: str, table1_out: str, conservation_out: str, rows: list[Mapping], families: Mapping[str, str],
    seed: int,
) -> None:  # fmt: skip
    """Join the files of all sources into the files of a mix. ``families``: {source: group with common subjects}."""
    written: Counter[str] = Counter()
    index, removed_index = drop_conflicts(read_indices(indices), families)
    paths = {TRAIN: train, VALIDATE: validate, TEST: test}
    with LineFiles(lines) as source_lines:

        def read_rows(places: pl.DataFrame) -> Iterator[bytes]:
            return (source_lines.get(part, row) for part, row in places.select("part", "row").iter_rows())

        for split in SPLITS:
            with atomic_file(paths[split]) as temporary, open(temporary, "wb") as file:
                file.writelines(_count_while_reading(read_rows(sort_split(index, split, seed)), written, split))
        test_index = sort_split(index, TEST, seed)
        partner_by_image = pair_images(test_index.iter_rows(named=True), seed)

        def exchanged_lines() -> Iterator[dict]:
            for line in map(json.loads, read_rows(test_index)):
                partner_id = partner_by_image.get((line["source"], line["image_id"]))
                if partner_id is not None:  # right_image_id: the image of the expected answers
                    yield line | {"image_id": partner_id, "right_image_id": line["image_id"]}

        write_lines(exchanged_out, _count_while_reading(exchanged_lines(), written, EXCHANGED))
    table = build_table1(rows_from_options(rows), index)
    num_unpaired = sum(pair not in partner_by_image for pair in test_index.select("source", "image_id").iter_rows())
    count_rows = count_lines(source_lines.num_lines, removed_index.height, table, written, num_unpaired)
    write_table(table1_out, table, TABLE1)
    count_table = pl.DataFrame([("", *row) for row in count_rows], schema=schema(OUTCOMES), orient="row")
    write_table(conservation_out, pl.concat([*map(read_table, excluded), count_table]), OUTCOMES)


def count_lines(
    number: int, num_removed: int, table: pl.DataFrame, written: Mapping[str, int], num_unpaired: int
) -> list[CountRow]:
    """Return the rows that prove that no line was lost. ``number``: lines of all sources; ``table``: Table 1;
    ``written``: {file: lines}; ``num_unpaired``: test lines without another image. Raises AssertionError if one was."""
    total = table.filter(task="total").row(0, named=True)
    of_files = {split: written[split] for split in SPLITS}
    return [
        *counted_rows(STAGE, "lines", number, {"file": sum(of_files.values()), "split_conflict": num_removed}),
        *counted_rows(STAGE, "table1", sum(total[name] for name in ("lines", "validate", "evaluation")), of_files),
        *counted_rows(STAGE, EXCHANGED, written[TEST], {"file": written[EXCHANGED], "no_other": num_unpaired}),
    ]


def _count_while_reading(lines: Iterable[T], written: Counter[str], name: str) -> Iterator[T]:
    for line in lines:
        written[name] += 1
        yield line


def pair_images(images: Iterable[Mapping], seed: int) -> dict[tuple[str, str], str]:
    """Return {(source, image id): id of another patient's image}. Both images have the same source and view."""
    groups: dict[tuple, dict[str, set[str]]] = {}
    for row in images:
        patients = groups.setdefault((row["source"], row["view"]), {})
        patients.setdefault(row["subject_id"], set()).add(row["image_id"])
    partner_by_image = {}
    for (source, view), patients in groups.items():
        order = sorted(patients, key=lambda name: stable_hash(seed, "exchanged", source, view, name))
        if len(order) < 2:
            continue
        for at, name in enumerate(order):
            partner_ids = sorted(patients[order[(at + 1) % len(order)]])
            for place, image_id in enumerate(sorted(patients[name])):
                partner_by_image[source, image_id] = partner_ids[place % len(partner_ids)]
    return partner_by_image


SUMMED = ("facts", "pairs", "lines", "validate", "evaluation", "paper", "code")  # columns that the total row sums


def build_table1(rows: Sequence[MixRow], index: pl.DataFrame) -> pl.DataFrame:
    """Return Table 1: the mix by task and source, beside the published counts. ``index``: index of all lines."""
    records = []
    for row in rows:
        source_index = index.filter(task=row.task, source=row.source)
        train = source_index.filter(split=TRAIN)
        paper, code = (published and published[0] * published[1] for published in (row.paper, row.code))
        records.append({
            "task": row.task, "source": row.source, "facts": int(train["facts"].sum()),
            "pairs": train["unit"].n_unique(), "passes": row.repeat, "lines": train.height,
            "validate": source_index.filter(split=VALIDATE).height,
            "evaluation": source_index.filter(split=TEST).height,
            "paper": paper, "code": code, "note": "" if row.used else "not configured",
        })  # fmt: skip
    numbers = {name: [row[name] for row in records if row[name] is not None] for name in SUMMED}
    total = {name: sum(values) if values or name not in ("paper", "code") else None for name, values in numbers.items()}
    records.append({"task": "total", "source": "", "note": ""} | total)
    return pl.DataFrame(records, schema=schema(TABLE1)).with_columns(difference=pl.col("lines") - pl.col("paper"))
