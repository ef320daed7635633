"""Run the reports stage on given texts."""

import polars as pl

from cxr.base.tables import read_lines, read_table
from cxr.language.reports.read_reports import ReportsOptions, run_shard
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings


def outcomes(folder, texts: list[tuple[str | None, str | None]], **changes) -> tuple[dict, dict]:
    """Run the stage on (findings, impression) of studies 0, 1 …: {study: line} and {study: (reason, detail)}."""
    names = ["image_id", "study_id", "subject_id", "rank", "report_path", "findings", "impression"]
    rows = [(f"i{n}", f"{n}", f"p{n}", 0, None, *text) for n, text in enumerate(texts)]
    types = {name: pl.Int64 if name == "rank" else pl.String for name in names}
    pl.DataFrame(rows, schema=types, orient="row").write_parquet(folder / "cohort.parquet")
    paths = {"output": str(folder / "o.jsonl"), "excluded": str(folder / "e.parquet")}
    options = ReportsOptions(**stage_options(Settings())["reports"] | changes)
    run_shard(cohort=str(folder / "cohort.parquet"), **paths, options=options, attrs={})
    excluded = read_table(paths["excluded"])
    reasons = {
        study: (reason, detail) for study, reason, detail in excluded[:, ["study_id", "reason", "detail"]].rows()
    }
    return {line["study_id"]: line for line in read_lines(paths["output"])}, reasons
