"""The experts' audit of queries: pages whose boxes are the answer's, votes, Table 7, and the paper's printed values."""

import csv
import io
import json
import re
from collections import Counter

import cv2
import numpy as np
import polars as pl
import pytest
import yaml

from conftest import ROOT
from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.tables import read_lines, read_table, write_lines, write_table
from cxr.medground.dataset import gallery
from cxr.medground.dataset.make_dataset import UNITS
from cxr.reporting.review import queries, unit_pages
from medground_data import make_queries_of, make_regions_of, read_source, regions_of, source_keys

PRINTED = yaml.safe_load((ROOT / "resources/medground/paper_tables.yaml").read_text())["table7"]


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """A source of drawn cells with its queries, and the table that the pages are made of."""
    folder = tmp_path_factory.mktemp("audit") / "cells"
    read_source(folder, source_keys(kind="cells", domain="nuclei"), cells=8, name="cells")
    make_regions_of(folder)
    make_queries_of(folder, "cells")
    return folder


def write_units(folder, **more) -> pl.DataFrame:
    options = {"queries": 0, "seed": 1, "source_names": ["cells"]} | more
    gallery.run_units(
        lines=str(folder / "queries/00.jsonl"), images=[str(folder / "sources/images.parquet")],
        regions=[str(folder / "regions/00.parquet")], sources=[str(folder / "sources/00.h5")],
        units=str(folder / "shown.parquet"), **options,
    )  # fmt: skip
    return read_table(folder / "shown.parquet")


def test_a_unit_shows_its_querys_boxes_and_no_others(cells):
    table = {row["unit"]: row for row in write_units(cells).iter_rows(named=True)}
    lines = {line["query_id"]: line for line in read_lines(cells / "queries/00.jsonl")}
    boxes = {(row["image_id"], row["region"]): row for row in regions_of(cells)}
    assert table.keys() == lines.keys()
    for name, row in table.items():
        line = lines[name]
        assert ["Query", line["query"]] in row["facts"]
        wanted = np.zeros((256, 256), bool)
        for at in line["regions"]:
            x1, y1, x2, y2 = (boxes[line["image_id"], at][side] for side in ("x1", "y1", "x2", "y2"))
            wanted[y1:y2, x1:x2] = True
        mask, also = (cv2.imdecode(np.frombuffer(row[part], np.uint8), 0) > 0 for part in ("mask", "also"))
        np.testing.assert_array_equal(mask, wanted)
        count = sum(image == line["image_id"] for image, _ in boxes)
        assert cv2.connectedComponents(also.astype(np.uint8), connectivity=4)[0] - 1 <= count
        assert also[wanted].any()
        assert not row["sides"]


def test_as_many_queries_are_drawn_as_are_asked_for(cells):
    every = set(write_units(cells)["unit"])
    few = set(write_units(cells, queries=5)["unit"])
    assert len(few) == 5
    assert few < every
    assert few != set(write_units(cells, queries=5, seed=2)["unit"])


def test_a_test_split_without_a_query_is_refused(cells, tmp_path):
    write_lines(tmp_path / "none.jsonl", [])
    with pytest.raises(UserError, match="has no query"):
        gallery.run_units(
            lines=str(tmp_path / "none.jsonl"), images=[], regions=[], sources=[], units=str(tmp_path / "x"),
            queries=0, seed=1, source_names=[],
        )  # fmt: skip


def filled(page: str, items: pl.DataFrame, said: dict[str, str]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["item", "verdict", "note", "seconds", "page"])
    writer.writerows([row["item"], said[row["unit"]], "", 3, page] for row in items.iter_rows(named=True))
    return out.getvalue()


def test_from_pages_over_sheets_to_table_7(cells, tmp_path):
    """Experts of known verdicts: good, ambiguous and wrong box by number of the query."""
    table = write_units(cells)
    lines = {line["query_id"]: line for line in read_lines(cells / "queries/00.jsonl")}
    experts = ["A", "B", "C"]
    pages = [str(tmp_path / f"page_{one}.html") for one in experts]
    unit_pages.run_pages(
        units=str(cells / "shown.parquet"), pages=pages, items_table=str(tmp_path / "items.parquet"),
        experts=experts, form="queries", seed=1, fewer="draw fewer",
    )  # fmt: skip
    data = json.loads(re.search(r'id="data">(.*?)</script>', (tmp_path / "page_A.html").read_text())[1])
    assert data["form"]["outline"]
    assert all(item["also"].startswith("data:image/png") and item["sides"] is False for item in data["items"])
    assert not [name for name in lines if name in (tmp_path / "page_A.html").read_text()]
    names = sorted(table["unit"])
    good = {name: at % 4 for at, name in enumerate(names)}  # of 0 to 3 experts
    items = read_table(tmp_path / "items.parquet")
    for at, one in enumerate(experts):
        part = items.filter(expert=one)
        said = {name: "good" if at < good[name] else ("ambiguous", "wrong box")[at % 2] for name in names}
        (tmp_path / f"{one}.csv").write_text(filled(part["page"][0], part, said))
    unit_pages.run_answers(
        items_table=str(tmp_path / "items.parquet"), answers=str(tmp_path / "answers.parquet"),
        sheets=[str(tmp_path / f"{one}.csv") for one in experts],
        form="queries", setting="review.sheets",
    )  # fmt: skip
    units = [{name: line[name] for name in UNITS} for line in lines.values()]
    write_table(tmp_path / "units.parquet", pl.DataFrame(units, schema=schema(UNITS)), UNITS)
    queries.run(
        units=str(tmp_path / "units.parquet"), answers=str(tmp_path / "answers.parquet"),
        audit=str(tmp_path / "audit.parquet"), table7=str(tmp_path / "table7.tsv"), agreed=str(tmp_path / "a.tsv"),
        experts=experts, rule="majority", seed=1,
    )  # fmt: skip
    audit = {row["query_id"]: row for row in read_table(tmp_path / "audit.parquet").iter_rows(named=True)}
    assert {name: row["good"] for name, row in audit.items()} == good
    assert {name for name, row in audit.items() if row["accepted"]} == {name for name in names if good[name] >= 2}
    assert all(len(row["faults"]) == 3 - row["good"] for row in audit.values())
    assert audit[names[0]]["faults"] == ["ambiguous", "wrong box", "ambiguous"]
    ours = next(row for row in read_table(tmp_path / "table7.tsv").to_dicts() if row["by"] == "ours")
    counts = Counter(good.values())
    assert (ours["source"], ours["votes"]) == ("cells", "/".join(str(counts[at]) for at in (3, 2, 1, 0)))
    assert ours["accepted"] == counts[3] + counts[2]
    agreed = read_table(tmp_path / "a.tsv").to_dicts()[-1]
    assert (agreed["source"], agreed["unanimous"]) == ("total", counts[3] + counts[0])


@pytest.mark.parametrize(("good", "all_", "most"), [(3, True, True), (2, False, True), (1, False, False)])
def test_who_must_find_a_query_good(good, all_, most):
    assert queries.is_accepted(good, 3, "all") is all_
    assert queries.is_accepted(good, 3, "majority") is most


def test_half_of_the_experts_are_no_majority():
    assert not queries.is_accepted(2, 4, "majority")


def test_the_papers_ratios_follow_from_its_votes_but_where_it_is_noted():
    """T16: each ratio of Table 7 to the printed digit, but FHPsAOP's; the sum is that of the text."""
    votes = queries.count_votes(
        pl.DataFrame(schema={"query_id": pl.String, "source": pl.String, "image_id": pl.String}),
        pl.DataFrame(schema={name: column.kind for name, column in unit_pages.ANSWERS.items()}), "majority",
    )  # fmt: skip
    rows = queries.tabulate_rates(votes, PRINTED, 3).filter(by="paper").to_dicts()
    off = {row["source"]: round(row["rate"], 2) for row in rows if round(row["rate"], 2) != row["printed"]}
    assert off == {"FHPsAOP": 83.57}
    assert sum(row["queries"] for row in rows) == PRINTED["sum"]["total"] == 10010
    assert sum(row["accepted"] for row in rows) == PRINTED["sum"]["accepted"]
    assert all(row["queries"] == PRINTED["rows"][row["source"]]["total"] for row in rows)
