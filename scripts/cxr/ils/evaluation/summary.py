"""Make tables of scores of masks (Tables 4, 5) and answers (Tables 6, 14), with intervals and the paper's values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import polars as pl

from cxr.base.columns import Column, Columns, interval_columns, read_columns, schema
from cxr.base.resources import load_resource
from cxr.base.tables import read_table
from cxr.base.vocabulary import LESIONS
from cxr.ils import templates
from cxr.ils.evaluation import answer_rules
from cxr.ils.evaluation.predictions import FAILURES
from cxr.metrics.intervals import ratio_intervals, sums_by_subject
from cxr.metrics.masks import PAIR_METRICS

RESOURCE_FILES = ("paper_tables.yaml", "columns/evaluation.toml")
ROSALIA = "ROSALIA"


@dataclass(frozen=True)
class PaperScores:
    """Scores that the paper prints, in per cent."""

    models: dict[str, dict[str, float]]  # {model: {measure: score}} (Table 4, and the variants of A.7 and C.3)
    lesions: dict[str, dict[str, float | None]]  # {lesion type or ``total``: {measure: score}} (Table 5)
    text: dict[str, dict[str, float | None]]
    """{polarity or "total" (Table 6) or lesion type (Table 14): {"overall" or type of instruction: accuracy}}."""
    notes: dict[tuple[str, str, str], str]  # {(table, row, column): note}, where the paper's numbers disagree

    def select_for_model(self, model: str) -> "PaperScores":
        """Return the scores of one model of the paper, which prints only totals for models other than ROSALIA."""
        if model == ROSALIA:
            return self
        none = dict.fromkeys(PAIR_METRICS)
        lesions = dict.fromkeys(self.lesions, none) | {"total": self.models.get(model, none)}
        text = {group: dict.fromkeys(row) for group, row in self.text.items()}
        return PaperScores(self.models, lesions, text, {})


def read_paper_scores() -> PaperScores:
    """Return the paper's scores from the section ``evaluation`` of ``resources/paper_tables.yaml``."""
    data = load_resource(RESOURCE_FILES[0])["evaluation"]

    def label_columns(rows: dict, columns: list[str]) -> dict:
        return {name: dict(zip_longest(columns, row)) for name, row in rows.items()}

    notes = {(note["table"], *note["cell"]): note["note"] for note in data["notes"]}
    text = label_columns(data["text"], data["text_columns"])
    return PaperScores(
        label_columns(data["models"], data["columns"]), label_columns(data["lesions"], data["columns"]), text, notes
    )


TOTAL = "total"
GROUPS = (*LESIONS, TOTAL)
OVERALL = "overall"
COVERAGE = 0.95  # coverage of the intervals
DIGITS = 2  # decimals of the percentages in the tables


def make_measure_columns(measure: str, title: str) -> Columns:
    """Return the columns of a measure: the value, both ends of its interval, and the paper's value."""
    return {
        measure: Column(pl.Float64, f"{title}; null without pairs.", "%"),
        **interval_columns(measure, "its 95 % interval", "%"),
        f"{measure}_paper": Column(pl.Float64, "The paper's value; null where the paper prints none.", "%"),
    }


COUNT_COLUMNS = read_columns("evaluation", "scored_pairs")
MASK_COLUMNS: Columns = {}
for _metric in PAIR_METRICS.values():
    MASK_COLUMNS |= make_measure_columns(_metric.column, f"{_metric.title}, {_metric.better} is better")
SCORES: Columns = {
    "lesion": Column(pl.String, "Lesion type, or `total`."),
    **COUNT_COLUMNS,
    "reviewed": Column(pl.Int64, "Pairs left out because experts rejected them (`evaluation.reviewed`)."),
    **MASK_COLUMNS,
    "note": Column(pl.String, "Remark on a value of the paper that disagrees with the paper's other numbers."),
}
TEXTS = read_columns("evaluation", "texts") | make_measure_columns("accuracy", "Accuracy")


def sum_by_patient(pairs: pl.DataFrame, ratios: Iterable[Sequence[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return (numerators, denominators) summed per patient, float64 (patients, K); ``ratios``: K times both, (N,)."""
    names, numbers = np.unique(pairs["subject_id"].to_numpy(), return_inverse=True)
    sides = (np.column_stack(terms).astype(float) for terms in zip(*ratios, strict=True))
    above, below = (sums_by_subject(numbers, len(names), terms) for terms in sides)
    return above, below


def make_score_table(pairs: pl.DataFrame, paper: PaperScores, **resampling: float) -> pl.DataFrame:
    """Return the table ``SCORES`` in per cent, by lesion type and in total; ``resampling``: replicates and seed."""
    scored = pairs.filter(pl.col("iou").is_not_null())
    overlaps = [scored[name].to_numpy().astype(np.float64) for name in ("iou", "intersection", "union")]
    members = {group: _group_members(scored, group) for group in (*GROUPS, "positive", "negative")}
    ratios, values = [], []
    for group in GROUPS:
        for metric in PAIR_METRICS.values():
            is_counted = members[group] & members[metric.polarity]
            ratios.append([part * is_counted for part in metric.terms(*overlaps)])
            values.append(metric.score(*(part[is_counted] for part in overlaps)))
    low, high = ratio_intervals(*sum_by_patient(scored, ratios), level=COVERAGE, **resampling)
    cells = iter(zip(values, low, high, strict=True))
    rows = []
    for group in GROUPS:
        reasons = pairs.filter(group_filter(group))["reason"]
        row: dict[str, object] = {
            "lesion": group,
            "positives": int((members[group] & members["positive"]).sum()),
            "negatives": int((members[group] & members["negative"]).sum()),
            "failed": int(reasons.is_in(FAILURES).sum()),
            "reviewed": int((reasons == "reviewed").sum()),
        }
        for column in PAIR_METRICS:
            row |= _make_cell(column, *next(cells), paper.lesions[group].get(column))
        notes = (paper.notes.get(("lesions", group, column), "") for column in PAIR_METRICS)
        rows.append(row | {"note": "; ".join(filter(None, notes))})
    return pl.DataFrame(rows, schema=schema(SCORES))


def make_text_table(pairs: pl.DataFrame, paper: PaperScores, **resampling: float) -> pl.DataFrame:
    """Return the table ``TEXTS`` in per cent, by rule, group and type of instruction; without answers it is empty."""
    judged_pairs = pairs.filter(pl.col(answer_rules.RULES[0]).is_not_null())
    kinds = {OVERALL: np.ones(len(judged_pairs), bool)} | {
        kind: (judged_pairs["type"] == kind).to_numpy() for kind in templates.TYPES
    }
    keys, ratios = [], []
    for rule in answer_rules.RULES:
        right = judged_pairs[rule].to_numpy().astype(np.float64)
        for group in ("positive", "negative", *reversed(GROUPS)):
            member = _group_members(judged_pairs, group)
            for kind, of_kind in kinds.items():
                keys.append((rule, group, kind))
                ratios.append((right * (member & of_kind), member & of_kind))
    low, high = ratio_intervals(*sum_by_patient(judged_pairs, ratios), level=COVERAGE, **resampling)
    rows = []
    for at, (rule, group, kind) in enumerate(keys):
        right, is_counted = ratios[at]
        number = int(is_counted.sum())
        if number:
            value = float(right.sum()) / number
            cell = _make_cell("accuracy", value, low[at], high[at], paper.text[group][kind])
            rows.append({"rule": rule, "group": group, "type": kind, "pairs": number} | cell)
    return pl.DataFrame(rows, schema=schema(TEXTS))


def read_scores(path: str) -> pl.DataFrame:
    """Read a table ``SCORES`` or ``TEXTS`` and return it, with null for empty cells of numeric columns."""
    table = read_table(path)
    words = {"lesion", "note", "rule", "group", "type"}
    empty = [name for name, kind in table.schema.items() if kind == pl.String and name not in words]
    # a column without any value is read as strings
    return table.with_columns(pl.col(name).replace("", None).cast(pl.Float64) for name in empty)


def group_filter(group: str) -> pl.Expr:
    """Return the expression that selects the pairs of a group: a lesion type, "positive", "negative" or "total"."""
    if group == TOTAL:
        return pl.lit(True)
    return pl.col("polarity" if group in ("positive", "negative") else "target") == group


def _group_members(rows: pl.DataFrame, group: str) -> np.ndarray:
    return np.broadcast_to(rows.select(member=group_filter(group))["member"].to_numpy(), len(rows))


def _make_cell(measure: str, value: float | None, low: float, high: float, paper: float | None) -> dict:
    numbers = (value, low, high)
    percents = [None if number is None or number != number else round(100 * number, DIGITS) for number in numbers]
    names = (f"{measure}{end}" for end in ("", "_low", "_high", "_paper"))
    return dict(zip(names, (*percents, paper), strict=True))
