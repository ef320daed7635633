"""The comparison: scores of all runs and models beside the published Tables 2 to 6, and further scores."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from cxr.base.resources import load_resource
from cxr.base.tables import read_table, write_rows
from cxr.radvlm.evaluation.columns import TABLES, read_scores
from cxr.radvlm.evaluation.measures import ALL
from cxr.radvlm.evaluation.other_models import Adapter, load_adapters

RESOURCE_FILES = ("radvlm/paper_tables.yaml", "radvlm/our_tables.yaml", "radvlm/models.yaml")
MASKS = {"giou": "positives", "n_acc": "negatives"}  # {mask measure of the ILS evaluation: its number of pairs}
MASK_NOTES = {"head": "masks of the model's head", "tool": "masks of ROSALIA as a tool"}
ORDER = ("table2", "table3", "figure4", "table4", "table5", "table6", "table6b", "ours")
SCORE_COLUMNS = ("value", "low", "high", "exchanged", "samples")


def _cell(table: str, by: str, model: str, source: str, column: str, note: str = "", **values: object) -> dict:
    fields = {"table": table, "by": by, "model": model, "source": source, "column": column, "note": note}
    return fields | values


def paper_cells() -> Iterator[dict]:
    """Yield rows of the comparison for the paper's tables, and for the agreement between human readers."""
    paper_tables = dict(load_resource(RESOURCE_FILES[0]))
    for column, entry in paper_tables.pop("people").items():
        values = {"value": entry["value"], "samples": entry["samples"]}
        yield _cell("table4", "people", "readers of VinBigData", "vindr", column, entry["note"], **values)
    for table, entry in paper_tables.items():
        for model, values in entry["rows"].items():
            note = entry.get("notes", {}).get(model, "")
            for column, value in zip(entry["columns"], values, strict=True):
                yield _cell(table, "paper", model, "", column, note, value=None if value is None else float(value))


def scored_cells(
    name: str, scores: pl.DataFrame, judged: str,
    sampling_notes: Mapping[tuple[str, str], str], adapter: Adapter | None = None,
) -> Iterator[dict]:  # fmt: skip
    """Yield rows of the comparison for a run or model, and for answers without the image (blind).

    ``judged``: note on the judge's scores; ``sampling_notes``: {(task, source): note on the number of samples};
    ``adapter``: adapter of an external model.
    """
    overall_rows = scores.filter(pl.col("part") == ALL, pl.col("reference") != "original")
    cells = [
        (table, column, row)
        for table, columns in load_resource(RESOURCE_FILES[1])["cells"].items()
        for column, (task, metric) in columns.items()
        for row in overall_rows.filter(task=task, metric=metric).to_dicts()
    ]
    label_rows = scores.filter(task="classification", metric="f1").to_dicts()
    for table, column, row in [*cells, *(("figure4", row["part"], row) for row in label_rows)]:
        made_for = adapter is None or adapter.made_for(row["task"])
        judge_note = judged if row["metric"] == "judge" else ""
        beyond = "" if made_for else "asked beyond what it was made for"
        note = "; ".join(filter(None, (beyond, judge_note, sampling_notes.get((row["task"], row["source"]), ""))))
        yield _cell(table, "ours", name, row["source"], column, note, **{key: row[key] for key in SCORE_COLUMNS})
        if row["part"] == ALL and row["blind"] is not None:
            blind = {"value": row["blind"], "samples": row["samples"]}
            yield _cell(table, "blind", f"{name}: without the image", row["source"], column, **blind)


def run_comparison(
    *, scored: Sequence[str], judge_check: str, comparison: str, runs: list[str], adapters: Mapping[str, str],
    masked: Sequence[Sequence[str]] = (), models_scored: Sequence[str] = (), masks_scored: Sequence[str] = (),
    draw: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write the comparison. ``adapters``: {external model: adapter}; ``masked``: [run, ``head`` or ``tool``] for each
    file of mask scores in ``masks_scored``; ``draw``: tables of the numbers of available and asked samples."""
    drawn_rows = [row for path in draw for row in read_table(path).to_dicts() if row["asked"] < row["samples"]]
    sampling_notes = {
        (row["task"], row["source"]): f"{row['asked']} of {row['samples']} samples asked" for row in drawn_rows
    }
    failed = [row["check"] for row in read_table(judge_check).to_dicts() if not row["passed"]]
    note = f"the judge fails its check: {', '.join(failed)}" if failed else ""
    cells = []
    for name, path in zip(runs, scored, strict=True):
        cells += scored_cells(name, read_scores(path), note, sampling_notes)
    for (run, join), path in zip(masked, masks_scored, strict=True):  # masks of ILS pairs
        (row,) = read_table(path).filter(lesion="total").to_dicts()
        for name, number in MASKS.items():
            raw_values = {"value": row[name], "low": row[f"{name}_low"], "high": row[f"{name}_high"]}
            values = {key: None if value in (None, "") else float(value) for key, value in raw_values.items()}
            cells.append(_cell("ours", "ours", run, "own", name, MASK_NOTES[join], **values, samples=row[number]))
    ours = [cell for run in runs for cell in cells if cell["by"] == "ours" and cell["model"] == run]
    for table, columns in load_resource(RESOURCE_FILES[1])["ablations"].items() if len(runs) > 1 else ():
        cells += [cell | {"table": table} for cell in ours if cell["column"] in columns]
    for (name, kind), path in zip(adapters.items(), models_scored, strict=True):
        cells += scored_cells(name, read_scores(path), note, sampling_notes, load_adapters()[kind])
    for name in (*runs[:1], *adapters):  # Table 2: abilities
        adapter = load_adapters()[adapters[name]] if name in adapters else None
        for column, tasks in load_resource(RESOURCE_FILES[1])["abilities"].items():
            is_able = adapter is None or any(map(adapter.made_for, tasks))
            cells.append(_cell("table2", "ours", name, "", column, value=float(is_able)))
    cells += paper_cells()
    write_rows(comparison, sorted(cells, key=lambda cell: ORDER.index(cell["table"])), TABLES)
