"""The stage radvlm_evaluation from lines and answers to the paper's tables."""

import json
import re
from base64 import b64encode
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from matplotlib.figure import Figure
from PIL import Image

from conftest import ROOT
from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.radvlm.evaluation import chart, compare, gallery, other_models, score_run
from cxr.radvlm.evaluation.columns import TABLES, read_scores
from cxr.radvlm.evaluation.conversations import run_check
from cxr.radvlm.evaluation.score_run import run_scores
from cxr.radvlm.samples import TEXT_TASKS
from cxr.reporting.page import radvlm
from cxr.vlm.answers import selection
from cxr.workflow.plan_radvlm import EvaluationPlan
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import read
from radvlm_scored import JUDGED, OPTIONS, answers_to, exchanged_of, lines_of, perceived, scored

TEST = lines_of(0, 9)
AFFINE = [[3.125, 0, -50.0], [0, 3.125, 0]]
"""To a picture of 200 rows and 100 columns from its frame of 64 px, padded to its sides."""
MAIN = {
    "report_generation": "rouge_l", "classification": "macro_f1_14", "anatomical_grounding": "map50",
    "abnormality_grounding": "map50", "abnormality_detection": "map50", "phrase_grounding": "map50",
    "absent_grounding": "box_rate", "conversation": "judge", "conversation_grounded": "judge",
}  # fmt: skip


def cells(folder, name="scores.tsv", part="all"):
    """Return {(task, metric): row} of a table of scores."""
    rows = read_scores(folder / name).filter(part=part).to_dicts()
    return {(row["task"], row["metric"]): row for row in rows}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Scores of right answers, which follow the picture that is shown."""
    return scored(tmp_path_factory.mktemp("right"), TEST, answers_to(TEST), perceived(TEST))


def test_right_answers_have_full_scores_in_every_task(right):
    found = cells(right)
    values = {task: found[task, metric]["value"] for task, metric in MAIN.items()}
    assert values == pytest.approx(
        dict.fromkeys(MAIN, 100.0) | {"absent_grounding": 0.0, "conversation": 10.0, "conversation_grounded": 10.0}
    )
    assert found["report_generation", "bleu"]["value"] == pytest.approx(100.0)
    assert found["conversation_grounded", "map50"]["value"] == 100.0
    assert found["abnormality_grounding", "coco_ap50"]["value"] == pytest.approx(100.0)
    assert found["abnormality_grounding", "coco_ap"]["value"] > 99  # two decimals are too few for an IoU of 0.95
    assert {row["failed"] for row in found.values()} == {0}
    assert {row["subjects"] for row in found.values()} == {9}


def test_one_who_looks_loses_with_another_patients_picture_and_beats_blind_answers(right):
    found = cells(right)
    for task in (
        "classification",
        "abnormality_detection",
        "conversation",
        "conversation_grounded",
        "report_generation",
    ):
        row = found[task, MAIN[task]]
        assert row["exchanged"] < row["value"], task
        assert row["drop_low"] > 0, task
        assert row["gain_low"] > 0, task
    heart = found["anatomical_grounding", "map50"]
    assert (heart["exchanged"], heart["blind"], heart["gain"]) == (100.0, 100.0, 0.0)  # hearts are alike here


def test_one_who_does_not_look_loses_nothing(tmp_path):
    found = cells(scored(tmp_path, TEST, answers_to(TEST), answers_to(TEST)))
    assert {row["drop"] for row in found.values() if row["drop"] is not None} == {0.0}


def test_the_blind_answers_are_the_mean_box_and_the_commonest_answer(right):
    table = read_table(right / "scores.tsv")
    row = table.filter(task="abnormality_grounding", metric="iou", part="Cardiomegaly").row(0, named=True)
    boxes = [line["boxes"]["Cardiomegaly"][0] for line in lines_of(100, 12)
             if line["task"] == "abnormality_grounding" and line["asked"] == "Cardiomegaly"]  # fmt: skip
    mean, ious = np.mean(boxes, axis=0), []
    for line in TEST:
        if line["task"] == "abnormality_grounding" and line["asked"] == "Cardiomegaly":
            (true,) = line["boxes"]["Cardiomegaly"]
            low, high = np.maximum(mean[:2], true[:2]), np.minimum(mean[2:], true[2:])
            shared = np.prod(high - low)
            ious.append(shared / (np.prod(mean[2:] - mean[:2]) + np.prod(np.subtract(true[2:], true[:2])) - shared))
    assert row["blind"] == pytest.approx(100 * np.mean(ious))
    labels = cells(right)["classification", "micro_f1_14"]
    counted = [line["labels"][0] for line in TEST if line["task"] == "classification"]
    assert labels["blind"] == pytest.approx(100 * counted.count("Cardiomegaly") / 9)  # one of four, the first by text


def test_each_sample_has_its_own_scores(right):
    table = read_table(right / "samples.parquet")
    assert len(table) == len(TEST)
    assert table.filter(task="phrase_grounding")["value"].to_list() == [100.0] * 9
    assert table["exchanged"].null_count() == 0
    assert totals(right) == [
        ("test", "asked", 81), ("test", "scored", 81), ("exchanged", "asked", 81), ("exchanged", "scored", 81),
    ]  # fmt: skip
    table = read_table(right / "counts.tsv").filter(pl.col("task") != "all")
    tasks = {line["task"] for line in TEST}
    assert {tuple(row) for row in table.rows()} == {
        (answers, task, outcome, 9)
        for answers in ("test", "exchanged") for task in tasks for outcome in ("asked", "scored")
    }  # fmt: skip


def totals(folder) -> list[tuple]:
    """Return what became of the samples of all tasks, and the answers of no sample."""
    table = read_table(folder / "counts.tsv")
    return table.filter(pl.col("task").is_in(["all", ""])).select("answers", "outcome", "number").rows()


def broken(answers):
    """Return the answers with one left out, one doubled, one failed and one that nobody asked."""
    kept = [one for one in answers if one["sample_id"] != "a0"]
    kept += [one for one in answers if one["sample_id"] == "a1"]
    kept = [one | {"failure": "too_long", "text": ""} if one["sample_id"] == "t2" else one for one in kept]
    return [*kept, answers[0] | {"sample_id": "nobody's"}]


@pytest.mark.parametrize(("failed", "value", "judge"), [("wrong", 700 / 9, 80 / 9), ("leave_out", 100.0, 10.0)])
def test_what_has_no_answer_is_counted_and_scored_as_it_is_set(tmp_path, failed, value, judge):
    folder = scored(tmp_path, TEST, broken(answers_to(TEST)), failed=failed)
    found = cells(folder)
    assert found["anatomical_grounding", "map50"]["value"] == pytest.approx(value)
    assert found["anatomical_grounding", "map50"]["failed"] == 2
    assert found["conversation", "judge"]["value"] == pytest.approx(judge)
    assert found["conversation", "judge"]["exchanged"] is None
    assert totals(folder) == [
        ("test", "asked", 81), ("test", "scored", 78), ("test", "duplicate", 1), ("test", "no_prediction", 1),
        ("test", "too_long", 1), ("test", "unknown", 1),
    ]  # fmt: skip
    counts = read_table(folder / "counts.tsv")
    assert counts.filter(task="anatomical_grounding").select("outcome", "number").rows() == [
        ("asked", 9), ("scored", 7), ("duplicate", 1), ("no_prediction", 1),
    ]  # fmt: skip
    assert counts.filter(task="conversation").select("outcome", "number").rows() == [
        ("asked", 9), ("scored", 8), ("too_long", 1),
    ]  # fmt: skip
    samples = read_table(folder / "samples.parquet")
    assert samples.filter(pl.col("failure") != "").select("sample_id", "failure").rows() == [
        ("a0", "no_prediction"), ("a1", "duplicate"), ("t2", "too_long"),
    ]  # fmt: skip


def test_of_a_run_on_some_tasks_the_other_answers_are_not_counted(tmp_path):
    """One that nobody asked still is."""
    told = [*answers_to(TEST), answers_to(TEST)[0] | {"sample_id": "nobody's"}]
    others = answers_to(exchanged_of(TEST))
    folder = scored(tmp_path, TEST, told, others, tasks=["phrase_grounding", "conversation"])
    assert {task for task, _ in cells(folder)} == {"phrase_grounding", "conversation"}
    assert totals(folder) == [
        ("test", "asked", 18), ("test", "scored", 18), ("test", "unknown", 1), ("exchanged", "asked", 18),
        ("exchanged", "scored", 18),
    ]  # fmt: skip


def test_samples_that_are_not_asked_are_none_of_the_counts(tables, tmp_path):
    """Four of nine samples a task, two of them without an answer; every fifth sample has no other picture."""
    others = [one for number, one in enumerate(exchanged_of(TEST)) if number % 5]
    files = {
        name: str(tmp_path / name) for name in ("all.jsonl", "others.jsonl", "t.jsonl", "t.tsv", "e.jsonl", "e.tsv")
    }
    write_lines(files["all.jsonl"], TEST)
    write_lines(files["others.jsonl"], others)
    selection.run(lines=files["all.jsonl"], selection=files["t.jsonl"], counts=files["t.tsv"], most=4)
    selection.run(
        lines=files["others.jsonl"], selection=files["e.jsonl"], counts=files["e.tsv"], most=4,
        among=[files["all.jsonl"]],
    )  # fmt: skip
    asked, other = list(read_lines(files["t.jsonl"])), list(read_lines(files["e.jsonl"]))
    said = [one for one in answers_to(asked) if one["sample_id"] not in (asked[0]["sample_id"], asked[1]["sample_id"])]
    folder = scored(tmp_path / "scores", asked, said, answers_to(other), exchanged=other, draw=[files["t.tsv"]],
                    exchanged_draw=[files["e.tsv"]])  # fmt: skip
    assert totals(folder) == [
        ("test", "asked", 36), ("test", "scored", 34), ("test", "no_prediction", 2), ("test", "not_asked", 45),
        ("exchanged", "asked", len(other)), ("exchanged", "scored", len(other)),
        ("exchanged", "not_asked", 64 - len(other)),
    ]  # fmt: skip
    of_tasks = read_table(folder / "counts.tsv").filter(pl.col("outcome") == "not_asked", pl.col("answers") == "test")
    assert of_tasks.select("task", "number").rows() == [("all", 45), *((task, 5) for task in sorted(MAIN))]
    samples = read_table(folder / "samples.parquet")
    assert set(samples["sample_id"]) == {one["sample_id"] for one in asked}
    paired = samples.filter(pl.col("exchanged").is_not_null())["sample_id"]
    assert set(paired) == {one["sample_id"] for one in other} < set(samples["sample_id"])
    assert {row["samples"] for row in cells(folder).values()} == {4}
    compare.run_comparison(
        scored=[str(folder / "scores.tsv")], judge_check=str(tables / "check.tsv"), draw=[files["t.tsv"]],
        comparison=str(tmp_path / "comparison.tsv"), runs=["radvlm"], adapters={},
    )  # fmt: skip
    ours = read_table(tmp_path / "comparison.tsv").filter(pl.col("by") == "ours", pl.col("table") != "table2")
    assert set(ours["note"]) == {"4 of 9 samples asked"}
    some = scored(tmp_path / "some", asked, said, tasks=["conversation"], draw=[files["t.tsv"]])
    assert totals(some) == [("test", "asked", 4), ("test", "scored", 4), ("test", "not_asked", 5)]


def test_a_failure_counts_as_a_box_where_there_is_none(tmp_path):
    told = [one for one in answers_to(TEST) if one["sample_id"] != "n0"]
    assert cells(scored(tmp_path, TEST, told))["absent_grounding", "box_rate"]["value"] == pytest.approx(100 / 9)


def test_the_same_answers_give_the_same_bytes(right, tmp_path):
    again = scored(tmp_path, TEST, answers_to(TEST)[::-1], perceived(TEST)[::-1])
    for name in ("scores.tsv", "samples.parquet", "counts.tsv", "judged.jsonl"):
        assert (again / name).read_bytes() == (right / name).read_bytes(), name


def test_reports_are_compared_with_their_own_section_too(tmp_path):
    own = [{"source": "own", "study_id": f"s{number}", "text": "Stable."} for number in range(9)]
    write_lines(tmp_path / "texts.jsonl", own)
    folder = scored(tmp_path, TEST, answers_to(TEST), reference="both", texts=[str(tmp_path / "texts.jsonl")])
    rows = read_table(folder / "scores.tsv").filter(task="report_generation", metric="rouge_l")
    assert rows.select("reference", "value").rows() == [("filtered", 100.0), ("original", 0.0)]


def test_a_metric_whose_model_did_not_run_is_no_row(right, tmp_path, caplog):
    told = {"report_metrics": ["rouge_l", "green"]}
    assert ("report_generation", "green") not in cells(scored(tmp_path / "none", TEST, answers_to(TEST), **told))
    assert "green: no score, because there are no annotations: set `radvlm.evaluation.annotators` or" in caplog.text
    caplog.clear()
    notes = [{"metric": "green", "engine": "by hand", "sample_id": f"r{number}", "of": "filtered", "matched": 1,
              "errors": number % 3} for number in range(9)]  # fmt: skip
    write_lines(tmp_path / "notes.jsonl", notes)
    told["annotations"] = [str(tmp_path / "notes.jsonl")]
    found = cells(scored(tmp_path / "notes", TEST, answers_to(TEST), **told))
    assert found["report_generation", "green"]["value"] == pytest.approx(100 * (1 + 1 / 2 + 1 / 3) / 3)
    assert "no annotations" not in caplog.text


def test_a_conversation_without_a_judgement_is_counted(right, tmp_path):
    judged = [one | ({"score": None} if (one["answers"], one["sample_id"]) == ("test", "t3") else {})
              for one in read_lines(right / "judged.jsonl")]  # fmt: skip
    write_lines(tmp_path / "judged.jsonl", judged)
    run_scores(
        lines=str(right / "test.jsonl"), train=str(right / "train.jsonl"), answers=str(right / "answers.jsonl"),
        judged=str(tmp_path / "judged.jsonl"), samples=str(tmp_path / "samples.parquet"),
        scored=str(tmp_path / "scores.tsv"), counts=str(tmp_path / "counts.tsv"), options=OPTIONS, seed=1,
    )  # fmt: skip
    wanted = {"all": len(TEST), "conversation": 9}
    for task, number in wanted.items():
        counts = read_table(tmp_path / "counts.tsv").filter(answers="test", task=task).select("outcome", "number")
        assert counts.rows() == [("asked", number), ("scored", number - 1), ("unscored", 1)]
    value = cells(tmp_path)["conversation", "judge"]["value"]
    assert value == pytest.approx(10 * 8 / 9)  # as a failure


def test_samples_that_get_lost_on_the_way_stop_the_job(tmp_path, monkeypatch):
    original = score_run.group_samples
    message = r"^radvlm_evaluation: samples of test, all: 81 in, 72 accounted for \(scored 72, unscored 0\): an item"
    with monkeypatch.context() as patched:
        patched.setattr(score_run, "group_samples", lambda *of: list(original(*of))[1:])
        with pytest.raises(AssertionError, match=message):
            scored(tmp_path, TEST, answers_to(TEST))
    assert not (tmp_path / "scores.tsv").exists()


def test_a_failure_that_no_count_has_stops_the_job(tmp_path, monkeypatch):
    original = score_run.join_answers
    monkeypatch.setattr(score_run, "join_answers", lambda *of: (original(*of)[0], Counter()))
    with pytest.raises(AssertionError, match=r"samples of test, all: 81 in, 78 accounted for"):
        scored(tmp_path, TEST, broken(answers_to(TEST)))


def test_a_conversation_that_the_judge_was_not_given_stops_the_job(right, tmp_path):
    """It is no failure of the model, nor of the judge: its judgement got lost."""
    judged = [one for one in read_lines(right / "judged.jsonl") if one["sample_id"] != "t3"]
    write_lines(tmp_path / "judged.jsonl", judged)
    with pytest.raises(
        AssertionError, match=r"samples of test, all: 81 in, 80 accounted for \(scored 80, unscored 0\)"
    ):
        run_scores(
            lines=str(right / "test.jsonl"), train=str(right / "train.jsonl"), answers=str(right / "answers.jsonl"),
            judged=str(tmp_path / "judged.jsonl"), samples=str(tmp_path / "samples.parquet"),
            scored=str(tmp_path / "scores.tsv"), counts=str(tmp_path / "counts.tsv"), options=OPTIONS, seed=1,
        )  # fmt: skip


# The paper's tables


@pytest.fixture(scope="module")
def tables(right, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    run_check(lines=str(right / "test.jsonl"), checked=str(folder / "check.tsv"), **JUDGED, execution={})
    compare.run_comparison(
        scored=[str(right / "scores.tsv")] * 2, judge_check=str(folder / "check.tsv"),
        comparison=str(folder / "comparison.tsv"), runs=["radvlm", "single"], adapters={},
    )  # fmt: skip
    return folder


def test_the_judge_passes_on_these_conversations(tables):
    rows = read_table(tables / "check.tsv")
    assert rows.filter(~pl.col("passed")).rows() == []
    assert rows["conversations"].to_list() == [18] * 9


def test_without_a_conversation_the_judge_is_not_judged(right, tmp_path):
    write_lines(tmp_path / "test.jsonl", [line for line in TEST if line["task"] == "classification"])
    run_check(lines=str(tmp_path / "test.jsonl"), checked=str(tmp_path / "c.tsv"), **JUDGED, execution={})
    assert len(read_table(tmp_path / "c.tsv")) == 0
    compare.run_comparison(
        scored=[str(right / "scores.tsv")], judge_check=str(tmp_path / "c.tsv"),
        comparison=str(tmp_path / "comparison.tsv"), runs=["radvlm"], adapters={},
    )  # fmt: skip
    assert set(read_table(tmp_path / "comparison.tsv").filter(table="table5", by="ours")["note"]) == {""}


def test_every_number_of_the_paper_stands_beside_ours(tables):
    table = read_scores(tables / "comparison.tsv", TABLES)
    printed = yaml.safe_load((ROOT / "resources/radvlm/paper_tables.yaml").read_text())
    for name in ("table2", "table3", "figure4", "table4", "table5", "table6"):
        for model, values in printed[name]["rows"].items():
            found = table.filter(table=name, by="paper", model=model)["value"].to_list()
            assert found == values, (name, model)
    ours = table.filter(table="table4", by="ours", model="radvlm").select("column", "value").rows()
    assert ours == [("anatomical", 100.0), ("abnormality", 100.0), ("phrase", 100.0)]
    assert table.filter(by="people").select("column", "value").rows() == [("abnormality", 73.12)]
    assert set(table.filter(table="table6", by="ours")["model"]) == {"radvlm", "single"}
    assert table.filter(table="table3", column="green", by="ours").rows() == []


def test_annotated_reports_stand_beside_the_papers(tables, tmp_path):
    heart = ["heart", "Anatomy::definitely present"]
    notes = [
        {"engine": "by hand", "sample_id": f"r{number}"} | one
        for number in range(9)
        for one in (
            {"metric": "radgraph_f1", "of": "answer", "entities": [[*heart, number == 0]]},
            {"metric": "radgraph_f1", "of": "filtered", "entities": [[*heart, True]]},
            {
                "metric": "green",
                "of": "filtered",
                **({"matched": 3, "errors": 1} if number else {"failure": "no part"}),
            },
        )
    ]
    write_lines(tmp_path / "notes.jsonl", notes)
    told = {"report_metrics": ["radgraph_f1", "green"], "annotations": [str(tmp_path / "notes.jsonl")]}
    compare.run_comparison(
        scored=[str(scored(tmp_path / "run", TEST, answers_to(TEST), **told) / "scores.tsv")] * 2,
        judge_check=str(tables / "check.tsv"), comparison=str(tmp_path / "comparison.tsv"),
        runs=["radvlm", "single"], adapters={},
    )  # fmt: skip
    table = read_scores(tmp_path / "comparison.tsv", TABLES).filter(pl.col("column").is_in(["radgraph_f1", "green"]))
    for name, row in (("table3", "RadVLM"), ("table6", "all")):
        printed = dict(table.filter(table=name, by="paper", model=row).select("column", "value").rows())
        ours = dict(table.filter(table=name, by="ours", model="radvlm").select("column", "value").rows())
        assert printed == {"radgraph_f1": 17.7, "green": 24.9}
        assert ours == {"radgraph_f1": pytest.approx(100 / 9), "green": pytest.approx(100 * 8 * 0.75 / 9)}


def test_what_ils_adds_is_a_table_of_all_runs(right, tables, tmp_path):
    """Table 6b has boxes, absent findings, the judge, and masks of the runs that have some, as ILS scores them."""
    measured = pl.DataFrame({"lesion": ["edema", "total"], "positives": [3, 7], "negatives": [4, 9]})
    for name, value in (("giou", 41.5), ("n_acc", 88.25)):
        made = {name: [1.0, value], f"{name}_low": [0.5, value - 2], f"{name}_high": [None, None]}
        measured = measured.with_columns(**{key: pl.Series(held, dtype=pl.Float64) for key, held in made.items()})
    measured.write_csv(tmp_path / "scores.tsv", separator="\t")
    compare.run_comparison(
        scored=[str(right / "scores.tsv")] * 2, judge_check=str(tables / "check.tsv"),
        comparison=str(tmp_path / "comparison.tsv"), masks_scored=[str(tmp_path / "scores.tsv")],
        runs=["all", "without"], adapters={}, masked=[["all", "head"]],
    )  # fmt: skip
    table = read_scores(tmp_path / "comparison.tsv", TABLES).filter(table="table6b", by="ours")
    values = {(row["model"], row["column"]): row["value"] for row in table.to_dicts()}
    same = {"abnormality": 100.0, "phrase": 100.0, "absent": 0.0, "standard": 10.0, "grounded": 10.0}
    wanted = {(run, column): value for run in ("all", "without") for column, value in same.items()}
    assert values == wanted | {("all", "giou"): 41.5, ("all", "n_acc"): 88.25}
    masks = table.filter(pl.col("column").is_in(["giou", "n_acc"]))
    assert masks.select("low", "high", "samples", "note").rows() == [
        (39.5, None, 7, "masks of the model's head"), (86.25, None, 9, "masks of the model's head"),
    ]  # fmt: skip


def test_a_judge_that_fails_its_check_is_told_in_the_table(right, tables, tmp_path):
    rows = read_table(tables / "check.tsv").with_columns(passed=pl.lit(False)).head(1)
    rows.write_csv(tmp_path / "check.tsv", separator="\t")
    compare.run_comparison(
        scored=[str(right / "scores.tsv")], judge_check=str(tmp_path / "check.tsv"),
        comparison=str(tmp_path / "comparison.tsv"), runs=["radvlm"], adapters={},
    )  # fmt: skip
    table = read_table(tmp_path / "comparison.tsv").filter(table="table5", by="ours")
    assert set(table["note"]) == {"the judge fails its check: expected answers"}
    assert (
        len(read_table(tmp_path / "comparison.tsv").filter(table="table6", by="ours")) == 0
    )  # one run ablates nothing


def test_cells_of_tasks_that_a_model_was_not_made_for_say_so(right, tables, tmp_path):
    compare.run_comparison(
        scored=[], models_scored=[str(right / "scores.tsv")], judge_check=str(tables / "check.tsv"),
        comparison=str(tmp_path / "comparison.tsv"), runs=[], adapters={"m": "chexagent"},
    )  # fmt: skip
    ours = read_table(tmp_path / "comparison.tsv").filter(by="ours", model="m").filter(pl.col("table") != "table2")
    marked = {
        (row["column"], row["note"]) for row in ours.filter(pl.col("table").is_in(["table4", "table5"])).to_dicts()
    }
    beyond = "asked beyond what it was made for"
    assert marked == {
        ("anatomical", beyond),
        ("abnormality", ""),
        ("phrase", ""),
        ("standard", beyond),
        ("grounded", beyond),
    }


def lines_of_table_6(tables) -> list:
    axes = Figure().subplots()
    assert not chart.draw_ablations(read_scores(tables / "comparison.tsv", TABLES), axes)
    return list(axes.lines)


def test_table_6_is_drawn_with_every_column_that_the_paper_has(tables):
    drawn = {line.get_label() for line in lines_of_table_6(tables)}
    printed = yaml.safe_load((ROOT / "resources/radvlm/paper_tables.yaml").read_text())["table6"]
    assert {f"{column} (paper)" for column in printed["columns"]} <= drawn


def test_no_two_columns_of_table_6_look_alike(tables):
    lines = lines_of_table_6(tables)
    looks = {line.get_label().partition(" (")[0]: (line.get_color(), line.get_marker()) for line in lines}
    assert len(looks) > 7
    assert len(set(looks.values())) == len(looks)
    assert len({line.get_color() for line in lines if line.get_label().endswith("(paper)")}) == 8


def test_the_charts_are_drawn_with_and_without_scores(tables, tmp_path):
    empty = read_table(tables / "comparison.tsv").filter(pl.col("by") == "paper")
    empty.write_csv(tmp_path / "empty.tsv", separator="\t")
    for number, path in enumerate((tables / "comparison.tsv", tmp_path / "empty.tsv")):
        names = {name: str(tmp_path / f"{name}{number}.png") for name in ("labels", "ablation", "looks")}
        chart.run(comparison=str(path), **names, dpi=60)
        assert all(Path(name).read_bytes()[:4] == b"\x89PNG" for name in names.values())


# Other models


def test_outputs_of_another_model_are_read_by_its_declared_grammar(tmp_path):
    asked = {line["sample_id"]: line for line in TEST}
    given = [
        {"sample_id": "b0", "text": "<|ref|>it<|/ref|><|box|>(10,10),(45,90)<|/box|>"},
        {"sample_id": "c0", "text": "Pleural effusion<|box|></s>"}, {"sample_id": "t0", "text": "Hello."},
        {"sample_id": "r0", "failure": "refused"},
    ]  # fmt: skip
    told = list(other_models.convert_answers(given, asked, {}, "m", "chexagent", "", False))
    assert [(one["sample_id"], one["text"], one["failure"]) for one in told] == [
        ("b0", given[0]["text"], ""), ("c0", "Pleural effusion", ""), ("r0", "", "refused"),
    ]  # fmt: skip
    assert {one["convention"] for one in told} == {"hundred"}
    beyond = list(other_models.convert_answers(given, asked, {}, "m", "chexagent", "", True))
    assert [one["sample_id"] for one in beyond] == ["b0", "c0", "t0", "r0"]


def test_bins_are_mapped_back_from_the_crop_that_a_model_saw(tmp_path):
    """No output of MAIRA-2 could be had: the file is ours, in the format of its card."""
    crop = [0.0, 0.25, 1.0, 0.75]
    given = [{"sample_id": "b0", "text": "<obj>effusion<box><x10><y00><x44><y99></box></obj>", "crop": crop}]
    asked = {line["sample_id"]: line for line in TEST}
    (told,) = other_models.convert_answers(given, asked, {}, "m", "maira2", "", False)
    from cxr.radvlm.evaluation.answers import join_answers

    said, _ = join_answers([asked["b0"]], [told])
    np.testing.assert_allclose(said["b0"].boxes().boxes, [[0.105, 0.2525, 0.445, 0.7475]])


def test_pixels_are_those_of_the_original_picture(tmp_path):
    table = pl.DataFrame({"source": ["own"], "image_id": ["i0"], "columns": [2000], "rows": [1000]})
    table.write_csv(tmp_path / "images.tsv", separator="\t")
    write_lines(tmp_path / "test.jsonl", TEST)
    write_lines(tmp_path / "given.jsonl", [{"sample_id": "b0", "text": "[200, 100, 900, 900]"}])
    other_models.run_read(
        lines=str(tmp_path / "test.jsonl"), path=str(tmp_path / "given.jsonl"), images=[str(tmp_path / "images.tsv")],
        answers=str(tmp_path / "answers.jsonl"), model="m", adapter="jsonl", boxes="pixels", beyond=False,
    )  # fmt: skip
    found = cells(scored(tmp_path / "s", [TEST[3]], list(read_lines(tmp_path / "answers.jsonl"))))
    assert found["abnormality_grounding", "map50"]["value"] == 100.0


@pytest.mark.parametrize(
    "given",
    [
        {"text": "no id"},
        {"sample_id": 7, "text": ""},
        {"sample_id": "b0", "text": None},
        {"sample_id": "b0", "turn": "1"},
        {"sample_id": "b0", "text": "", "crop": "left"},
        {"sample_id": "b0", "text": "", "crop": [0, 0.5, 1, 0.2]},
    ],
)
def test_an_output_without_id_or_text_stops_with_its_line(given):
    with pytest.raises(UserError, match=r"radvlm\.evaluation\.predictions\.m\.path, line 1"):
        list(other_models.convert_answers([given], {}, {}, "m", "jsonl", "", False))


def test_what_models_are_asked_is_written_down():
    rows = list(other_models.build_questions(TEST[:9], False))
    of = {(row["adapter"], row["sample_id"], row["turn"]): row["question"] for row in rows}
    assert "Pneumothorax, Pleural Effusion" in of["chexagent", "c0", 0]  # it lists the labels
    assert of["maira2", "b0", 0].endswith("Pleural Effusion")
    assert of["llava_ov", "t0", 1] == "Is there a cardiomegaly?"
    assert ("chexagent", "t0", 0) not in of
    assert ("chexagent", "a0", 0) not in of
    assert all(row["made_for"] for row in rows)
    beyond = [row for row in other_models.build_questions(TEST[:9], True) if not row["made_for"]]
    assert ("chexagent", "a0") in {(row["adapter"], row["sample_id"]) for row in beyond}


# The gallery


def test_the_gallery_draws_the_boxes_of_both_answers(tmp_path):
    scored(tmp_path, TEST, answers_to(TEST))
    for folder, grey in (("frames", 90), ("another", 200)):  # of another source, whose images have the same ids
        (tmp_path / folder).mkdir()
        with ShardWriter(tmp_path / folder / "00.h5", pictures=("image",)) as writer:
            for number in range(9):
                writer.append(
                    f"i{number}", image=np.full((64, 64), grey, np.uint8), to_original=np.array(AFFINE),
                    original_shape=np.array([200, 100], np.int32),
                )  # fmt: skip
    files = {"lines": str(tmp_path / "test.jsonl"), "answers": [str(tmp_path / "answers.jsonl")]}
    folders = {"own": str(tmp_path / "frames"), "more": str(tmp_path / "another")}
    files |= {"frames": [f"{folder}/00.h5" for folder in folders.values()]}
    files |= {"model": "radvlm", "quality": 90, "seed": 1, "folders": folders}
    gallery.run(**files, folder=str(tmp_path / "gallery"), withheld=False)
    rows = [json.loads(text) for text in (tmp_path / "gallery/gallery.jsonl").read_text().splitlines()]
    assert [row["task"] for row in rows].count("conversation") == 2
    assert {row["task"] for row in rows} == set(MAIN)
    gallery.run(**files, folder=str(tmp_path / "withheld"), withheld=True)
    shown = {row["task"] for row in read_lines(tmp_path / "withheld/gallery.jsonl")}
    assert shown == set(MAIN) - {*TEXT_TASKS}  # they quote reports, or come from their text
    grounded = next(row for row in rows if row["task"] == "conversation_grounded")
    assert "[0." in grounded["turns"][-1]["expected"]
    for row in rows:
        with Image.open(tmp_path / "gallery" / row["file"]) as picture:
            assert np.median(picture) == pytest.approx(90, abs=1)


def test_boxes_are_drawn_where_they_are_without_the_frames_padding():
    frame = np.full((64, 64), 90, np.uint8)
    affine = np.array(AFFINE)
    picture = gallery.draw_boxes(frame, affine, (200, 100), np.array([[0.25, 0.25, 0.75, 0.5]]), np.zeros((0, 4)))
    assert picture.shape == (480, 240, 3)
    green = (picture == np.array(gallery.GREEN)).all(axis=2)
    rows, columns = np.nonzero(green)
    assert (columns.min(), rows.min()) == pytest.approx((60, 120), abs=1)
    assert (columns.max(), rows.max()) == pytest.approx((179, 239), abs=1)


def test_the_page_shows_the_tables_the_judges_check_and_the_gallery(tables, tmp_path, monkeypatch):
    folder = tmp_path / "results/radvlm/evaluation"
    (folder / "gallery").mkdir(parents=True)
    (folder / "comparison.tsv").write_bytes((tables / "comparison.tsv").read_bytes())
    (folder / "judge_check.tsv").write_bytes((tables / "check.tsv").read_bytes())
    case = {"file": "a.jpg", "task": "conversation", "run": "radvlm", "turns": []}
    write_lines(folder / "gallery/gallery.jsonl", [case])
    told = (
        "stage\tof\twhat\toutcome\tnumber\nradvlm_sources\town\timages\tall\t3\nradvlm_sources\town\timages\tkept\t3\n"
    )
    (folder / "conservation.tsv").write_text(told)
    names = ("comparison.tsv", "judge_check.tsv", "gallery/gallery.jsonl", "labels.png", "ablation.png", "looks.png")
    names = (*names, "conservation.tsv")
    extras = {f"results/radvlm/evaluation/{name}": "" for name in names}
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as context:
        context.setattr(radvlm, "image_file_url", lambda path: f"embedded {path}")
        shown = radvlm.find_section(extras)
    assert shown["failed"] == []
    assert shown["cases"] == [case | {"src": "embedded results/radvlm/evaluation/gallery/a.jpg"}]
    assert [len(table["rows"]) > 0 for table in shown["tables"].values()] == [True] * 7
    (row,) = shown["conserved"]
    assert (row["stage"], row["of"], row["what"], row["number"]) == ("radvlm_sources", "own", "images", 3)
    assert [(part["outcome"], part["number"]) for part in row["parts"]] == [("kept", 3)]
    assert radvlm.find_section(dict.fromkeys(list(extras)[1:], "")) is None

    charts = [str(folder / name) for name in radvlm.CHARTS]
    for number, path in enumerate([*charts, folder / "gallery/a.jpg"]):
        Path(path).write_bytes(bytes([number]))
    turn = {"question": "<b>Where?", "expected": "Left.", "answer": "Right."}
    write_lines(folder / "gallery/gallery.jsonl", [case | {"source": "own", "image_id": "i", "turns": [turn]}])
    paths = {name: str(folder / f"{name}.tsv") for name in ("comparison", "conservation")}
    radvlm.run(
        **paths, check=str(folder / "judge_check.tsv"), gallery=str(folder / "gallery"), charts=charts,
        page=str(folder / "index.html"), synthetic=True,
    )  # fmt: skip
    page = (folder / "index.html").read_text(encoding="utf-8")
    places = [page.index(f"base64,{b64encode(bytes([number])).decode()}") for number in (3, 0, 1, 2)]
    assert places == sorted(places)  # the picture of the conversation, then the charts
    assert "&lt;b&gt;Where?" in page
    assert "<td>Left.</td><td>Right.</td>" in page
    assert "Table 3: reports" in page
    assert "Synthetic images and reports" in page.partition("</header>")[0]
    assert "<td>ours (synthetic)</td>" in page
    assert "<td>paper</td>" in page
    assert len(re.findall("<caption>[^<]*; ours are of synthetic data</caption>", page)) == 7


def test_a_table_of_the_page_has_a_row_for_each_model_and_a_column_for_each_score():
    cell = {"table": "table4", "by": "ours", "model": "a", "source": "own", "column": "anatomical", "value": 50.0}
    cell |= {"low": 40.04, "high": 61.0, "exchanged": 12.0, "samples": 9, "note": "few"}
    paper = dict.fromkeys(cell) | {"table": "table4", "by": "paper", "model": "b", "column": "phrase", "value": 82.8}
    table = radvlm.build_table([cell, cell | {"column": "phrase", "value": 0.0, "low": None, "exchanged": None}, paper])
    assert table["columns"] == ["phrases", "regions"]  # the paper's first
    assert [(row["model"], row["cells"], row["notes"]) for row in table["rows"]] == [
        ("a", ["0.0", "50.0\n[40.0, 61.0]"], "few"),
        ("a: images of other patients", ["", "12.0"], "few"),
        ("b", ["82.8", ""], ""),
    ]
    ability = cell | {"table": "table2", "low": None, "exchanged": None}
    assert radvlm.build_table([ability | {"value": 1.0}, ability | {"model": "c", "value": 0.0}])["rows"][1][
        "cells"
    ] == ["no"]


def test_the_page_of_a_real_cohort_does_not_say_synthetic(tables, tmp_path):
    page = page_of(tables, tmp_path, synthetic=False)
    assert "synthetic" not in page.partition("</style>")[2].lower()


def test_charts_without_a_score_of_ours_are_left_out(tables, tmp_path):
    table = read_table(tables / "comparison.tsv").filter(pl.col("by") == "paper")
    table.write_csv(tmp_path / "comparison.tsv", separator="\t")
    page = page_of(tmp_path, tmp_path, synthetic=False)
    assert "data:image/png" not in page
    assert "No answer was scored" in page.partition("</header>")[0]


def page_of(tables: Path, folder: Path, *, synthetic: bool) -> str:
    """Return the page of a comparison, without samples."""
    (folder / "gallery").mkdir()
    write_lines(folder / "gallery/gallery.jsonl", [])
    (folder / "conservation.tsv").write_text("stage\tof\twhat\toutcome\tnumber\n")
    (folder / "check.tsv").write_text("check\tpassed\n")
    charts = [folder / name for name in radvlm.CHARTS]
    for path in charts:
        path.touch()
    radvlm.run(
        comparison=str(tables / "comparison.tsv"), check=str(folder / "check.tsv"), gallery=str(folder / "gallery"),
        conservation=str(folder / "conservation.tsv"), charts=list(map(str, charts)), page=str(folder / "page.html"),
        synthetic=synthetic,
    )  # fmt: skip
    return (folder / "page.html").read_text(encoding="utf-8")


def test_the_result_is_how_many_scores_need_the_picture():
    cell = {"table": "table4", "model": "a", "source": "own", "exchanged": 10.0, "low": 20.0, "value": 30.0}
    scores = [
        cell | {"column": "anatomical"},  # above both
        cell | {"column": "phrase", "low": 10.0},  # above none: the interval reaches both
        cell | {"column": "abnormality", "low": None, "exchanged": None},  # without an interval, the value
        cell | {"column": "other", "model": "b"},  # of a second run
        cell | {"column": "all", "table": "table6"},  # the same again
    ]
    blind = [
        cell | {"model": "a: without the image", "column": name, "value": 15.0} for name in ("anatomical", "phrase")
    ]
    sentence = radvlm.describe_result(scores, blind)
    assert sentence.startswith("The run a: 1 of 2 scores are above those of answers made without the image, and 1 ")


@pytest.mark.parametrize(
    ("change", "withheld"),
    [
        ({}, False),  # the embedded cohort's texts are drawn
        ({"cohort": {"source": "manifest", "manifest": "x.csv"}}, True),
        ({"cohort": {"source": "manifest", "manifest": "x.csv"}, "release": {"withhold": []}}, False),
        ({"radvlm": {"sources": {"use": ["own", "a"], "list": {"a": {"format": "chexpert_plus", "path": "x"}}}}}, True),
    ],
)
def test_the_gallery_shows_no_text_of_people_whose_reports_are_withheld(change, withheld):
    settings = read(change)
    vlm = VlmPlan(settings.vlm, "cpu", 0, list(settings.radvlm.instructions.mixes))
    plan = EvaluationPlan(settings, vlm)
    assert plan.gallery["withheld"] == withheld
