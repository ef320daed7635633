"""Compute the votes on each query, the MedGround paper's Table 7, and the experts' agreement from their answers."""

from collections.abc import Mapping

import polars as pl
import yaml

from cxr.base.columns import Column, interval_columns, schema
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_table, write_table
from cxr.metrics.raters import agreement_columns
from cxr.reporting.review.rates import agreement_cells, rate_with_interval

RESOURCE_FILES = ("medground/paper_tables.yaml",)
GOOD, TOTAL = "good", "total"
AUDIT = {
    "query_id": Column(pl.String, "Query."),
    "source": Column(pl.String, "Source of the query."),
    "image_id": Column(pl.String, "Image of the query."),
    "experts": Column(pl.Int64, "Number of experts who judged the query."),
    "good": Column(pl.Int64, "Number of experts who judged the query as good."),
    "accepted": Column(
        pl.Boolean, "Whether enough experts judged the query as good: all, or more than half (`review.rule`)."
    ),
    "faults": Column(pl.List(pl.String), "Faults that experts named instead, in the order of the experts' names."),
    "notes": Column(pl.String, "Notes of all experts."),
}
TABLE7 = {
    "by": Column(pl.String, "ours or paper."),
    "source": Column(pl.String, "Source; `total`: all."),
    "queries": Column(pl.Int64, "Audited queries."),
    "votes": Column(pl.String, "Number of queries that all experts judged as good, all but one, and so on to none."),
    "accepted": Column(pl.Int64, "Accepted queries."),
    "rate": Column(pl.Float64, "`accepted` over `queries`. The paper's rate is recomputed from its votes.", "%"),
    **interval_columns("", "its Wilson 95 % interval", "%"),
    "printed": Column(pl.Float64, "The rate as the paper prints it.", "%"),
    "note": Column(pl.String, "Where the paper's values contradict each other."),
}
AGREEMENT = {
    "source": Column(pl.String, "Source; `total`: all."),
    "experts": Column(pl.Int64, "Experts."),
    "queries": Column(pl.Int64, "Queries judged by all experts."),
    "unanimous": Column(pl.Int64, "Of these, queries with a unanimous verdict."),
    "percent_agreement": Column(pl.Float64, "Percentage of expert pairs who agree; null without a query.", "%"),
    **agreement_columns(", by images"),
}


def run(
    *, units: str, answers: str, audit: str, table7: str, agreed: str, experts: list[str], rule: str, seed: int
) -> None:
    """Write the votes on each query, Table 7 with the paper's rows, and the experts' agreement.
    ``units`` has the query_id, source and image_id of the test queries, and ``answers`` the experts' answers."""
    votes = count_votes(read_table(units), read_table(answers), rule)
    printed = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["table7"]
    write_table(audit, votes, AUDIT)
    write_table(table7, tabulate_rates(votes, printed, len(experts)), TABLE7)
    write_table(agreed, tabulate_agreement(votes, len(experts), seed), AGREEMENT)


def is_accepted(good: int, experts: int, rule: str) -> bool:
    """Return whether ``good`` votes of ``experts`` experts accept a query. ``rule``: all, or majority (over half)."""
    return good == experts if rule == "all" else 2 * good > experts


def count_votes(units: pl.DataFrame, answers: pl.DataFrame, rule: str) -> pl.DataFrame:
    """Return the rows of :data:`AUDIT`: one per judged query, sorted by id."""
    unit_by_query = {row["query_id"]: row for row in units.iter_rows(named=True)}
    rows = []
    for (query_id,), part in answers.sort("unit", "expert").group_by("unit", maintain_order=True):
        good = int((part["answer"] == GOOD).sum())
        faults = [answer for answer in part["answer"] if answer != GOOD]
        notes = " | ".join(f"{who}: {note}" for who, note in part.select("expert", "note").iter_rows() if note)
        unit = unit_by_query[query_id]
        verdict = len(part), good, is_accepted(good, len(part), rule)
        rows.append((query_id, unit["source"], unit["image_id"], *verdict, faults, notes))
    return pl.DataFrame(rows, schema=schema(AUDIT), orient="row")


def tabulate_rates(votes: pl.DataFrame, printed: Mapping, num_experts: int) -> pl.DataFrame:
    """Return Table 7: the rows of our sources and of their total, then the rows that the paper prints."""
    rows = []
    for source, part in _by_source(votes):
        counts = [int((part["good"] == number).sum()) for number in range(num_experts, -1, -1)]
        rate_cells = rate_with_interval(int(part["accepted"].sum()), len(part))
        rows.append({"by": "ours", "source": source, "votes": counts, "note": ""} | rate_cells)
    for source, row in printed["rows"].items():
        rate_cells = rate_with_interval(sum(row["votes"][:2]), sum(row["votes"]))
        paper_cells = {"votes": row["votes"], "printed": row["good"], "note": row.get("flag", "")}
        rows.append({"by": "paper", "source": source} | paper_cells | rate_cells)
    for row in rows:
        row |= {"votes": "/".join(map(str, row["votes"])), "queries": row.pop("units")}
    return pl.DataFrame(rows, schema=schema(TABLE7))


def tabulate_agreement(votes: pl.DataFrame, num_experts: int, seed: int) -> pl.DataFrame:
    """Return the rows of :data:`AGREEMENT`: how well the experts agree for each source and in total."""
    rows = [
        (source, num_experts, *agreement_cells(part["good"], num_experts, part["image_id"], seed))
        for source, part in _by_source(votes)
    ]
    return pl.DataFrame(rows, schema=schema(AGREEMENT), orient="row")


def _by_source(votes: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    sources = votes["source"].unique(maintain_order=True)
    return [*((source, votes.filter(source=source)) for source in sources), (TOTAL, votes)]
