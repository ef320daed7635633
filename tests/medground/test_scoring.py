"""Scores of answers against independent oracles: a raster, COCO's tools, pairs counted by hand."""

import json

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco

from conftest import ROOT
from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.tables import read_lines, read_table, write_lines, write_table
from cxr.geometry.unions import union_iou
from cxr.medground.scoring import scores as score_tables
from cxr.medground.scoring.scores import (
    COMPARISON,
    both_correct,
    matched_iou,
    mean_with_interval,
    run_comparison,
    run_scores,
)
from cxr.medground.stage_settings import ScoringOptions

OPTIONS, SEED = ScoringOptions(replicates=200), 7
PAPER = yaml.safe_load((ROOT / "resources/medground/paper_tables.yaml").read_text(encoding="utf-8"))
box = st.tuples(*[st.integers(0, 990)] * 2, *[st.integers(1, 400)] * 2).map(
    lambda b: (b[0], b[1], min(1000, b[0] + b[2]), min(1000, b[1] + b[3]))
)


def raster(boxes) -> np.ndarray:
    plane = np.zeros((1000, 1000), bool)
    for x1, y1, x2, y2 in boxes:
        plane[y1:y2, x1:x2] = True
    return plane


@given(st.lists(box, max_size=6), st.lists(box, min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_iou_of_unions_equals_a_raster_of_1000(found, true):
    one, other = raster(found), raster(true)
    wanted = (one & other).sum() / (one | other).sum()
    assert union_iou(np.array(found, int).reshape(-1, 4), np.array(true)) == wanted


@given(box, box)
@settings(max_examples=300, deadline=None)
def test_iou_of_single_boxes_equals_cocos(found, true):
    as_coco = [[[float(x1), float(y1), float(x2 - x1), float(y2 - y1)]] for x1, y1, x2, y2 in (found, true)]
    wanted = coco.iou(np.array(as_coco[0]), np.array(as_coco[1]), [0])[0, 0]
    assert union_iou(np.array([found]), np.array([true])) == pytest.approx(wanted, abs=1e-12)


@given(box, box.filter(lambda b: b[2] - b[0] > 5), box, st.sampled_from([0.5, 0.7, 0.9]))
@settings(max_examples=300, deadline=None)
def test_no_constant_answer_is_right_for_two_boxes_apart(constant, first, second, tau):
    """From .5 on: 1 - IoU is a metric, and two boxes that share nothing are 1 apart."""
    one, other = np.array([first]), np.array([second])
    if union_iou(one, other) > 0:
        return
    ious = {"a": union_iou(np.array([constant]), one), "b": union_iou(np.array([constant]), other)}
    assert both_correct([{"first": "a", "second": "b"}], ious, tau)[0] == 0


def test_below_a_half_a_constant_answer_can_be_right_for_both():
    first, second, constant = (0, 0, 100, 100), (100, 0, 200, 100), (0, 0, 200, 100)
    ious = {name: union_iou(np.array([constant]), np.array([true])) for name, true in (("a", first), ("b", second))}
    assert both_correct([{"first": "a", "second": "b"}], ious, 0.3)[0] == 1


def test_pairs_by_hand():
    ious = {"a": 0.9, "b": 0.6, "c": 0.5, "d": 0.2, "e": 1.0, "f": 0.0}
    cases = [
        ("a", "b", 1), ("a", "c", 0), ("b", "c", 0), ("a", "d", 0), ("a", "e", 1), ("b", "e", 1), ("e", "f", 0),
        ("d", "f", 0), ("c", "e", 0), ("e", "a", 1), ("f", "f", 0), ("c", "c", 0),
    ]  # fmt: skip
    pairs = [{"first": one, "second": other} for one, other, _ in cases]
    np.testing.assert_array_equal(both_correct(pairs, ious, 0.5), [right for *_, right in cases])
    assert both_correct(pairs, ious, 0.5).mean() == 4 / 12


def test_a_box_too_many_counts_like_one_that_is_missing():
    two = np.array([[0, 0, 10, 10], [20, 20, 30, 30]])
    assert matched_iou(two, two) == 1
    assert matched_iou(two[::-1], two) == 1
    assert matched_iou(two[:1], two) == matched_iou(two, two[:1]) == 0.5
    assert matched_iou(np.zeros((0, 4), int), two) == 0
    # the best of all matches, not in the order of the boxes, which would be (.5 + .4) / 2
    first, second = np.array([[0, 0, 10, 10], [0, 0, 10, 5]]), np.array([[0, 0, 10, 5], [0, 0, 10, 2]])
    assert matched_iou(first, second) == pytest.approx((1.0 + 0.2) / 2)


def test_intervals_are_by_subject():
    values = np.array([[100.0], [100.0], [0.0], [0.0]])
    mean, low, high = mean_with_interval(values, ["p", "p", "q", "q"], replicates=500, level=0.95, seed=1)
    assert (mean[0], low[0], high[0]) == (50, 0, 100)  # two subjects: a draw has both, or one twice
    mean, low, high = mean_with_interval(values, ["a", "b", "c", "d"], replicates=500, level=0.5, seed=1)
    assert 0 < low[0] < 50 < high[0] < 100
    mean, *_ = mean_with_interval(np.array([[np.nan], [40.0]]), ["a", "b"], replicates=0, level=0.95, seed=1)
    assert mean[0] == 40


def line(name: str, image: str, region: int, true: list, **more) -> dict:
    same = {"query_id": name, "source": "s", "image_id": image, "subject_id": f"p{image}", "split": "test"}
    return same | {"kind": "single", "trivial": False, "by_class": False, "regions": [region], "boxes": true} | more


LINES = [
    line("a", "1", 0, [[0, 0, 100, 100]]),
    line("b", "1", 1, [[500, 500, 700, 600]]),
    line("c", "2", 0, [[0, 0, 200, 200]], trivial=True),
    line("d", "3", 0, [[0, 0, 100, 100], [300, 300, 400, 400]], kind="subset", by_class=True, regions=[0, 1]),
]
TEXTS = {
    "a": '{"bbox_2d": [0, 0, 100, 100]}', "b": '{"bbox_2d": [500, 500, 700, 700]}', "c": "no idea", "d": None,
}  # fmt: skip


@pytest.fixture
def files(tmp_path) -> dict:
    """Four queries on three images: right, half right, unreadable, not answered."""
    said = [
        {
            "sample_id": name,
            "turn": 0,
            "text": text or "",
            "tokens": 9,
            "stop": "end",
            "failure": "" if text else "too_long",
        }
        | {"convention": "grid1000", "seen": [500, 500]}
        for name, text in TEXTS.items()
    ]
    write_lines(tmp_path / "answers.jsonl", said)
    write_lines(tmp_path / "test.jsonl", LINES)
    write_lines(tmp_path / "train.jsonl", [{"source": "s", "boxes": [[0, 0, 100, 100], [100, 100, 300, 300]]}])
    pairs = [{"source": "s", "image_id": "1", "first": "a", "second": "b", "same_class": True}]
    write_lines(tmp_path / "pairs.jsonl", pairs)
    regions = [
        ("1", 0, 9, True, 0, 0, 100, 100), ("1", 1, 20, True, 500, 500, 700, 600), ("1", 2, 99, False, 0, 0, 9, 9),
        ("2", 0, 4, True, 0, 0, 200, 200), ("3", 0, 5, True, 0, 0, 100, 100), ("3", 1, 5, True, 300, 300, 400, 400),
    ]  # fmt: skip
    named = ["image_id", "region", "area", "candidate", "gx1", "gy1", "gx2", "gy2"]
    (tmp_path / "s").mkdir()
    write_table(tmp_path / "s/00.parquet", pl.DataFrame(regions, schema=named, orient="row"))
    inputs = {"answers": "answers.jsonl", "lines": "test.jsonl", "train": "train.jsonl", "pairs": "pairs.jsonl"}
    outputs = {"queries": "q.parquet", "scored": "scores.tsv", "pairs_scored": "pairs.tsv"}
    return {name: str(tmp_path / file) for name, file in (inputs | outputs).items()} | {
        "regions": [str(tmp_path / "s/00.parquet")]
    }


def test_a_run_by_hand(files):
    run_scores(**files, options=OPTIONS, seed=SEED)
    table = {row["query_id"]: row for row in read_table(files["queries"]).iter_rows(named=True)}
    assert {name: row["iou"] for name, row in table.items()} == {"a": 1, "b": 0.5, "c": 0, "d": 0}
    outcomes = {name: (row["outcome"], row["reason"]) for name, row in table.items()}
    assert outcomes == {
        "a": ("boxes", ""),
        "b": ("boxes", ""),
        "c": ("unreadable", "nothing"),
        "d": ("failed", "too_long"),
    }
    blind = {name: [row[each] for each in score_tables.BLIND] for name, row in table.items()}
    # largest, all candidates, mean box [50, 50, 200, 200], picture, the image's other answer
    assert blind["a"] == pytest.approx([0, 10000 / 30000, 2500 / (10000 + 22500 - 2500), 0.01, 0])
    assert blind["b"] == pytest.approx([1, 20000 / 30000, 0, 0.02, 0])
    assert blind["d"] == pytest.approx([0.5, 1, 2500 / (20000 + 22500 - 2500), 0.02, None], nan_ok=True)
    scores = {row["part"]: row for row in read_table(files["scored"]).filter(source="s").iter_rows(named=True)}
    assert scores["all"]["queries"] == 4
    assert (scores["all"]["iou"], scores["all"]["acc"]) == (37.5, 25.0)  # .5 does not exceed .5
    assert (scores["all"]["unreadable"], scores["all"]["failed"]) == (50, 1)
    assert scores["not_trivial"]["iou"] == 50
    assert scores["single"]["iou"] == 50
    assert scores["not_by_class"]["iou"] == 50
    assert scores["subset"]["iou"] == 0
    assert "all_of_class" not in scores
    pairs = {(row["pairs_of"], row["tau"]): row for row in read_table(files["pairs_scored"]).iter_rows(named=True)}
    assert {tau: pairs["all", tau]["sensitivity"] for tau in (0.3, 0.5, 0.7)} == {0.3: 100, 0.5: 0, 0.7: 0}
    assert ("other_classes", 0.5) not in pairs
    assert pairs["same_class", 0.3]["swapped"] == 0


def test_numbers_are_read_in_the_runs_convention_and_as_the_paper_did(files, tmp_path):
    said = {"turn": 0, "tokens": 9, "stop": "length", "failure": "", "convention": "pixels_resized", "seen": [500, 500]}
    write_lines(files["answers"], [said | {"sample_id": "b", "text": '[{"bbox_2d": [250, 250, 350, 300]}, {"bb'}])
    run_scores(**files, options=OPTIONS, seed=SEED)
    row = read_table(files["queries"]).filter(query_id="b").row(0, named=True)
    assert (row["iou"], row["paper"], row["notes"]) == (1.0, 0.0, ["truncated"])


def test_an_audit_leaves_lines_out(files, tmp_path):
    votes = pl.DataFrame({"query_id": ["a", "c", "d"], "accepted": [True, False, True]})
    write_table(tmp_path / "audit.parquet", votes)
    run_scores(**files, options=OPTIONS, seed=SEED, audit=[str(tmp_path / "audit.parquet")])
    assert read_table(files["queries"])["query_id"].to_list() == ["a", "d"]
    assert read_table(files["pairs_scored"]).is_empty()  # its other member was not judged
    write_table(tmp_path / "audit.parquet", pl.DataFrame({"query_id": ["a", "x", "y"], "accepted": [True] * 3}))
    with pytest.raises(
        UserError,
        match="has votes on 2 queries that are no longer in the dataset, such as x: review the queries again",
    ):
        run_scores(**files, options=OPTIONS, seed=SEED, audit=[str(tmp_path / "audit.parquet")])


def test_queries_that_are_not_asked_are_not_scored(files, tmp_path):
    """Votes on them still stand; a pair with one of them is left out."""
    write_lines(tmp_path / "drawn.jsonl", [line for line in LINES if line["query_id"] in ("a", "d")])
    write_lines(files["answers"], [one for one in read_lines(files["answers"]) if one["sample_id"] in ("a", "d")])
    run_scores(**files, options=OPTIONS, seed=SEED, sampled=[str(tmp_path / "drawn.jsonl")])
    table = read_table(files["queries"])
    assert table.select("query_id", "reason").rows() == [("a", ""), ("d", "too_long")]
    total = read_table(files["scored"]).filter(source="total", part="all").row(0, named=True)
    assert (total["queries"], total["failed"], total["iou"]) == (2, 1, 50)
    assert read_table(files["pairs_scored"]).is_empty()
    write_table(tmp_path / "audit.parquet", pl.DataFrame({"query_id": ["a", "c"], "accepted": [True, True]}))
    told = {"audit": [str(tmp_path / "audit.parquet")], "sampled": [str(tmp_path / "drawn.jsonl")]}
    run_scores(**files, options=OPTIONS, seed=SEED, **told)
    assert read_table(files["queries"])["query_id"].to_list() == ["a"]


def test_answers_to_other_queries_are_refused(files):
    write_lines(files["answers"], [{"sample_id": "zz"}])
    with pytest.raises(UserError, match=r"answers the query zz, which .* lacks: delete .* and rerun"):
        run_scores(**files, options=OPTIONS, seed=SEED)


def test_the_comparison_has_the_runs_the_blind_and_the_paper(files, tmp_path):
    run_scores(**files, options=OPTIONS, seed=SEED)
    two = {"scored": [files["scored"]] * 2, "pairs_scored": [files["pairs_scored"]] * 2}
    path = str(tmp_path / "comparison.tsv")
    run_comparison(**two, comparison=path, runs=["one", "two"], zero_shot_runs=[], tau=0.5)
    table = read_table(path)
    assert table.columns == list(schema(COMPARISON))
    ours = table.filter((pl.col("by") == "ours") & (pl.col("table") == "iou") & (pl.col("source") == "s"))
    assert dict(ours.select("model", "value").iter_rows()) == {"one": 37.5, "two": 37.5}
    blind = table.filter((pl.col("by") == "blind") & (pl.col("source") == "s") & (pl.col("table") == "iou"))
    assert sorted(blind["model"]) == ["candidates", "largest", "mean_box", "one: shuffled", "picture", "two: shuffled"]
    assert "zero_shot" not in set(table["table"])
    one = {name: held[:1] for name, held in two.items()}
    zero_shot = {"zero_shot_runs": ["one", "base"], "zero_shot": [files["scored"]] * 2}
    run_comparison(**one, comparison=path, runs=["one"], tau=0.5, **zero_shot)
    new = read_table(path).filter((pl.col("table") == "zero_shot") & (pl.col("source") == "total"))
    assert dict(new.filter(by="ours").select("model", "value").iter_rows()) == {"one": 37.5, "base": 37.5}
    assert {"largest", "candidates", "picture"} <= set(new.filter(by="blind")["model"])
    printed = table.filter(by="paper")
    assert len(printed) == 3 * 5 * 8 + 3 * 3 * 2
    wanted = PAPER["table3"]["finetuned"]["Qwen3-VL-8B"][0]
    row = printed.filter((pl.col("model") == "Qwen3-VL-8B, finetuned") & (pl.col("source") == "ISIC2016"))
    assert row["value"].to_list() == [wanted] == [86.4]


def test_a_baseline_without_a_value_is_no_row(files, tmp_path):
    """A zero-shot source has no training lines and may have one query an image: two columns are empty."""
    run_scores(**files, options=OPTIONS, seed=SEED)
    scores = read_table(files["scored"]).with_columns(
        pl.lit(None, pl.Float64).alias(name) for name in ("mean_box", "shuffled")
    )
    write_table(tmp_path / "zero_shot.tsv", scores, score_tables.SCORES)
    run_comparison(
        scored=[files["scored"]], pairs_scored=[files["pairs_scored"]], comparison=str(tmp_path / "c.tsv"),
        runs=["one"], zero_shot_runs=["one"], tau=0.5, zero_shot=[str(tmp_path / "zero_shot.tsv")],
    )  # fmt: skip
    new = read_table(tmp_path / "c.tsv").filter((pl.col("table") == "zero_shot") & (pl.col("source") == "s"))
    assert new["model"].to_list() == ["one", "largest", "candidates", "picture"]


def test_the_papers_deltas_are_its_differences():
    third = PAPER["table3"]
    gaps = {
        (model, source): round(after - before - delta, 1)
        for model in third["base"]
        for source, before, after, delta in zip(
            third["columns"], *(third[state][model] for state in ("base", "finetuned", "delta")), strict=True
        )
    }
    assert len(gaps) == 40
    assert {name for name, gap in gaps.items() if gap} == set()


def test_lines_and_answers_are_plain(files):
    run_scores(**files, options=OPTIONS, seed=SEED)
    assert json.loads(read_table(files["queries"]).select("boxes").write_json())[0]["boxes"] == [[0, 0, 100, 100]]
