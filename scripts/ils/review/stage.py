"""The review stage: a page for each expert, and what follows from their filled sheets.

``units``: every unit of the split: ``unit`` (number), study_id, image_id, subject_id, target, location (list; empty for
a negative of the whole image), mask_id (null for a negative), pair_ids (list), asked (whether it was drawn).
``asked`` (items.parquet): what each expert was asked: expert, page (digest of the page), position, item (its code there), unit.
Both are the organiser's: they hold the ids that the pages withhold.
"""

import json
import logging
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ils.core.places import RESOURCES
from ils.core.run import UserError
from ils.core.store import Shard, atomic, read_lines, read_table, write_table
from ils.review import page, rates
from ils.review.sheets import Answer, Asked, read_sheets
from ils.review.units import Unit, deal, ordered, sample, units_of

RESOURCE_FILES = ("paper_tables.yaml",)
log = logging.getLogger("ils")

TEXTS = pl.List(pl.String)
UNITS = {"unit": pl.Int64} | dict.fromkeys(("subject_id", "study_id", "image_id", "target"), pl.String)
UNITS |= {"location": TEXTS, "mask_id": pl.String, "pair_ids": TEXTS, "asked": pl.Boolean}
ITEMS = {"expert": pl.String, "page": pl.String, "position": pl.Int64, "item": pl.String, "unit": pl.Int64}
JUDGEMENTS = {"expert": pl.String, "item": pl.String, "unit": pl.Int64, "accepted": pl.Boolean}
JUDGEMENTS |= {"note": pl.String, "seconds": pl.Int64}
REJECTED = {"unit": pl.Int64} | dict.fromkeys(
    ("study_id", "image_id", "target", "location", "mask_id", "rejected_by", "notes", "pair_ids"), pl.String
)


@dataclass(frozen=True)
class PageOptions:
    """Who is asked how much (``review.*``)."""

    experts: list[str]
    positives: int
    negatives: int
    seed: int
    jpeg_quality: int


@dataclass(frozen=True)
class MergeOptions:
    """How the sheets are summed up (``review.*``)."""

    experts: list[str]
    unsampled: str
    interval: float
    replicates: int
    seed: int


def run_pages(
    *,
    lines: str,
    index: str,
    masks: list[str],
    frames: list[str],
    units: str,
    asked: str,
    pages: list[str],
    options: PageOptions,
) -> None:
    """Write one page an expert, in the order of ``options.experts``, and what the organiser keeps."""
    every = units_of(read_lines(lines), lines)
    if not every:
        raise UserError(f"{lines} holds no pair, so there is nothing to review: choose another review.split")
    number = {unit.key: position for position, unit in enumerate(every)}
    drawn = sample([unit for unit in every if unit.positive], options.positives, options.seed)
    drawn += sample([unit for unit in every if not unit.positive], options.negatives, options.seed)
    pictures = _pictures(frames, {unit.image_id for unit in drawn}, options.jpeg_quality)
    pngs = _masks(masks, index, {unit.mask_id for unit in drawn if unit.mask_id is not None})
    rows = []
    dealt = deal(drawn, options.experts, options.seed)
    for expert, path in zip(options.experts, pages, strict=True):
        items = ordered(dealt[expert], expert, options.seed)
        data, urls = page.page_data(expert, items, pictures.__getitem__, pngs.__getitem__)
        page.write_page(path, data, urls)
        rows += [
            (expert, data["page"], position, code, number[unit.key])
            for position, (code, unit) in enumerate(items, start=1)
        ]
        log.info(
            "expert %s: %d items, %d pictures, %.1f MB", expert, len(items), len(urls), Path(path).stat().st_size / 1e6
        )
    keys = {unit.key for unit in drawn}
    write_table(units, unit_table(every, keys))
    write_table(asked, pl.DataFrame(rows, schema=ITEMS, orient="row"))


def unit_table(units: Iterable[Unit], asked: set[tuple[str, ...]]) -> pl.DataFrame:
    """Return the table of all units; ``asked`` holds the keys of those that were drawn."""
    rows = [
        (number, unit.subject_id, unit.study_id, unit.image_id, unit.target, list(unit.location), unit.mask_id,
         unit.pair_ids, unit.key in asked)
        for number, unit in enumerate(units)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=UNITS, orient="row")


def _pictures(frames: list[str], wanted: set[str], jpeg_quality: int) -> dict[str, tuple[str, bytes]]:
    found = {}
    for path in frames:
        with Shard(path) as shard:
            for image_id in sorted(wanted & shard.row_of.keys()):
                found[image_id] = page.picture_bytes(shard.get("image", image_id), jpeg_quality)
    if missing := wanted - found.keys():
        raise UserError(f"the frames lack {len(missing)} images of the split: run `snakemake frames` again")
    return found


def _masks(masks: list[str], index: str, wanted: set[str]) -> dict[str, bytes]:
    where = read_table(index).filter(pl.col("mask_id").is_in(list(wanted)))
    with ExitStack() as stack:
        shards = {Path(path).stem: path for path in masks}
        opened: dict[str, Shard] = {}
        found = {}
        for mask_id, name in where.select("mask_id", "shard").sort("shard", "mask_id").iter_rows():
            if name not in opened:
                opened[name] = stack.enter_context(Shard(shards[name], key="mask_id"))
            found[mask_id] = page.mask_bytes(opened[name].get("mask", mask_id))
    return found


def run_merge(
    *,
    lines: str,
    units: str,
    asked: str,
    judgements: str,
    expert_rates: str,
    lesion_rates: str,
    agreement: str,
    counts: str,
    rejected: str,
    left_out: str,
    filtered: str,
    options: MergeOptions,
    sheets: list[str] | None = None,
) -> None:
    """Read the filled ``sheets`` and write the tables, what was rejected, and the split without it.

    ``left_out`` lists the pair ids that leave the split, one a line with the reason, as ``evaluation.reviewed`` takes
    them; ``filtered`` holds the other lines as they were. Raises UserError for a sheet that is not whole.
    """
    table = read_table(units)
    order = read_table(asked).sort("expert", "position")
    pages = {
        expert: Asked(part["page"][0], part["item"].to_list())
        for (expert,), part in order.group_by("expert", maintain_order=True)
    }
    answers = read_sheets(sheets or [], pages)
    said = judgement_table(order, answers)
    verdicts = said.join(table, on="unit", how="left", maintain_order="left")
    verdicts = verdicts.with_columns(pl.col("mask_id").is_not_null().alias("positive")).select(list(rates.VERDICTS))
    printed = rates.read_printed(RESOURCES / RESOURCE_FILES[0])
    experts, interval = options.experts, options.interval
    write_table(judgements, said)
    write_table(expert_rates, rates.expert_table(verdicts, experts, interval, printed))
    write_table(lesion_rates, rates.lesion_table(verdicts, experts, interval, printed))
    write_table(
        agreement,
        rates.agreement_table(verdicts, experts, replicates=options.replicates, interval=interval, seed=options.seed),
    )
    by_whom = rejections(said)
    write_table(rejected, rejected_table(table, said, by_whom))
    reasons = reasons_of(table, by_whom, options.unsampled)
    write_left_out(left_out, reasons)
    total, whole = 0, 0
    with (
        open(lines, encoding="utf-8") as source,
        atomic(filtered) as path,
        open(path, "w", encoding="utf-8", newline="\n") as target,
    ):
        for text in source:
            whole += 1
            if json.loads(text)["pair_id"] not in reasons:
                total += 1
                target.write(text)
    write_table(counts, count_table(table, by_whom, options.unsampled, whole, total))


def judgement_table(asked: pl.DataFrame, answers: dict[str, dict[str, Answer]]) -> pl.DataFrame:
    """Return one row an expert and item, in the order of the items table."""
    rows = []
    for expert, item, unit in asked.select("expert", "item", "unit").iter_rows():
        answer = answers[expert][item]
        rows.append((expert, item, unit, answer.accepted, answer.note, answer.seconds))
    return pl.DataFrame(rows, schema=JUDGEMENTS, orient="row")


def rejections(said: pl.DataFrame) -> dict[int, list[str]]:
    """Return {unit: experts who rejected it}."""
    found: dict[int, list[str]] = {}
    for expert, unit in said.filter(~pl.col("accepted")).select("expert", "unit").iter_rows():
        found.setdefault(unit, []).append(expert)
    return found


def rejected_table(units: pl.DataFrame, said: pl.DataFrame, by_whom: dict[int, list[str]]) -> pl.DataFrame:
    """Return one row a rejected unit, with who rejected it, what anyone noted, and its pairs."""
    notes: dict[int, list[str]] = {}
    for expert, unit, note in said.filter(pl.col("note") != "").select("expert", "unit", "note").iter_rows():
        notes.setdefault(unit, []).append(f"{expert}: {note}")
    rows = [
        (row["unit"], row["study_id"], row["image_id"], row["target"], ", ".join(row["location"]), row["mask_id"],
         ", ".join(by_whom[row["unit"]]), " | ".join(notes.get(row["unit"], [])), ", ".join(row["pair_ids"]))
        for row in units.iter_rows(named=True) if row["unit"] in by_whom
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=REJECTED, orient="row")


def reasons_of(units: pl.DataFrame, by_whom: dict[int, list[str]], unsampled: str) -> dict[str, str]:
    """Return {pair_id: why it leaves the split}."""
    reasons = {}
    for unit, pair_ids, asked in units.select("unit", "pair_ids", "asked").iter_rows():
        if unit in by_whom:
            reasons |= dict.fromkeys(pair_ids, f"rejected by {', '.join(by_whom[unit])}")
        elif not asked and unsampled == "drop":
            reasons |= dict.fromkeys(pair_ids, "not reviewed")
    return reasons


def write_left_out(path: str, reasons: dict[str, str]) -> None:
    """Write pair ids, one a line, each with its reason as a remark after #."""
    with atomic(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write("# pairs that leave the split after the review: for evaluation.reviewed\n")
        file.writelines(f"{pair_id}  # {reason}\n" for pair_id, reason in reasons.items())


def count_table(
    units: pl.DataFrame, by_whom: dict[int, list[str]], unsampled: str, whole: int, total: int
) -> pl.DataFrame:
    """Return of (units or pairs), what, number: nothing is lost on the way. Raises AssertionError if something is.

    ``whole`` and ``total`` are the lines of the split and of the filtered split.
    """
    names = ("accepted by all who were asked", "rejected", "not reviewed")
    state = [
        names[1] if unit in by_whom else names[0] if asked else names[2]
        for unit, asked in units.select("unit", "asked").iter_rows()
    ]
    sizes = units["pair_ids"].list.len().to_list()
    rows = [("units", "in the split", len(units))]
    rows += [("units", name, state.count(name)) for name in names]
    pairs = {name: sum(size for size, each in zip(sizes, state, strict=True) if each == name) for name in names}
    rows += [("pairs", "in the split", whole), *(("pairs", name, number) for name, number in pairs.items())]
    rows += [("pairs", "in the filtered split", total)]
    left = pairs[names[0]] + (pairs[names[2]] if unsampled == "keep" else 0)
    if whole != sum(pairs.values()) or total != left:
        raise AssertionError(f"review: {whole} pairs in, {sum(pairs.values())} accounted for, {total} of {left} kept")
    return pl.DataFrame(rows, schema={"of": pl.String, "what": pl.String, "number": pl.Int64}, orient="row")
