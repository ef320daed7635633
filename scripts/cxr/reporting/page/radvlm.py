"""Show RadVLM's results: as a section of the page of all results, and as a page of its own (`snakemake radvlm`)."""

from collections.abc import Collection, Sequence
from pathlib import Path

import polars as pl

from cxr.base.tables import read_lines, read_table
from cxr.plotting.encoding import image_file_url
from cxr.reporting.page.sections import SYNTHETIC_MARK, WORDS, format_number, write_page

RESOURCE_FILES = ("page",)
FOLDER = "results/radvlm/evaluation/"
TABLES = WORDS["radvlm_tables"]
COLUMNS = WORDS["radvlm_columns"]
JUDGED = ("standard", "grounded")  # columns of a judge's scores, 0 to 10
CHARTS = {f"{name}.png": caption for name, caption in WORDS["radvlm_charts"].items()}
TABLES_BY_CHART = {
    "looks.png": ("table3", "figure4", "table4", "table5", "ours"),
    "labels.png": ("figure4",),
    "ablation.png": ("table6",),
}
"""{chart: tables whose values it draws}. A chart is shown only if one of these tables has a score of our runs."""
CASES = "gallery.jsonl"


def find_section(extras: Collection[str]) -> dict | None:
    """Return RadVLM's section for the page, or None if one of its files is not among the existing files ``extras``."""
    names = ("comparison.tsv", "judge_check.tsv", "conservation.tsv", f"gallery/{CASES}", *CHARTS)
    comparison, check, conservation, cases, *charts = paths = [f"{FOLDER}{name}" for name in names]
    is_complete = all(path in extras for path in paths)
    return build_section(comparison, check, conservation, Path(cases).parent, charts) if is_complete else None


def build_section(comparison: str, check: str, conservation: str, gallery: str | Path, charts: Sequence[str]) -> dict:
    """Return the content of RadVLM's section: the tables ``comparison`` (scores beside the paper's), ``check`` (of the
    judge model) and ``conservation`` (what became of each item), the images in the folder ``gallery``, and charts."""
    cells = read_table(comparison).to_dicts()
    tables = {title: build_table([cell for cell in cells if cell["table"] == name]) for name, title in TABLES.items()}
    scores = [cell for cell in cells if cell["by"] == "ours" and cell["value"] not in (None, "")]
    scored = {cell["table"] for cell in scores}
    checks = read_table(check).to_dicts()
    return {
        "tables": tables,
        "figures": [
            {"src": image_file_url(path), "caption": CHARTS[Path(path).name]}
            for path in charts
            if scored & set(TABLES_BY_CHART[Path(path).name])
        ],
        "checks": checks,
        "cases": [
            line | {"src": image_file_url(Path(gallery, line["file"]))} for line in read_lines(Path(gallery, CASES))
        ],
        "failed": [row["check"] for row in checks if row["passed"] not in (True, "true")],
        "result": describe_result(scores, [cell for cell in cells if cell["by"] == "blind"]),
        "conserved": _group_conservation(read_table(conservation)),
    }


def build_table(cells: Sequence[dict]) -> dict:
    """Return a table as the paper prints it, from ``cells``, which are rows of the comparison with one score each.

    The result has the titles ``columns``, those of the paper first, and ``rows``, one per model and data source. A row
    has ``cells``, a text per column. Our models' scores on images of other patients are in additional rows.
    """
    columns = list(dict.fromkeys(cell["column"] for cell in sorted(cells, key=lambda cell: cell["by"] != "paper")))
    rows: dict[tuple, dict] = {}
    for cell in cells:
        texts = {cell["model"]: _format_score(cell)}
        if cell["exchanged"] not in (None, ""):
            exchanged = cell | {"value": cell["exchanged"], "low": None}
            texts[f"{cell['model']}: images of other patients"] = _format_score(exchanged)
        for model, text in texts.items():
            new_row = {"model": model, "by": cell["by"], "source": cell["source"] or "", "texts": {}, "notes": {}}
            row = rows.setdefault((cell["by"], model, cell["source"]), new_row)
            row["texts"][cell["column"]] = text
            row["notes"] |= {cell["note"]: None} if cell["note"] else {}
    return {
        "columns": [COLUMNS.get(column, column.replace("_", " ")) for column in columns],
        "rows": [
            row | {"cells": [row["texts"].get(column, "") for column in columns], "notes": "; ".join(row["notes"])}
            for row in rows.values()
        ],
    }


def _format_score(cell: dict) -> str:
    if cell["table"] == "table2":
        return "yes" if cell["value"] else "no"
    digits = 2 if cell["column"] in JUDGED else 1
    value, low, high = (format_number(cell[name], digits) for name in ("value", "low", "high"))
    return value if cell["low"] in (None, "") else f"{value}\n[{low}, {high}]"


def describe_result(scores: Sequence[dict], blind: Sequence[dict]) -> str:
    """Return a sentence on how many scores of the first run show that the model uses the images.

    The sentence counts the scores whose whole interval is above the score without the image (from ``blind``), and
    those whose interval is above the score with another patient's image. ``scores`` are the scores of our runs.
    """
    scores = [cell for cell in scores if cell["table"] not in ("table2", "table6")]
    if not scores:
        return "No answer was scored: there are no test samples with an answer of a run."
    run = scores[0]["model"]
    scores = [cell for cell in scores if cell["model"] == run]
    of_blind = {
        (cell["source"], cell["column"]): cell["value"] for cell in blind if cell["model"].startswith(f"{run}:")
    }
    better, of_better = _count_above([(cell, of_blind.get((cell["source"], cell["column"]))) for cell in scores])
    looking, of_looking = _count_above([(cell, cell["exchanged"]) for cell in scores])
    return (
        f"The run {run}: {better} of {of_better} scores are above those of answers made without the image, and "
        f"{looking} of {of_looking} above those with another patient's image. The whole interval has to be above."
    )


def _count_above(pairs: Sequence[tuple[dict, float | str | None]]) -> tuple[int, int]:
    """Return how many of the (cell, value) have an interval above the value, and how many have a value at all."""
    pairs = [(cell, value) for cell, value in pairs if value not in (None, "")]
    lows = [cell["value"] if cell["low"] in (None, "") else cell["low"] for cell, _ in pairs]
    return sum(low > value for low, (_, value) in zip(lows, pairs, strict=True)), len(pairs)


def _group_conservation(table: pl.DataFrame) -> list[dict]:
    """Return one row per counted quantity: its total ``number``, and as ``parts`` the rows that add up to the total."""
    keys = ("stage", "of", "what")
    groups = (part.to_dicts() for _, part in table.group_by(keys, maintain_order=True))
    return [{key: total_row[key] for key in (*keys, "number")} | {"parts": parts} for total_row, *parts in groups]


def run(
    *, comparison: str, check: str, conservation: str, gallery: str, charts: Sequence[str], page: str, synthetic: bool
) -> None:
    """Write RadVLM's own page. ``synthetic`` is whether all images and reports are synthetic."""
    content = build_section(comparison, check, conservation, gallery, charts)
    mark = SYNTHETIC_MARK if synthetic else ""
    write_page(page, "radvlm.html.j2", radvlm=content, synthetic=synthetic, synthetic_mark=mark)
