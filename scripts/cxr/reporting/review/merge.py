"""Merge the experts' filled sheets: write the tables, the rejected units, and the split without them.

The inputs include the organiser's tables of :mod:`cxr.reporting.review.make_pages`.
"""

import json

import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.columns import Column, schema
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_table, write_table
from cxr.reporting.review import rates
from cxr.reporting.review.page import read_form
from cxr.reporting.review.sheets import dealt_pages, read_sheets

RESOURCE_FILES = ("paper_tables.yaml",)

ACCEPTED = "acceptable"
"""The verdict that accepts a unit."""
JUDGEMENTS = {
    "expert": Column(pl.String, "Expert."),
    "item": Column(pl.String, "Code on the page and in the sheet."),
    "unit": Column(pl.Int64, "Unit."),
    "accepted": Column(pl.Boolean, "Whether the expert accepted it."),
    "note": Column(pl.String, "The expert's note."),
    "seconds": Column(pl.Int64, "Time for which the item was shown.", "s"),
}
REJECTED = {
    "unit": Column(pl.Int64, "Unit that an expert rejected."),
    "study_id": Column(pl.String, "Study."),
    "image_id": Column(pl.String, "Image."),
    "target": Column(pl.String, "Lesion type."),
    "location": Column(pl.String, "Places as the instructions name them."),
    "mask_id": Column(pl.String, "Its mask; empty for a negative."),
    "rejected_by": Column(pl.String, "Experts who rejected it."),
    "notes": Column(pl.String, "Notes of all experts."),
    "pair_ids": Column(pl.String, "Pairs excluded with it."),
}
COUNTS = {
    "unit": Column(pl.String, "units or pairs."),
    "state": Column(pl.String, "Total, then its parts."),
    "number": Column(pl.Int64, "Number of units or pairs."),
}


def run_sheets(
    *,
    lines: str,
    units: str,
    items_table: str,
    judgements: str,
    expert_rates: str,
    lesion_rates: str,
    agreement: str,
    counts: str,
    rejected: str,
    left_out: str,
    filtered: str,
    experts: list[str],
    unsampled: str,
    seed: int,
    sheets: list[str] | None = None,
) -> None:
    """Read the filled ``sheets`` and write the tables, the rejected units, and the split without them.

    ``left_out`` lists the excluded pair ids, one per line with the reason, in the format of ``evaluation.reviewed``;
    ``filtered`` has the other lines unchanged. Raises UserError for an incomplete sheet.
    """
    table = read_table(units)
    order = read_table(items_table).sort("expert", "position")
    answers = read_sheets(sheets or [], dealt_pages(order), read_form("verdict"), "review.sheets")
    rows = [
        (expert, item, unit, answer.values["verdict"] == ACCEPTED, answer.note, answer.seconds)
        for expert, item, unit in order.select("expert", "item", "unit").iter_rows()
        for answer in [answers[expert][item]]
    ]
    judgement_rows = pl.DataFrame(rows, schema=schema(JUDGEMENTS), orient="row")
    verdicts = judgement_rows.join(table, on="unit", how="left", maintain_order="left")
    verdicts = verdicts.with_columns(pl.col("mask_id").is_not_null().alias("positive")).select(list(rates.VERDICTS))
    printed = rates.read_printed(RESOURCES / RESOURCE_FILES[0])
    write_table(judgements, judgement_rows, JUDGEMENTS)
    write_table(expert_rates, rates.tabulate_experts(verdicts, experts, printed), rates.EXPERTS)
    write_table(lesion_rates, rates.tabulate_lesions(verdicts, experts, printed), rates.LESION_RATES)
    write_table(agreement, rates.tabulate_agreement(verdicts, experts, seed), rates.AGREEMENT)
    experts_by_unit = find_rejections(judgement_rows)
    write_table(rejected, tabulate_rejected(table, judgement_rows, experts_by_unit), REJECTED)
    reasons = find_reasons(table, experts_by_unit, unsampled)
    with atomic_file(left_out) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write("# pairs that leave the split after the review: for evaluation.reviewed\n")
        file.writelines(f"{pair_id}  # {reason}\n" for pair_id, reason in reasons.items())
    num_filtered, num_pairs = 0, 0
    with (
        open(lines, encoding="utf-8") as source,
        atomic_file(filtered) as path,
        open(path, "w", encoding="utf-8", newline="\n") as target,
    ):
        for text in source:
            num_pairs += 1
            if json.loads(text)["pair_id"] not in reasons:
                num_filtered += 1
                target.write(text)
    write_table(counts, tabulate_counts(table, experts_by_unit, unsampled, num_pairs, num_filtered), COUNTS)


def find_rejections(judgements: pl.DataFrame) -> dict[int, list[str]]:
    """Return {unit: experts who rejected it}."""
    rejections = judgements.filter(~pl.col("accepted")).group_by("unit", maintain_order=True).agg("expert")
    return dict(rejections.iter_rows())


def tabulate_rejected(
    units: pl.DataFrame, judgements: pl.DataFrame, experts_by_unit: dict[int, list[str]]
) -> pl.DataFrame:
    """Return one row per rejected unit, with the experts who rejected it, all notes, and its pairs."""
    note = pl.format("{}: {}", "expert", "note")
    notes = dict(judgements.filter(pl.col("note") != "").group_by("unit", maintain_order=True).agg(note).iter_rows())
    rows = [
        (row["unit"], row["study_id"], row["image_id"], row["target"], ", ".join(row["location"]), row["mask_id"],
         ", ".join(experts_by_unit[row["unit"]]), " | ".join(notes.get(row["unit"], [])), ", ".join(row["pair_ids"]))
        for row in units.iter_rows(named=True) if row["unit"] in experts_by_unit
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=schema(REJECTED), orient="row")


def find_reasons(units: pl.DataFrame, experts_by_unit: dict[int, list[str]], unsampled: str) -> dict[str, str]:
    """Return {pair_id: the reason why it is excluded}."""
    reasons = {}
    for unit, pair_ids, was_sampled in units.select("unit", "pair_ids", "sampled").iter_rows():
        if unit in experts_by_unit:
            reasons |= dict.fromkeys(pair_ids, f"rejected by {', '.join(experts_by_unit[unit])}")
        elif not was_sampled and unsampled == "drop":
            reasons |= dict.fromkeys(pair_ids, "not reviewed")
    return reasons


def tabulate_counts(
    units: pl.DataFrame, experts_by_unit: dict[int, list[str]], unsampled: str, num_pairs: int, num_filtered: int
) -> pl.DataFrame:
    """Return the rows of :data:`COUNTS`. Raises AssertionError if a unit or pair is not counted exactly once.

    ``num_pairs`` and ``num_filtered``: numbers of lines of the split and of the filtered split.
    """
    names = ("accepted by all who were asked", "rejected", "not reviewed")
    unit_states = [
        names[1] if unit in experts_by_unit else names[0] if was_sampled else names[2]
        for unit, was_sampled in units.select("unit", "sampled").iter_rows()
    ]
    sizes = units["pair_ids"].list.len().to_list()
    rows = [("units", "in the split", len(units))]
    rows += [("units", name, unit_states.count(name)) for name in names]
    pairs = {name: sum(size for size, state in zip(sizes, unit_states, strict=True) if state == name) for name in names}
    rows += [("pairs", "in the split", num_pairs), *(("pairs", name, number) for name, number in pairs.items())]
    rows += [("pairs", "in the filtered split", num_filtered)]
    num_expected = pairs[names[0]] + (pairs[names[2]] if unsampled == "keep" else 0)
    if num_pairs != sum(pairs.values()) or num_filtered != num_expected:
        raise AssertionError(
            f"review: {num_pairs} pairs in, {sum(pairs.values())} accounted for, {num_filtered} of {num_expected} kept"
        )
    return pl.DataFrame(rows, schema=schema(COUNTS), orient="row")
