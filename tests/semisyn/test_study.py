"""The study on real X-rays, shortened, on phantoms: held-out films, choices, tables, targets that are missed."""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest

import semisyn_real
from conftest import ROOT
from cxr.imaging.phantom.chest import draw_chest
from cxr.metrics.intervals import percentile_ends
from cxr.painting.lesions import paint
from semisyn_study import runs, scores
from semisyn_study.films import FOLDS, Film, Films, read_films
from semisyn_study.runs import CANDIDATES, CURVES, RUNS, Task, inner_tasks, run_of, tasks

SIZE = {"width": 512, "height": 512}
CHOSEN = {run: next(iter(of)) for run, of in CANDIDATES.items()}


def film(number: int, boxes: int = 0, name: str = "nih") -> Film:
    corners = np.array([[100.0, 100, 300, 300]] * boxes).reshape(-1, 4)
    return Film(f"{name}{number}", f"p{number}", np.zeros((512, 512), np.uint8), corners, name, "PA")


FILMS = Films([film(n, 1) for n in range(12)], [film(n) for n in range(20, 29)], [film(n) for n in range(40, 52)], [])


def test_no_film_of_a_held_out_patient_is_trained_on():
    for held in ((0,), (1, 2)):
        for sources in ("nih", "more"):
            real, healthy = semisyn_real.training_films(FILMS, held, sources)
            assert not {one.fold for one in real + healthy} & set(held)
            assert len(healthy) > len(semisyn_real.training_films(FILMS, held, "nih")[1]) - (sources == "nih")
    assert len({one.fold for one in FILMS.boxed}) == FOLDS


def test_a_choice_sees_one_training_fold_and_is_tested_on_the_other():
    inner = inner_tasks(FOLDS)
    assert len(inner) == FOLDS * sum(len(of) for of in CANDIDATES.values())
    assert {len(task.held) for task in inner} == {2}
    assert len({task.name for task in inner}) == len(inner)


def test_runs_differ_only_in_what_they_are_compared_in():
    for name in (*RUNS, *CURVES):
        run = run_of(name, CHOSEN)
        for end in (0, 1):
            assert sum(share[end] for share in run.shares.values()) == pytest.approx(1)
    few, control = run_of("ten+synthetic", CHOSEN), run_of("ten+unedited", {})
    assert (few.films, few.sources, few.shares["real"]) == (control.films, control.sources, control.shares["real"])
    assert control.shares["synthetic"] == (0, 0)
    mixed, right = run_of("shuffled", CHOSEN), run_of("synthetic", CHOSEN)
    assert (mixed.boxes, mixed.priors, mixed.shares["shuffled"]) == (
        right.boxes,
        right.priors,
        right.shares["synthetic"],
    )
    assert run_of("synthetic-paper", CHOSEN).priors == "paper"
    assert [task.seed for task in tasks(["a", "b"], 2, 2)] == [0] * 4 + [1] * 4


def scored(values: dict[tuple[str, str, int, int], float], spread: float = 0.02) -> tuple[dict, list[Task]]:
    """Return the scores of trainings {(set, run, fold, seed): map1070} with draws round them."""
    found = {}
    for (where, run, fold, seed), value in values.items():
        draws = value + np.random.default_rng([fold, seed]).normal(0, spread, 500)
        found[where, Task(run, (fold,), seed)] = scores.Scored(value, value + 0.1, value / 2, draws)
    return found, list(dict.fromkeys(task for _, task in found))


def test_differences_are_of_the_trainings_that_both_runs_have():
    values = {("nih", run, fold, seed): (0.30 if run == "a" else 0.27) + 0.01 * fold
              for run in ("a", "b") for fold in range(3) for seed in range(2)}  # fmt: skip
    del values["nih", "b", 2, 1]
    values["nih", "a", 2, 1] = 0.9
    found, asked = scored(values)
    row = scores.compare_runs(found, "nih", "a", "b", asked)
    assert row["difference"] == pytest.approx(3)
    assert row["folds"] == "3.0 / 3.0 / 3.0"
    assert (row["trainings"], row["share_above_zero"]) == (5, 1.0)
    assert scores.compare_runs(found, "covid", "a", "b", asked) is None
    table = scores.scores_table(found, asked)
    assert table["trainings"].to_list() == [6, 5]
    low, high = percentile_ends(
        np.mean([one.draws for (_, task), one in found.items() if task.run == "b"], axis=0)[:, None], 0.95
    )
    assert table.row(1, named=True)["low"] == pytest.approx(100 * low[0])
    assert table.row(1, named=True)["high"] == pytest.approx(100 * high[0])


def test_missed_targets_are_told_as_missed():
    base = {"ten+synthetic": 0.30, "ten+unedited": 0.27, "synthetic": 0.26, "shuffled": 0.05,
            "all+synthetic": 0.33, "all+unedited": 0.36}  # fmt: skip
    values = {
        (where, run, fold, 0): value for run, value in base.items() for where in ("nih", "covid") for fold in range(3)
    }
    found, asked = scored(values, 0.0)
    table = scores.target_table(found, asked)
    assert table.height == 10
    told = {(row["target"], row["what"].split(",")[0]): row["met"] for row in table.iter_rows(named=True)}
    assert told["1", "ten films"]
    assert told["2", "no real box"]
    missed = table.filter(~pl.col("met"))
    assert missed["target"].to_list() == ["3", "3"]
    assert missed["value"].to_list() == pytest.approx([-3, -3])


def write_films(folder: Path) -> None:
    """Write phantoms in the layout of the shared films: nih with boxes and without, nih_more without."""
    for name, numbers in (("nih", range(18)), ("nih_more", range(18, 30))):
        (folder / name / "images").mkdir(parents=True)
        rows = []
        for number in numbers:
            drawn = draw_chest(np.random.default_rng(number), 512)
            image, boxes = drawn.image, []
            if name == "nih" and number % 2:
                image, mask = paint(image, "consolidation", drawn.masks["right lung"], np.random.default_rng(number))
                ys, xs = np.nonzero(mask)
                boxes = [{"label": "Pneumonia", "x": float(xs.min()), "y": float(ys.min()),
                          "w": float(np.ptp(xs) + 1), "h": float(np.ptp(ys) + 1)}]  # fmt: skip
            grey = np.clip(image * 255, 0, 255).astype(np.uint8)
            cv2.imwrite(str(folder / name / "images" / f"{number:03d}.png"), grey)
            labels = "Pneumonia" if boxes else "No Finding"
            row = {"image": f"{number:03d}.png", "patient_id": number, "view": "PA", "nih_labels": labels}
            rows.append(row | {"rsna_class": None, "rsna_boxes": "[]", "nih_boxes": json.dumps(boxes)} | SIZE)
        pl.DataFrame(rows, schema_overrides={"rsna_class": pl.String}).write_csv(folder / name / f"{name}.csv")


@pytest.mark.slow
def test_any_folder_of_the_layout_is_read(tmp_path):
    write_films(tmp_path)
    films = read_films(tmp_path)
    assert (len(films.boxed), len(films.healthy), len(films.more), len(films.covid)) == (9, 9, 12, 0)
    assert all(one.frame.shape == (512, 512) and len(one.boxes) == 1 for one in films.boxed)


@pytest.mark.slow
def test_the_whole_study_on_phantoms_and_again(tmp_path):
    write_films(tmp_path / "data")
    command = [sys.executable, ROOT / "experiments/semisyn_real.py", tmp_path / "data", tmp_path / "work",
               "--seeds", "1", "--updates", "2", "--jobs", "4", "--runs", "ten+unedited,ten+synthetic"]  # fmt: skip
    first = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "6 of 57 trainings are done" in first
    tables = {name: (tmp_path / f"work/{name}.tsv").read_bytes() for name in ("scores", "differences", "targets")}
    assert b"ten+synthetic" in tables["differences"]
    again = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert ".s0:" not in again, "what is finished is not trained again"
    assert {name: (tmp_path / f"work/{name}.tsv").read_bytes() for name in tables} == tables
    assert runs.FIXED["ten+unedited"].films == 10
