"""Join the sources of a mix: splits without a subject in two of them, order, exchanged pictures, Table 1."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from cxr.base.atomic import atomic
from cxr.base.columns import schema
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_lines, write_table
from cxr.base.vocabulary import SPLITS
from cxr.radvlm.instructions.columns import INDEX, LEFT, TABLE1
from cxr.radvlm.instructions.exchange import exchanged
from cxr.radvlm.instructions.lines import Lines
from cxr.radvlm.instructions.mix import TEST, TRAIN, as_rows
from cxr.radvlm.instructions.table1 import table1
from cxr.radvlm.samples import TASKS
from cxr.radvlm.splits import families

SHUFFLED = "shuffled"
VALIDATE = "validate"


@dataclass(frozen=True)
class JoinOptions:
    """Settings of the stage for a mix. rows: all of it (builtins); formats: {source: its format}; order: shuffled or
    by_task, of train.
    """

    rows: list
    formats: dict
    order: str
    seed: int


def index_of(paths: Sequence[str]) -> pl.DataFrame:
    """Return the rows of all tables as INDEX declares them, with the number of the table, and the row in it."""
    empty = pl.DataFrame(schema=schema(INDEX))
    tables = [read_table(path) for path in paths]
    numbered = [
        table.with_columns(part=pl.lit(at, pl.Int64), row=pl.int_range(pl.len(), dtype=pl.Int64))
        for at, table in enumerate(tables or [empty])
    ]
    return pl.concat(numbered)


def without_conflicts(index: pl.DataFrame, formats: Mapping[str, str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the index without the lines of validate whose subject trains in another task, and those lines.

    That happens where a mix trains on a source's validation split. Subjects are compared within a family of sources.
    """
    family = families(formats)
    index = index.with_columns(family=pl.col("source").replace_strict(family, default=pl.col("source")))
    moved = (
        index.filter((pl.col("split") == TRAIN) & (pl.col("given") != TRAIN)).select("family", "subject_id").unique()
    )
    torn = index.filter(split=VALIDATE).join(moved, on=["family", "subject_id"], how="semi").select("part", "row")
    kept = index.join(torn, on=["part", "row"], how="anti").drop("family")
    gone = index.join(torn, on=["part", "row"], how="semi").drop("family")
    return kept, gone


def ordered(index: pl.DataFrame, split: str, options: JoinOptions) -> pl.DataFrame:
    """Return the lines of a split in their order: those of train drawn, or by task; else picture by picture."""
    own = index.filter(split=split)
    if split == TRAIN and options.order == SHUFFLED:
        drawn = [stable_hash(options.seed, "order", name) for name in own["sample_id"]]
        return own.with_columns(place=pl.Series(drawn, dtype=pl.UInt64)).sort("place", "sample_id").drop("place")
    task = pl.col("task").replace_strict(list(TASKS), range(len(TASKS)), return_dtype=pl.Int64)
    first = [task, "source", "image_id"] if split == TRAIN else ["source", "image_id", task]
    return own.sort(*first, "unit", "pass", "sample_id")


def run(
    *, lines: Sequence[str], indices: Sequence[str], lefts: Sequence[str], train: str, validate: str, test: str,
    exchanged_out: str, table1_out: str, left_out: str, options: JoinOptions,
) -> None:  # fmt: skip
    """Write the files of a mix. ``lines``, ``indices``, ``lefts``: of its sources, in one order."""
    index, gone = without_conflicts(index_of(indices), options.formats)
    paths = {TRAIN: train, VALIDATE: validate, TEST: test}
    with Lines(lines) as held:

        def told(rows: pl.DataFrame) -> Iterator[bytes]:
            return (held.get(part, row) for part, row in rows.select("part", "row").iter_rows())

        for split in SPLITS:
            with atomic(paths[split]) as temporary, open(temporary, "wb") as file:
                file.writelines(told(ordered(index, split, options)))
        asked = ordered(index, TEST, options)
        others = exchanged(asked.iter_rows(named=True), options.seed)
        write_lines(exchanged_out, _exchanged(map(json.loads, told(asked)), others))
    write_table(table1_out, table1(as_rows(options.rows), index), TABLE1)
    write_table(left_out, _left(lefts, index, gone, others), LEFT)


def _exchanged(lines: Iterator[dict], others: Mapping[tuple[str, str], str]) -> Iterator[dict]:
    """Yield the lines with the picture of another patient; ``right_image_id`` is that of the right answers."""
    for line in lines:
        other = others.get((line["source"], line["image_id"]))
        if other is not None:
            yield line | {"image_id": other, "right_image_id": line["image_id"]}


def _left(lefts: Sequence[str], index: pl.DataFrame, gone: pl.DataFrame, others: Mapping) -> pl.DataFrame:
    tables = [read_table(path) for path in lefts]
    asked = index.filter(split=TEST).select("source", "image_id").iter_rows()
    alone = sum(pair not in others for pair in asked)
    rows = [
        ("", "lines", "all", index.height + gone.height), ("", "lines", "file", index.height),
        ("", "lines", "split_conflict", gone.height),
        ("", "exchanged", "all", index.filter(split=TEST).height), ("", "exchanged", "no_other", alone),
        ("", "exchanged", "file", index.filter(split=TEST).height - alone),
    ]  # fmt: skip
    return pl.concat([*tables, pl.DataFrame(rows, schema=schema(LEFT), orient="row")])
