"""Write our scores in the form of the paper's Tables 1, 2 and 4. The paper's rows follow below ours."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from cxr.base.columns import Column, read_columns, schema
from cxr.base.resources import load_resource
from cxr.base.tables import write_rows
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.references import Reference

SCORES = read_columns("semisyn_detection", "scores")
DIFFERENCES = read_columns("semisyn_detection", "differences")
TABLE_1 = read_columns("semisyn_detection", "table_1")
RESOURCE_FILES = ("semisyn/paper_tables.yaml", "columns/semisyn_detection.toml")
OURS, PAPER = "ours", "paper"
MEAN = "mean"
BY_FINDING = {name: TABLE_1[name] for name in ("source", "run", "synthetic", "reference")} | {
    name: Column(pl.Float64, f"AP over IoU .1 to .7: {label.lower()}.", "%")
    for name, label in {**FINDINGS, MEAN: "mean over the findings with true boxes"}.items()
}
"""Columns of Tables 2 and 4."""


def read_paper_tables() -> dict:
    """Return the contents of paper_tables.yaml: the paper's Tables 1, 2 and 4, and the order of their findings."""
    return load_resource(RESOURCE_FILES[0])


def _printed_rows(name: str, columns: Sequence[str]) -> Iterator[dict]:
    """Yield the rows of the paper's table ``name``: source, run, number of synthetic images, a value per column."""
    for run, cells_by_size in read_paper_tables()[name]["rows"].items():
        for size, cells in cells_by_size.items():
            yield {"source": PAPER, "run": run, "synthetic": size} | dict(zip(columns, cells, strict=True))


def paper_scores() -> pl.DataFrame:
    """Return the values of the paper's Tables 2 and 4 as a table with the columns of :data:`SCORES`."""
    rows, findings = [], [*read_paper_tables()["findings"], MEAN]
    for name in ("table2", "table4"):
        for printed in _printed_rows(name, findings):
            head = {"run": f"{printed['run']} +{printed['synthetic']}", "source": PAPER}
            head |= {"reference": read_paper_tables()[name]["format"]}
            for finding in findings:
                if printed[finding] is not None:
                    metric = "map1070" if finding == MEAN else "ap1070"
                    rows.append(head | {"finding": finding, "metric": metric, "value": printed[finding]})
    return pl.DataFrame(rows, schema=schema(SCORES), orient="row")


def write_tables(
    table: pl.DataFrame, references: Mapping[str, Reference], synthetic: Mapping[str, int], paths: tuple[str, str, str]
) -> None:
    """Write the scores ``table`` to ``paths`` as Tables 1, 2 and 4. Table 4 has the references in VinDr's format, Table
    2 all other references. ``synthetic``: {run: number of synthetic images}."""
    printed_tables, ours = read_paper_tables(), table.filter(pl.col("seed").is_null())
    rows: dict[str, list[dict]] = {"table1": [], "table2": [], "table4": []}
    for (run, name), part in ours.group_by("run", "reference", maintain_order=True):
        values = {(f, m): v for f, m, v in part.select("finding", "metric", "value").iter_rows()}
        head = {"source": OURS, "run": run, "synthetic": synthetic.get(run), "reference": name}
        rows["table1"].append(head | {metric: values.get((MEAN, metric)) for metric in ("map1070", "map30")})
        cells = {finding: values.get((finding, "ap1070")) for finding in FINDINGS}
        target = "table4" if references[name].format == printed_tables["table4"]["format"] else "table2"
        rows[target].append(head | cells | {MEAN: values.get((MEAN, "map1070"))})
    for printed in _printed_rows("table1", printed_tables["table1"]["columns"]):
        for name in ("vindr", "ms_cxr"):
            row = {column.removeprefix(f"{name} "): value for column, value in printed.items()}
            rows["table1"].append({column: row.get(column, name) for column in TABLE_1})
    for name in ("table2", "table4"):
        reference = {"reference": printed_tables[name]["format"]}
        rows[name] += [row | reference for row in _printed_rows(name, [*printed_tables["findings"], MEAN])]
    for path, part, columns in zip(paths, rows.values(), (TABLE_1, BY_FINDING, BY_FINDING), strict=True):
        write_rows(path, part, columns)
