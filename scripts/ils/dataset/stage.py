"""The dataset stage: pairs of one shard under one threshold set, and the join of all shards into three files.

Population of a shard: the rows of the masks stage's studies table. An image of which nothing can be said is excluded
as ``no_pairs``. Every pair that was not made, and why, is a row of ``dropped``.
"""

import heapq
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import polars as pl

from ils.core.labels import SPLITS
from ils.core.ledger import Ledger
from ils.core.store import atomic, read_lines, read_table, write_lines, write_table
from ils.dataset.evidence import evidence
from ils.dataset.negatives import negatives
from ils.dataset.pairs import POLARITIES, Pair, records
from ils.dataset.positives import positives

DROPPED_SCHEMA = {
    "study_id": pl.String,
    "image_id": pl.String,
    "polarity": pl.String,
    "type": pl.String,
    "target": pl.String,
    "reason": pl.String,
}


@dataclass(frozen=True)
class Options:
    """Settings of the stage (``dataset.*`` and ``seed``)."""

    seed: int
    ctr_negative_max: float
    global_share: dict[str, float]
    opacity_inference_share: float
    kinds: str
    one_answer: str


def run_shard(
    *,
    reports: str,
    units: str,
    studies: str,
    output: str,
    excluded: str,
    dropped: str,
    options: Options,
    attrs: dict | None = None,
    threads: int = 1,
) -> None:
    """Write the pairs of one shard as JSON Lines, sorted by study, with its ledger and its dropped pairs."""
    lines = {line["study_id"]: line for line in read_lines(reports)}
    units_of: dict[tuple[str, str], list[dict]] = {}
    for unit in read_table(units).sort("study_id", "image_id", "unit").iter_rows(named=True):
        units_of.setdefault((unit["study_id"], unit["image_id"]), []).append(unit)
    ledger = Ledger("dataset")
    drops: list[dict] = []
    rows = read_table(studies).sort("study_id", "image_id")

    def written() -> Iterator[dict]:
        for study_id, group in itertools.groupby(rows.iter_rows(named=True), key=lambda row: row["study_id"]):
            images = [(row, units_of.get((study_id, row["image_id"]), [])) for row in group]
            yield from _study(images, lines[study_id], options, ledger, drops)

    write_lines(output, written())
    ledger.finish(excluded, rows["image_id"])
    table = pl.DataFrame(drops, schema=DROPPED_SCHEMA)
    write_table(dropped, table.sort(table.columns))


def _study(
    images: list[tuple[dict, list[dict]]], line: dict, options: Options, ledger: Ledger, drops: list[dict]
) -> Iterator[dict]:
    """Yield the lines of one study. Of several images, the first that can carries the negative of a lesion type."""
    numbers: Counter = Counter()
    denied: set[str] = set()
    for row, units in images:
        made, missing = image_pairs(row, units, line, options, denied)
        denied |= {pair.target for pair in made if not pair.seg}
        drops += [{"study_id": row["study_id"], "image_id": row["image_id"]} | drop for drop in missing]
        if made:
            ledger.accept(row["image_id"])
        else:
            counts = Counter(drop["reason"] for drop in missing)
            detail = ", ".join(f"{reason} {number}" for reason, number in sorted(counts.items()))
            ledger.exclude(row["image_id"], row["study_id"], "no_pairs", detail)
        yield from records(row, line["section_name"], line["section_text"], made, numbers)


def image_pairs(
    study: dict, units: list[dict], line: dict, options: Options, denied: Iterable[str] = ()
) -> tuple[list[Pair], list[dict]]:
    """Return the pairs of one image, positives first, and a row for every pair that was not made.

    ``study`` is its row of the studies table, ``units`` its rows of the units table, ``line`` its report, ``denied``
    the lesion types another image of the study already denies.
    """
    made, drops = positives(units, one_answer=options.one_answer)
    missing = [{"polarity": POLARITIES[0]} | drop for drop in drops]
    taken = {pair.instruction for pair in made} if options.one_answer == "strict" else ()
    denials, reasons = negatives(
        evidence(study, line),
        seed=options.seed,
        global_share=options.global_share,
        opacity_inference_share=options.opacity_inference_share,
        kinds=options.kinds,
        ctr_negative_max=options.ctr_negative_max,
        taken=taken,
    )
    reasons |= {pair.target: "other_image" for pair in denials if pair.target in denied}
    made += [pair for pair in denials if pair.target not in denied]
    missing += [
        {"polarity": POLARITIES[1], "type": None, "target": lesion, "reason": reason}
        for lesion, reason in reasons.items()
    ]
    return made, missing


def merge(
    *,
    parts: list[str],
    excluded_parts: list[str],
    dropped_parts: list[str],
    train: str,
    validate: str,
    test: str,
    excluded: str,
    dropped: str,
) -> None:
    """Join the shards into one file per split, sorted by study: the same bytes for any number of shards."""
    outputs = dict(zip(SPLITS, (train, validate, test), strict=True))
    with ExitStack() as stack:
        files = {
            split: stack.enter_context(open(stack.enter_context(atomic(path)), "w", encoding="utf-8", newline="\n"))
            for split, path in outputs.items()
        }
        sources = [stack.enter_context(open(path, encoding="utf-8")) for path in parts]
        for _, split, text in heapq.merge(*map(_keyed, sources), key=lambda item: item[0]):
            files[split].write(text)
    for tables, output in ((excluded_parts, excluded), (dropped_parts, dropped)):
        joined = pl.concat([read_table(path) for path in tables])
        write_table(output, joined.sort(joined.columns))


def _keyed(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for text in lines:
        line = json.loads(text)
        yield line["study_id"], line["split"], text
