"""Review in the workflow: from the pages over filled sheets to the tables, the filtered split, and the evaluation."""

import csv
import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from conftest import SLICE, snakemake, write_settings
from cxr.base.tables import read_lines, read_table
from declared_tables import tables_of
from review_cases import cells
from table_columns import TABLES


def fill(folder: Path, items: pl.DataFrame, rejected: dict[str, set[int]]) -> None:
    """Write the sheets of experts who reject these units."""
    folder.mkdir()
    for (expert,), part in items.group_by("expert", maintain_order=True):
        with open(folder / f"review_{expert}.csv", "w", newline="", encoding="utf-8-sig") as file:
            writer = csv.writer(file)
            writer.writerow(["item", "verdict", "note", "seconds", "page"])
            for row in part.iter_rows(named=True):
                bad = row["unit"] in rejected.get(expert, ())
                note = 'too large, "by far"' if bad else ""
                writer.writerow([row["item"], "not acceptable" if bad else "acceptable", note, 4, row["page"]])


@pytest.mark.slow
def test_the_round_trip_to_the_evaluation(workflow_run, tmp_path):
    split = max(
        ("train", "validate", "test"),
        key=lambda name: len((workflow_run / f"results/dataset/default/{name}.jsonl").read_text().splitlines()),
    )
    run = tmp_path / "run"
    shutil.copytree(workflow_run, run, symlinks=True)
    review = {"split": split, "experts": ["A", "B"]}
    settings = SLICE | {"review": review, "inference": {"split": split}}
    write_settings(run, settings)
    refused = snakemake(run, "review_merge", check=False)
    assert refused.returncode != 0
    assert "review.sheets is empty: give the experts' filled sheets" in refused.stderr
    folder = run / "results/review/default"
    assert not folder.exists()  # before any job
    snakemake(run, "review")
    before = (folder / "page_A.html").read_bytes()
    items, table, decoys = (read_table(folder / f"{name}.parquet") for name in ("items", "units", "decoys"))
    lines = list(read_lines(run / f"results/dataset/default/{split}.jsonl"))
    assert sorted(table["pair_ids"].explode()) == sorted(each["pair_id"] for each in lines)

    wrong = set(decoys["unit"])
    assert wrong
    assert wrong.isdisjoint(table["unit"])
    assert wrong <= set(items["unit"])
    positive = table.filter(pl.col("mask_id").is_not_null())["unit"].to_list()
    negative = items.filter(pl.col("expert") == "B", ~pl.col("unit").is_in([*positive, *wrong]))["unit"].to_list()
    gone = {positive[0], positive[1], negative[0]}
    fill(run / "filled", items, {"A": {positive[0], *wrong}, "B": {positive[0], positive[1], negative[0]}})
    write_settings(run, settings | {"review": review | {"sheets": ["filled"]}})
    snakemake(run, "review_merge")
    assert (folder / "page_A.html").read_bytes() == before

    left = {pair for row in table.iter_rows(named=True) if row["unit"] in gone for pair in row["pair_ids"]}
    source = (run / f"results/dataset/default/{split}.jsonl").read_text().splitlines()
    kept = [text for text in source if json.loads(text)["pair_id"] not in left]
    assert (folder / f"{split}.jsonl").read_text().splitlines() == kept
    assert 0 < len(kept) < len(source)
    overall = cells(read_table(folder / "experts.tsv"), source="ours", expert="overall", group="positive")
    assert (overall["accepted"], overall["units"]) == (len(positive) - 2, len(positive))
    assert read_table(folder / "rejected.tsv")["unit"].to_list() == sorted(gone)
    assert 'B: too large, "by far"' in read_table(folder / "rejected.tsv")["notes"][0]
    total = cells(read_table(folder / "agreement.tsv"), lesion="total")
    assert (total["units"], total["unanimous"]) == (len(positive), len(positive) - 1)

    # A rejected all decoys, B none; they count nowhere else
    reliability = read_table(folder / "reliability.tsv")
    careful, careless = (cells(reliability, expert=name, group="total") for name in "AB")
    assert careful["false_alarm_rate"] == 0
    assert careful["corrected"] == careful["hit_rate"]
    assert (careless["false_alarm_rate"], careless["corrected"]) == (100, None)
    assert set(read_table(folder / "judgements.parquet")["unit"]) <= set(table["unit"])
    assert set(read_table(folder / "rejected.tsv")["unit"]) <= set(table["unit"])

    declared = {path: why for path, why in tables_of(run).items() if "review" in path}
    assert declared == dict.fromkeys((path for path in TABLES if "/review/{thresholds}/" in path), "")

    # what the merge wrote is what the evaluation takes
    others = {"reviewed": "results/review/default/left_out.txt", "predictions": {"all": {"adapter": "everything"}}}
    write_settings(run, settings | {"review": review | {"sheets": ["filled"]}, "evaluation": others, "replicates": 0})
    done = snakemake(run, "results/evaluation/all/scores.tsv")
    assert "review" not in {word.rstrip(":") for word in done.stderr.split() if word.startswith("review_")}
    scored = read_table(run / "results/evaluation/all/pairs.parquet")
    assert set(scored.filter(pl.col("reason") == "reviewed")["pair_id"]) == left
