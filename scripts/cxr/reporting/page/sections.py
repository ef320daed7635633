"""Convert the tables of a run to the page's content: formatted numbers, widths of bars, rows of tables."""

import tomllib
from collections.abc import Sequence

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cxr.base.atomic import atomic_file
from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import LESIONS, LUNG_LESIONS
from cxr.ils.evaluation.answer_rules import SHOWN_RULES
from cxr.language.reports.outcome_summary import summarize_forms
from cxr.metrics.masks import PAIR_METRICS

RESOURCE_FILES = ("page",)
WORDS = tomllib.loads((RESOURCES / "page/words.toml").read_text(encoding="utf-8"))

KINDS = ("basic", "global", "lesion_inference")
POLARITIES = ("positive", "negative")
SCORE_TITLES = {metric.column: metric.title for metric in PAIR_METRICS.values()}
SCORE_TITLES |= {f"text_{rule}": f"text, {rule}" for rule in SHOWN_RULES}
"""{column of the evaluation's tables: its heading}."""
RECALL_COLUMNS = ("average", *LUNG_LESIONS)
NONE = "–"
SYNTHETIC_MARK = " (synthetic)"
"""Suffix of a table's caption, if the table shows results on the project's synthetic cohort beside the paper's."""
MAX_WORDS = 20
"""Maximum number of words, unknown to the report reader, that the page lists."""


def format_number(value: float | str | None, digits: int = 0) -> str:
    """Return a number with thousands separators and ``digits`` decimals, or a dash for an empty cell (None or "")."""
    return NONE if value in (None, "") else f"{value:,.{digits}f}"


def count_rows(table: pl.DataFrame, sets: Sequence[str]) -> tuple[list[dict], list[dict]]:
    """Return the rows of counts, and the rows of percentages, with numbers as text.
    A row has ``cells``, one per threshold set, and the values ``configured`` (in the settings) and ``paper``."""
    rows: tuple[list[dict], list[dict]] = [], []
    for row in table.iter_rows(named=True):
        share = row["count"].endswith(", %")
        digits = 2 if share else 0
        text_by_column = {name: format_number(row[name], digits) for name in (*sets, "configured", "paper")}
        rows[share].append({"count": row["count"], "cells": [text_by_column[name] for name in sets]} | text_by_column)
    return rows


def funnel_steps(table: pl.DataFrame, name: str) -> list[dict]:
    """Return the flow of images through the stages under the threshold set ``name``, one entry per stage.

    An entry has the number of ``remaining`` images, the ``width`` of their bar (% of the input images), and ``lost``,
    which has a {"reason", "images", "why"} for each reason why images were excluded.
    """
    steps: list[dict] = []
    of_set = table.filter(pl.col("thresholds") == name)
    most = max(of_set["remaining"].max() or 0, 1)
    for row in of_set.iter_rows(named=True):
        if not steps or steps[-1]["stage"] != row["stage"]:
            width = round(100 * row["remaining"] / most, 2)
            steps.append({"stage": row["stage"], "remaining": row["remaining"], "width": width, "lost": []})
        if row["reason"]:
            steps[-1]["lost"].append({"reason": row["reason"], "images": row["images"], "why": row["meaning"]})
    return steps


def exclusion_details(ledgers: Sequence[pl.DataFrame], most: int) -> list[dict]:
    """Return one entry for each stage and reason with details in the tables of excluded images (``ledgers``).

    An entry has ``stage``, ``reason``, the number of ``images``, ``details`` and ``more``. ``details`` are up to
    ``most`` (detail, images), the most frequent first; ``more`` counts the images of all other details.
    """
    entries = []
    line = pl.col("detail").str.extract(r"^line (\d+)").cast(pl.Int64)
    for ledger in ledgers:
        for (stage, reason), rows in ledger.sort("stage", "reason").group_by("stage", "reason", maintain_order=True):
            details = rows.filter(pl.col("detail") != "").group_by("detail").len()
            details = details.sort([-pl.col("len").cast(pl.Int64), line, "detail"], nulls_last=True).rows()
            if details:
                entry = {"stage": stage, "reason": reason, "images": len(rows), "details": details[:most]}
                entries.append(entry | {"more": sum(images for _, images in details[most:])})
    return entries


def correction_counts(table: pl.DataFrame, most: int) -> tuple[list[tuple[str, int]], int]:
    """Return up to ``most`` (header correction, its number of images), and the number of all corrected images."""
    counts = table.group_by("correction").len().sort([-pl.col("len").cast(pl.Int64), "correction"])
    return counts.head(most).rows(), table["image_id"].n_unique()


def rank_losses(table: pl.DataFrame, name: str) -> list[dict]:
    """Return a threshold set's exclusions as {"stage", "reason", "images", "why"}, most images first."""
    losses = [lost | {"stage": step["stage"]} for step in funnel_steps(table, name) for lost in step["lost"]]
    return sorted(losses, key=lambda lost: -lost["images"])


def lesion_shares(splits: pl.DataFrame, name: str) -> list[dict]:
    """Return a row per polarity and lesion type (the paper's Fig. 4), with the percentages ``ours`` and ``paper``.
    They are computed from ``pairs`` and ``paper_pairs``, summed over all splits and types of instruction."""
    of_set = splits.filter(pl.col("thresholds") == name)
    rows = []
    for polarity in POLARITIES:
        ours, paper = (
            dict(of_set.group_by("lesion").agg(pl.sum_horizontal(columns).sum()).iter_rows())
            for columns in ([f"{kind}_{polarity}{ending}" for kind in KINDS] for ending in ("", "_paper"))
        )
        num_ours, num_paper = (sum(pairs.get(lesion, 0) for lesion in LESIONS) for pairs in (ours, paper))
        for lesion in LESIONS:
            row = {"polarity": polarity, "lesion": lesion, "pairs": ours.get(lesion, 0), "paper_pairs": paper[lesion]}
            row |= {
                "ours": 100 * row["pairs"] / num_ours if num_ours else 0.0,
                "paper": 100 * paper[lesion] / num_paper,
            }
            rows.append(row)
    return rows


def split_rows(splits: pl.DataFrame, name: str) -> list[dict]:
    """Return the paper's Tables 10-12 of pairs: one dict per split, with cells (our number, the paper's number)."""
    columns = ["total", *(f"{kind}_{polarity}" for kind in KINDS for polarity in POLARITIES)]
    tables = []
    for (split,), part in splits.filter(pl.col("thresholds") == name).group_by("split", maintain_order=True):
        rows = part.to_dicts()
        cells = [[(format_number(row[c]), format_number(row[f"{c}_paper"])) for c in columns] for row in rows]
        notes = [f"{row['lesion']}: {row['note']}" for row in rows if row["note"]]
        texts = [{"lesion": row["lesion"], "cells": row_cells} for row, row_cells in zip(rows, cells, strict=True)]
        tables.append({"split": split, "rows": texts, "notes": notes})
    return tables


def reading_outcomes(table: pl.DataFrame) -> dict:
    """Return the outcomes of reading reports (``rows``), each with its number of studies and its percentage.

    ``lost`` is the number of unusable reports, and ``handed_over`` the number that the rules passed to a language
    model. ``forms`` is a sentence on reports that are filled-in forms.
    """
    table = table.with_columns(pl.col("studies", "handed_over").cast(pl.Int64))  # an empty table has no types
    total = max(1, table["studies"].sum())
    rows = [row | {"share": format_number(100 * row["studies"] / total, 1)} for row in table.iter_rows(named=True)]
    lost = [row["studies"] for row in rows if row["outcome"] not in ("findings", "no_findings")]
    return {
        "rows": rows,
        "lost": sum(lost),
        "total": table["studies"].sum(),
        "handed_over": table["handed_over"].sum(),
        "forms": summarize_forms(rows),
    }


def unknown_words(table: pl.DataFrame) -> dict:
    """Return words that the report reader does not know: the first ``rows``, and the ``number`` of all words.
    ``withheld`` is whether example sentences are withheld."""
    first = table.head(MAX_WORDS).to_dicts()
    return {"rows": first, "number": len(table), "withheld": any(row["example"] == "withheld" for row in first)}


def recall_rows(table: pl.DataFrame, ablation: pl.DataFrame | None, *, beside_paper: bool) -> list[dict]:
    """Return one row per threshold set: its ``name``, and ``cells`` with recall, counts, paper, shade (%) and interval.

    The first cell is the average, which even a narrow screen shows. The others are for each lesion type except
    cardiomegaly. The intervals are from the table ``ablation``. The paper's values are "" unless ``beside_paper``.
    """
    intervals = {}
    for row in [] if ablation is None else ablation.iter_rows(named=True):
        if row["recall"] is not None:
            ends = format_number(row["recall_low"]), format_number(row["recall_high"])
            intervals[row["thresholds"], row["lesion"]] = "–".join(ends)
    rows = []
    for (name,), part in table.group_by("thresholds", maintain_order=True):
        row_by_lesion = {row["lesion"]: row for row in part.iter_rows(named=True)}
        num_types = sum(bool(row["total"]) for lesion, row in row_by_lesion.items() if lesion != "average")
        base_by_lesion = {lesion: f"{row['grounded']} of {row['total']}" for lesion, row in row_by_lesion.items()}
        base_by_lesion["average"] = f"mean of {num_types}"
        cells = [
            {
                "recall": format_number(row["recall"], 1),
                "counts": base_by_lesion[lesion] if row["total"] else "no study",
                "paper": format_number(row["paper"], 1) if beside_paper and row["paper"] is not None else "",
                "shade": row["recall"] or 0,
                "interval": intervals.get((name, lesion), ""),
            }
            for lesion, row in ((lesion, row_by_lesion[lesion]) for lesion in RECALL_COLUMNS)
        ]
        rows.append({"name": name, "cells": cells})
    return rows


def truth_rows(table: pl.DataFrame, name: str) -> list[dict]:
    """Return one row per measure against the ground truth. Its cells are texts (value, number of comparisons), for all
    lesion types together and for each type."""
    rows = []
    for (measure,), part in table.filter(pl.col("thresholds") == name).group_by("measure", maintain_order=True):
        cell_by_lesion = {
            lesion: (format_number(value, 2), format_number(trials))
            for lesion, value, trials in part.select("lesion", "value", "trials").iter_rows()
        }
        rows.append({"measure": measure, "cells": [cell_by_lesion.get(key, (NONE, "")) for key in ("all", *LESIONS)]})
    return rows


def evaluation_rows(table: pl.DataFrame) -> list[dict]:
    """Return a row per run and per model of the paper. ``who`` is its name; its cells are (total score, interval)."""
    rows = []
    for row in table.filter(pl.col("lesion") == "total").iter_rows(named=True):
        cells = []
        for name in SCORE_TITLES:
            low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
            interval = f"{format_number(low, 1)}–{format_number(high, 1)}" if low is not None else ""
            cells.append((format_number(row[name], 1), interval))
        rows.append({"who": row["run"], "source": row["source"], "cells": cells})
    return rows


def describe_mask_metrics() -> str:
    """Return the metrics of masks with the pairs that each one counts, as "gIoU, cIoU over positive pairs, …"."""
    parts = []
    for polarity in POLARITIES:
        titles = [metric.title for metric in PAIR_METRICS.values() if metric.polarity == polarity]
        parts.append(f"{', '.join(titles)} over {polarity} pairs")
    return ", ".join(parts)


def wording_rows(table: pl.DataFrame) -> list[dict]:
    """Return a row per run and persona (style of rewording). Its cells are (change of a total score, interval)."""
    rows = []
    totals = table.filter(pl.col("lesion") == "total")
    for (run, persona), part in totals.group_by("run", "persona", maintain_order=True):
        row_by_measure = {row["measure"]: row for row in part.iter_rows(named=True)}
        cells = []
        for name in SCORE_TITLES:
            change, *ends = (row_by_measure[name][column] for column in ("change", "change_low", "change_high"))
            interval = " to ".join(map(_format_difference, ends)) if ends[0] not in (None, "") else ""
            cells.append((_format_difference(change), interval))
        rows.append({"who": f"{run}, {persona.replace('_', ' ')}", "cells": cells})
    return rows


def _format_difference(value: float | str | None) -> str:
    return NONE if value in (None, "") else f"{value:+.1f}"


def write_page(path: str, name: str, **values: object) -> None:
    """Write a page from the template ``name`` in resources/page. The ``values`` are escaped. Raises UndefinedError if
    the template needs a value that is not given."""
    loader = FileSystemLoader(RESOURCES / "page")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = format_number
    with atomic_file(path) as temporary:
        temporary.write_text(environment.get_template(name).render(**values), encoding="utf-8")
