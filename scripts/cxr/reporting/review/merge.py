"""Merge the experts' completed sheets: write tables of their verdicts, and the split without rejected pairs.

The inputs include the organiser's tables of :mod:`cxr.reporting.review.make_pages`.
"""

import json

import polars as pl
import yaml

from cxr.base.atomic import atomic_file
from cxr.base.columns import Column, schema
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_table, write_table
from cxr.reporting.review import rates
from cxr.reporting.review.page import read_form
from cxr.reporting.review.sheets import read_answers

RESOURCE_FILES = ("paper_tables.yaml",)

ACCEPTED = "acceptable"
"""The verdict by which a sheet accepts an item."""
STATES = ACCEPTED_STATE, REJECTED_STATE, NOT_REVIEWED = "accepted by all who were asked", "rejected", "not reviewed"
"""States of a unit after the review."""
TEXTS = pl.List(pl.String)
JUDGEMENTS = {
    "expert": Column(pl.String, "Expert."),
    "item": Column(pl.String, "Code on the page and in the sheet."),
    "unit": Column(pl.Int64, "Unit."),
    "accepted": Column(pl.Boolean, "Whether the expert accepted the unit."),
    "note": Column(pl.String, "The expert's note."),
    "seconds": Column(pl.Int64, "Time for which the item was shown.", "s"),
}
REJECTED = {
    "unit": Column(pl.Int64, "Number of a unit that an expert rejected."),
    "study_id": Column(pl.String, "Study."),
    "image_id": Column(pl.String, "Image."),
    "target": Column(pl.String, "Lesion type."),
    "location": Column(pl.String, "Locations as the instructions name them."),
    "mask_id": Column(pl.String, "Id of the mask; empty for a negative."),
    "rejected_by": Column(pl.String, "Experts who rejected the unit."),
    "notes": Column(pl.String, "Notes of all experts."),
    "pair_ids": Column(pl.String, "Ids of the unit's pairs, which leave the split."),
}
COUNTS = {
    "unit": Column(pl.String, "What is counted: `units` or `pairs`."),
    "state": Column(pl.String, "State after the review; `in the split` is the total."),
    "number": Column(pl.Int64, "Number of units or pairs."),
}


def run_sheets(
    *,
    lines: str,
    units: str,
    items_table: str,
    decoys: str,
    judgements: str,
    expert_rates: str,
    lesion_rates: str,
    agreement: str,
    reliability: str,
    counts: str,
    rejected: str,
    left_out: str,
    filtered: str,
    experts: list[str],
    unsampled: str,
    seed: int,
    sheets: list[str] | None = None,
) -> None:
    """Read the completed ``sheets``, and write the tables, the rejected units, and the split without them.

    Verdicts on ``decoys`` count only in ``reliability``. ``left_out`` lists the ids of excluded pairs, one per line
    with the reason, in the format of the setting ``evaluation.reviewed``. ``filtered`` has all other lines of the split
    unchanged. Raises UserError for an incomplete sheet.
    """
    table, key = read_table(units), read_table(decoys)
    rows = [
        (expert, item, unit, answer.values["verdict"] == ACCEPTED, answer.note, answer.seconds)
        for expert, item, unit, answer in read_answers(items_table, sheets or [], read_form("verdict"), "review.sheets")
    ]
    every_judgement = pl.DataFrame(rows, schema=schema(JUDGEMENTS), orient="row")
    is_decoy = pl.col("unit").is_in(key["unit"].implode())
    judgement_rows = every_judgement.filter(~is_decoy)
    verdicts = judgement_rows.join(table, on="unit", how="left", maintain_order="left")
    verdicts = verdicts.with_columns(pl.col("mask_id").is_not_null().alias("positive")).select(list(rates.VERDICTS))
    decoy_verdicts = every_judgement.filter(is_decoy).join(key, on="unit", how="left", maintain_order="left")
    decoy_verdicts = decoy_verdicts.with_columns(subject_id=pl.lit(""), target=pl.lit("")).select(list(rates.VERDICTS))
    printed = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["review"]
    write_table(judgements, judgement_rows, JUDGEMENTS)
    write_table(expert_rates, rates.tabulate_experts(verdicts, experts, printed), rates.EXPERTS)
    write_table(lesion_rates, rates.tabulate_lesions(verdicts, experts, printed), rates.LESION_RATES)
    write_table(agreement, rates.tabulate_agreement(verdicts, experts, seed), rates.AGREEMENT)
    write_table(reliability, rates.tabulate_reliability(verdicts, decoy_verdicts, experts, seed), rates.RELIABILITY)
    judged_units = judge_units(table, judgement_rows)
    write_table(rejected, tabulate_rejected(judged_units), REJECTED)
    reasons = find_reasons(judged_units, unsampled)
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
    write_table(counts, tabulate_counts(judged_units, unsampled, num_pairs, num_filtered), COUNTS)


def judge_units(units: pl.DataFrame, judgements: pl.DataFrame) -> pl.DataFrame:
    """Return ``units`` with ``rejected_by`` (experts), ``notes`` (of all experts) and ``state`` (of :data:`STATES`)."""
    verdicts = judgements.group_by("unit", maintain_order=True).agg(
        rejected_by=pl.col("expert").filter(~pl.col("accepted")),
        notes=pl.format("{}: {}", "expert", "note").filter(pl.col("note") != ""),
    )
    state = pl.when(pl.col("rejected_by").list.len() > 0).then(pl.lit(REJECTED_STATE))
    state = state.when("sampled").then(pl.lit(ACCEPTED_STATE)).otherwise(pl.lit(NOT_REVIEWED))
    return units.join(verdicts, on="unit", how="left", maintain_order="left").with_columns(state=state)


def tabulate_rejected(judged_units: pl.DataFrame) -> pl.DataFrame:
    """Return a row per rejected unit (mask or negative), with the experts who rejected it, all notes, and its pairs."""
    return judged_units.filter(state=REJECTED_STATE).select(
        pl.col(name).list.join(" | " if name == "notes" else ", ") if judged_units.schema[name] == TEXTS else name
        for name in REJECTED
    )


def find_reasons(judged_units: pl.DataFrame, unsampled: str) -> dict[str, str]:
    """Return {pair_id: reason} of all excluded pairs. Pairs that no expert judged are excluded if ``unsampled`` is
    ``drop``, and stay if it is ``keep``."""
    reasons = {}
    for state, pair_ids, experts in judged_units.select("state", "pair_ids", "rejected_by").iter_rows():
        if state == REJECTED_STATE:
            reasons |= dict.fromkeys(pair_ids, f"rejected by {', '.join(experts)}")
        elif state == NOT_REVIEWED and unsampled == "drop":
            reasons |= dict.fromkeys(pair_ids, NOT_REVIEWED)
    return reasons


def tabulate_counts(judged_units: pl.DataFrame, unsampled: str, num_pairs: int, num_filtered: int) -> pl.DataFrame:
    """Return the rows of :data:`COUNTS`. Raises AssertionError if a pair is not counted exactly once.
    ``num_pairs`` and ``num_filtered`` are the numbers of lines of the split before and after it is filtered."""
    units_by_state = {state: judged_units.filter(state=state) for state in STATES}
    pairs = {state: int(part["pair_ids"].list.len().sum()) for state, part in units_by_state.items()}
    num_expected = pairs[ACCEPTED_STATE] + (pairs[NOT_REVIEWED] if unsampled == "keep" else 0)
    if num_pairs != sum(pairs.values()) or num_filtered != num_expected:
        raise AssertionError(
            f"review: the split has {num_pairs} pairs, its units have {sum(pairs.values())}, and the filtered split "
            f"{num_filtered} instead of {num_expected}: run `snakemake review` and `snakemake review_merge` again"
        )
    rows = [("units", "in the split", len(judged_units))]
    rows += [("units", state, len(part)) for state, part in units_by_state.items()]
    rows += [("pairs", "in the split", num_pairs), *(("pairs", state, number) for state, number in pairs.items())]
    rows += [("pairs", "in the filtered split", num_filtered)]
    return pl.DataFrame(rows, schema=schema(COUNTS), orient="row")
