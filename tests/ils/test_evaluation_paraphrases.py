"""Change by other wordings: differences of scores and their intervals equal those of a plain resampling."""

import numpy as np
import polars as pl
import pytest

from cxr.base.tables import read_table, write_table
from cxr.ils.evaluation import answer_rules, paraphrases
from cxr.ils.evaluation.evaluate import run_comparison
from cxr.ils.evaluation.paraphrases import ALL_PERSONAS, compare_wordings
from cxr.metrics.intervals import difference_intervals, draw_weights
from evaluation_cases import SIZE
from scored import own, score
from scored_pairs import rows

SEED = 5


def pairs(seed: int) -> pl.DataFrame:
    """Pairs that are the same for every seed, with scores that are not."""
    scores = ["intersection", "union", "iou", *answer_rules.RULES]
    return rows(1).with_columns(rows(seed).select(scores))


def of(table: pl.DataFrame, lesion: str, measure: str, persona: str = "layperson") -> dict:
    chosen = (pl.col("lesion") == lesion) & (pl.col("measure") == measure) & (pl.col("persona") == persona)
    (row,) = table.filter(chosen).iter_rows(named=True)
    return row


def test_changes_and_intervals_are_those_of_a_plain_resampling():
    plain, asked = pairs(1), pairs(2)
    made = compare_wordings("mine", plain, {"layperson": asked}, 70, SEED)
    names = sorted(set(plain["subject_id"]))

    def measured(drawn: np.ndarray, table: pl.DataFrame, lesion: str) -> dict[str, float]:
        times = dict(zip(names, drawn, strict=True))
        many = pl.concat([table.filter(pl.col("subject_id") == name) for name in names for _ in range(times[name])])
        many = many if lesion == "total" else many.filter(pl.col("target") == lesion)
        positive, negative = (many.filter(pl.col("polarity") == which) for which in ("positive", "negative"))
        return {
            "giou": positive["iou"].mean(), "ciou": positive["intersection"].sum() / positive["union"].sum(),
            "n_acc": negative["iou"].mean(), "text_strict": many["strict"].mean(),
            "text_authors": many["authors"].mean(),
        }  # fmt: skip

    once = np.ones(len(names), int)
    draws = np.concatenate(list(draw_weights(len(names), 70, 5)))
    for lesion in ("total", "edema"):
        before, after = measured(once, plain, lesion), measured(once, asked, lesion)
        each = [(measured(drawn, plain, lesion), measured(drawn, asked, lesion)) for drawn in draws]
        for measure in before:
            row = of(made, lesion, measure)
            assert row["plain"] == pytest.approx(100 * before[measure], abs=0.006)
            assert row["reworded"] == pytest.approx(100 * after[measure], abs=0.006)
            assert row["change"] == pytest.approx(100 * (after[measure] - before[measure]), abs=0.006)
            told = [100 * (b[measure] - a[measure]) for a, b in each if b[measure] is not None]
            ends = np.quantile(told, [0.025, 0.975])
            assert (row["change_low"], row["change_high"]) == pytest.approx(tuple(ends), abs=0.006)


def test_the_same_answers_change_nothing_with_certainty():
    plain = pairs(1)
    made = compare_wordings("mine", plain, {"layperson": plain}, 200, SEED).filter(pl.col("pairs") > 0)
    assert set(made["change"]) == set(made["change_low"]) == set(made["change_high"]) == {0.0}
    # what both share cancels out: of two independent scores it would not
    above, below = np.ones((40, 1)) * np.arange(40)[:, None], np.ones((40, 1)) * 40
    same = difference_intervals((above, below), (above, below), replicates=100, level=0.95, seed=1)
    assert (same[0][0], same[1][0]) == (0, 0)


def test_pairs_that_were_not_asked_both_ways_count_on_neither_side():
    plain = pairs(1)
    missing = set(plain["pair_id"][::3])
    gone = pl.col("pair_id").is_in(list(missing))
    scores = ["intersection", "union", "iou", *answer_rules.RULES]
    asked = plain.with_columns(pl.when(gone).then(None).otherwise(pl.col(name)).alias(name) for name in scores)
    made = compare_wordings("mine", plain, {"layperson": asked}, 0, SEED)
    total = of(made, "total", "text_strict")
    assert total["pairs"] == len(plain) - len(missing)
    assert total["change"] == 0
    assert total["plain"] == pytest.approx(100 * plain.filter(~gone)["strict"].mean(), abs=0.006)
    assert total["change_low"] is None  # no replicates, no interval


def test_all_personas_together_are_a_row_of_their_own():
    plain, personas = pairs(1), {"layperson": pairs(2), "ai_developer": pairs(3)}
    made = compare_wordings("mine", plain, personas, 0, SEED)
    assert made["persona"].unique(maintain_order=True).to_list() == [*personas, ALL_PERSONAS]
    both = of(made, "total", "giou", ALL_PERSONAS)
    assert both["pairs"] == 2 * of(made, "total", "giou")["pairs"]
    each = [of(made, "total", "giou", who)["reworded"] for who in personas]
    assert both["reworded"] == pytest.approx(np.mean(each), abs=0.011)


def test_the_stage_reads_the_pairs_of_each_run_and_persona(tmp_path):
    for name, seed in (("one", 1), ("two", 2), ("one-a", 3), ("one-b", 4), ("two-a", 5), ("two-b", 6)):
        write_table(tmp_path / f"{name}.parquet", pairs(seed))
    paraphrases.run(
        plain=[str(tmp_path / f"{name}.parquet") for name in ("one", "two")],
        reworded=[str(tmp_path / f"{name}.parquet") for name in ("one-a", "one-b", "two-a", "two-b")],
        paraphrases_table=str(tmp_path / "paraphrases.tsv"), runs=["one", "two"],
        personas=["layperson", "ai_developer"], replicates=10, seed=1,
    )  # fmt: skip
    table = read_table(tmp_path / "paraphrases.tsv")
    assert table.columns == list(paraphrases.COLUMNS)
    assert len(table) == 2 * 3 * 8 * 5
    chosen = {"run": "two", "persona": "ai_developer", "lesion": "total", "measure": "giou"}
    (row,) = table.filter(**chosen).iter_rows(named=True)
    assert row["reworded"] == pytest.approx(100 * pairs(6).filter(polarity="positive")["iou"].mean(), abs=0.006)
    assert row["plain"] == pytest.approx(100 * pairs(2).filter(polarity="positive")["iou"].mean(), abs=0.006)


def test_a_pair_without_a_wording_leaves_the_scores_of_the_persona_alone(tmp_path):
    masks = {f"p{number}": np.zeros((SIZE, SIZE), bool) for number in range(6)}
    unasked = {"pair_id": "p0", "answer": None, "mask": None, "failure": "not_asked", "detail": "no_wording"}
    entries = [unasked, *own(range(1, 6), answer="[SEG]")]
    left = score(tmp_path, entries, masks, model="ROSALIA, paraphrased", reworded=True)
    total = left["scores_table"].filter(lesion="total").row(0, named=True)
    assert (total["positives"], total["negatives"], total["failed"]) == (3, 2, 0)
    assert (total["giou_paper"], total["ciou_paper"], total["n_acc_paper"]) == (67.3, 73.1, 96.5)
    assert ("pairs", "not_asked", 1) in left["counts_table"].rows()
    assert left["pairs"].row(0, named=True)["strict"] is None
    # elsewhere it is no way to choose which pairs count
    wrong = score(tmp_path, entries, masks)
    total = wrong["scores_table"].filter(lesion="total").row(0, named=True)
    assert (total["positives"], total["failed"]) == (4, 1)


def test_the_comparison_has_a_row_for_each_persona(tmp_path):
    masks = {f"p{number}": np.ones((SIZE, SIZE), bool) for number in range(6)}
    for folder in ("mine", "layperson"):
        (tmp_path / folder).mkdir()
        score(tmp_path / folder, own(range(6), answer="[SEG]"), masks)
    names = {"comparison_table": "comparison.tsv", "masks_figure": "masks.png", "text_figure": "text.png"}
    files = {
        name: [str(tmp_path / folder / f"{name}.tsv") for folder in ("mine", "layperson")]
        for name in ("scores", "text")
    }
    run_comparison(
        scores=files["scores"][:1], texts=files["text"][:1],
        reworded_scores=files["scores"][1:], reworded_texts=files["text"][1:],
        **{name: str(tmp_path / file) for name, file in names.items()},
        runs=["mine"], dpi=40, reworded=[["mine", "layperson"]],
    )  # fmt: skip
    table = read_table(tmp_path / "comparison.tsv").filter(lesion="total", source="ours")
    assert table["run"].to_list() == ["mine", "mine, layperson"]
    assert table["giou"][0] == table["giou"][1]
