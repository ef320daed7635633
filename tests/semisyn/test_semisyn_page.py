"""The section of SemiSynCXR on the page: there only if its tables and its sheet are."""

import polars as pl

from cxr.base.tables import write_table
from cxr.reporting.page import render
from cxr.semisyn.dataset.job_tables import CONSERVATION
from cxr.semisyn.healthy.select_healthy import FUNNEL

FILES = ("healthy/funnel.tsv", "dataset/conservation.tsv", "dataset/sheet.jpg")


def test_the_section_shows_the_funnel_the_jobs_and_the_sheet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    funnel = [("view PA", 9, 5, "not_pa 4", None), ("healthy", 5, 5, "", 24_555)]
    jobs = [("edema", 6, 7, 0, 7, 1, 6, 0, 6, "yes"), ("all", 6, 7, 0, 7, 1, 6, 0, 6, "yes")]
    for name, rows, columns in ((FILES[0], funnel, FUNNEL), (FILES[1], jobs, CONSERVATION)):
        path = tmp_path / "results/semisyn" / name
        path.parent.mkdir(parents=True)
        write_table(
            path, pl.DataFrame(rows, schema={key: one.kind for key, one in columns.items()}, orient="row"), columns
        )
    extras = {f"results/semisyn/{name}": "digest" for name in FILES}
    monkeypatch.setattr(render, "image_file_url", lambda path: f"picture of {path}")
    made = render._semisyn_section(extras)
    assert (made["images"], made["sheet"]) == (6, "picture of results/semisyn/dataset/sheet.jpg")
    assert made["funnel"][0]["paper"] in (None, "")
    assert [row["finding"] for row in made["jobs"]] == ["edema", "all"]
    for missing in extras:
        assert render._semisyn_section({name: "" for name in extras if name != missing}) is None
