"""Compute how often experts accept masks and negatives (Tables 3 and 13), their agreement and their reliability."""

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from cxr.base.columns import Column, interval_columns, schema
from cxr.base.vocabulary import LESIONS
from cxr.metrics.intervals import wilson_interval
from cxr.metrics.raters import agreement_columns, measure_agreement, measure_reliability

OVERALL, TOTAL = "overall", "total"
GROUPS = (TOTAL, "positive", "negative")
COVERAGE = 0.95
"""Coverage of the confidence intervals."""
REPLICATES = 1000
"""Number of bootstrap replicates for the intervals of agreement and reliability."""
VERDICTS = {
    "expert": pl.String,
    "unit": pl.Int64,
    "subject_id": pl.String,
    "target": pl.String,
    "positive": pl.Boolean,
    "accepted": pl.Boolean,
}
"""Columns of a table of verdicts: one row per expert and unit."""
SOURCE = {"source": Column(pl.String, "ours or paper.")}
RATE = {
    "expert": Column(pl.String, "Expert, or `overall`, where a unit counts once, as accepted if nobody rejected it."),
    "group": Column(pl.String, "total, positive (units with a mask) or negative."),
    "units": Column(pl.Int64, "Units judged."),
    "accepted": Column(pl.Int64, "Of these, units accepted; null for the paper."),
    "rate": Column(pl.Float64, "`accepted` over `units`.", "%"),
    **interval_columns("", "its Wilson 95 % interval", "%"),
    "note": Column(pl.String, "Contradictions in the values that the paper prints."),
}
EXPERTS = SOURCE | RATE
LESION_RATES = SOURCE | {"lesion": Column(pl.String, "Lesion type.")} | RATE
AGREEMENT = {
    "lesion": Column(pl.String, "Lesion type, or `total`."),
    "experts": Column(pl.Int64, "Experts."),
    "units": Column(pl.Int64, "Units with a mask judged by all experts."),
    "unanimous": Column(pl.Int64, "Of these, units with a unanimous verdict."),
    "percent_agreement": Column(pl.Float64, "Percentage of expert pairs who agree; null without a unit.", "%"),
    **agreement_columns(" (95 %), by patients"),
}
RELIABILITY = {
    "expert": RATE["expert"],
    "group": RATE["group"],
    "units": Column(pl.Int64, "Units judged."),
    "hit_rate": Column(pl.Float64, "Of these, units accepted.", "%"),
    "decoys": Column(pl.Int64, "Decoys judged."),
    "false_alarm_rate": Column(pl.Float64, "Of these, decoys accepted.", "%"),
    "d_prime": Column(pl.Float64, "d', which measures how well units and decoys are told apart; 0 for chance."),
    **interval_columns("d_prime", "its interval (95 %), by units and decoys"),
    "corrected": Column(
        pl.Float64, "`hit_rate` corrected for accepted decoys; null without decoys, or if all were accepted.", "%"
    ),
    **interval_columns("corrected", "its interval (95 %), by units and decoys", "%"),
}


def rate_with_interval(accepted: int, units: int) -> dict:
    """Return ``units``, ``accepted``, and the rate with Wilson's interval, both in percent and None without units.

    The interval is somewhat too narrow, because it assumes independent units, but units of one patient are dependent.
    """
    cells = {"units": units, "accepted": accepted, "rate": None, "low": None, "high": None}
    if wilson_rate := wilson_interval(accepted, units, COVERAGE):
        cells |= {name: round(100 * value, 3) for name, value in wilson_rate._asdict().items()}
    return cells


def tabulate_experts(verdicts: pl.DataFrame, experts: Sequence[str], printed: dict) -> pl.DataFrame:
    """Return Table 3, our rows and then the paper's: the rate of accepted units per expert and group (:data:`GROUPS`).
    Overall, a unit counts once, as accepted if nobody rejected it. ``printed`` are the values of the paper."""
    rows = [{"source": "ours"} | cells for cells in _rate_experts(verdicts, experts)]
    notes = {tuple(note["cell"]): note["note"] for note in printed["notes"] if note["table"] == "experts"}
    for expert, groups in printed["experts"].items():
        rows += [
            {"source": "paper", "expert": expert, "group": group, "rate": value, "units": units}
            | {"note": notes.get((expert, group), "")}
            for group, (value, units) in groups.items()
        ]
    return pl.DataFrame(rows, schema=schema(EXPERTS))


def tabulate_lesions(verdicts: pl.DataFrame, experts: Sequence[str], printed: dict) -> pl.DataFrame:
    """Return Table 13, the rate of accepted units per lesion type: our rows, then the ``printed`` ones of the paper."""
    notes = {tuple(note["cell"]): note["note"] for note in printed["notes"] if note["table"] == "lesions"}
    rows = [
        {"source": "ours", "lesion": lesion, "note": ""} | cells
        for lesion in LESIONS
        for cells in _rate_experts(verdicts.filter(pl.col("target") == lesion), experts)
    ]
    rows += [
        {"source": "paper", "lesion": lesion, "expert": expert, "group": group, "rate": value}
        | {"note": notes.get((lesion, expert, group), "")}
        for lesion, of_experts in printed["lesions"].items()
        for expert, values in of_experts.items()
        for group, value in zip(printed["lesion_columns"], values, strict=True)
    ]
    return pl.DataFrame(rows, schema=schema(LESION_RATES))


def tabulate_agreement(verdicts: pl.DataFrame, experts: Sequence[str], seed: int) -> pl.DataFrame:
    """Return the experts' agreement per lesion type and in total, on the units with a mask that all experts judged."""
    of_all = (
        verdicts.filter("positive")
        .group_by("unit", "subject_id", "target", maintain_order=True)
        .agg(pl.col("accepted").sum().alias("yes"), pl.len().alias("raters"))
        .filter(pl.col("raters") == len(experts))
    )
    rows = []
    for lesion in (*LESIONS, TOTAL):
        table = of_all if lesion == TOTAL else of_all.filter(pl.col("target") == lesion)
        rows.append((lesion, len(experts), *agreement_cells(table["yes"], len(experts), table["subject_id"], seed)))
    return pl.DataFrame(rows, schema=schema(AGREEMENT), orient="row")


def tabulate_reliability(
    verdicts: pl.DataFrame, decoy_verdicts: pl.DataFrame, experts: Sequence[str], seed: int
) -> pl.DataFrame:
    """Return the rows of :data:`RELIABILITY`: how well each expert, and all together, tell real units from decoys.
    Overall, a unit or decoy counts once, as accepted if nobody rejected it."""
    rows = []
    for real, decoy in zip(_rate_experts(verdicts, experts), _rate_experts(decoy_verdicts, experts), strict=True):
        d_prime, corrected = measure_reliability(
            real["accepted"], real["units"], decoy["accepted"], decoy["units"],
            replicates=REPLICATES, level=COVERAGE, seed=seed,
        )  # fmt: skip
        d_prime_cells = (None if value is None else round(value, 4) for value in d_prime)
        corrected_cells = (None if value is None else round(100 * value, 3) for value in corrected)
        rates = (real["units"], real["rate"], decoy["units"], decoy["rate"])
        rows.append((real["expert"], real["group"], *rates, *d_prime_cells, *corrected_cells))
    return pl.DataFrame(rows, schema=schema(RELIABILITY), orient="row")


def agreement_cells(yes: pl.Series, raters: int, subjects: pl.Series, seed: int) -> tuple:
    """Return units, unanimous units, percent agreement, and kappa and AC1 with their intervals, rounded.

    ``yes`` has the number of yes answers per unit. ``subjects`` has the patient or image of each unit, which the
    bootstrap resamples.
    """
    values = measure_agreement(
        yes.cast(pl.Int64).to_numpy(), raters, subjects.to_numpy(), replicates=REPLICATES, level=COVERAGE, seed=seed
    )
    return values.units, values.unanimous, *values.rounded()


def _rate_experts(verdicts: pl.DataFrame, experts: Iterable[str]) -> Iterator[dict]:
    tables = {expert: verdicts.filter(pl.col("expert") == expert) for expert in experts}
    units = verdicts.group_by([name for name in VERDICTS if name not in ("expert", "accepted")])
    tables[OVERALL] = units.agg(pl.col("accepted").all())  # accepted if nobody rejected it
    for expert, table in tables.items():
        for group in GROUPS:
            part = table if group == TOTAL else table.filter(pl.col("positive") == (group == "positive"))
            yield {"expert": expert, "group": group} | rate_with_interval(int(part["accepted"].sum()), len(part))
