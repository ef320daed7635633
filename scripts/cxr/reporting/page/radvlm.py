"""RadVLM's results: a section of the page, and a page of their own that `snakemake radvlm` ends in."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from cxr.base.atomic import atomic
from cxr.base.tables import read_lines, read_table
from cxr.reporting.page.embedding import data_url
from cxr.reporting.page.templates import template

RESOURCE_FILES = ("page",)
FOLDER = "results/radvlm/evaluation/"
TABLES = {
    "table2": "Table 2: what a model was made for, 1 or 0", "table3": "Table 3: reports, %",
    "figure4": "Figure 4: labels, %", "table4": "Table 4: boxes, mAP at IoU .5, %",
    "table5": "Table 5: conversations, a judge's score of 0 to 10", "table6": "Table 6: ablations",
    "ours": "What the paper has not, %",
}  # fmt: skip
CHARTS = {
    "looks.png": "Scores of the model, of the same with another patient's picture, and of answers that look at nothing",
    "labels.png": "F1 of each label, with intervals by patient; dashed: macro F1",
    "ablation.png": "Runs beside the paper's Table 6",
}
CASES = "gallery.jsonl"


def shown(extras: Mapping[str, str], embed: Callable[[str], str]) -> dict | None:
    """Return what the page of all results shows of RadVLM; None unless all of its files are among the ``extras``."""
    names = ("comparison.tsv", "judge_check.tsv", "conservation.tsv", f"gallery/{CASES}", *CHARTS)
    paths = [f"{FOLDER}{name}" for name in names]
    if not set(paths) <= extras.keys():
        return None
    comparison, check, conservation, cases, *charts = paths
    return section(comparison, check, conservation, Path(cases).parent, charts, embed)


def section(
    comparison: str, check: str, conservation: str, gallery: str | Path, charts: Sequence[str],
    embed: Callable[[str], str],
) -> dict:  # fmt: skip
    """Return the tables beside the paper's, the judge's check, the charts, the gallery, and what became of everything.

    ``charts``: of :data:`CHARTS`; ``embed``: returns the address of a picture.
    """
    cells = read_table(comparison).to_dicts()
    tables = {title: [cell for cell in cells if cell["table"] == name] for name, title in TABLES.items()}
    figures = [{"src": embed(path), "what": CHARTS[Path(path).name]} for path in charts]
    checks = read_table(check).to_dicts()
    cases = [line | {"src": embed(str(Path(gallery, line["file"])))} for line in read_lines(Path(gallery, CASES))]
    failed = [row["check"] for row in checks if row["passed"] not in (True, "true")]
    found = {"tables": tables, "figures": figures, "checks": checks, "cases": cases, "failed": failed}
    return found | {"conserved": _conserved(read_table(conservation))}


def _conserved(table: pl.DataFrame) -> list[dict]:
    """Return a row of each thing that is counted: how many there are, and what became of them."""
    held: dict[tuple[str, str, str], list[dict]] = {}
    for row in table.iter_rows(named=True):
        held.setdefault((row["stage"], row["of"], row["what"]), []).append(row)
    return [
        {"stage": stage, "of": of, "what": what, "number": whole["number"], "parts": parts}
        for (stage, of, what), (whole, *parts) in held.items()
    ]


def run(*, comparison: str, check: str, conservation: str, gallery: str, charts: Sequence[str], page: str) -> None:
    """Write the page of RadVLM alone."""
    made = section(comparison, check, conservation, gallery, charts, data_url)
    with atomic(page) as temporary:
        temporary.write_text(template("radvlm.html.j2").render(radvlm=made), encoding="utf-8")
