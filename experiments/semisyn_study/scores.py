"""The scores of the study: map1070 of each run, differences between runs, and whether the targets are met."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from cxr.base.seeds import stable_hash
from cxr.metrics.average_precision import average_precision, recall_at
from cxr.metrics.intervals import percentile_ends
from cxr.metrics.paired import compare_replicates, draw_patient_weights
from cxr.semisyn.detection.score_detections import match_run, population_of
from cxr.semisyn.references import SCHEMA
from semisyn_study.films import Film
from semisyn_study.runs import CLASSES, Task

IOUS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
AT_30, AT_50 = IOUS.index(0.3), IOUS.index(0.5)
LEVEL, POINTS = 0.95, 101
(CLASS,) = CLASSES


class Scored(NamedTuple):
    """Scores of one training on one set: map1070, map30, recall at half a false box per image, map1070 of draws
    (R,)."""

    value: float
    at_30: float
    recall: float
    draws: np.ndarray


def score_predictions(films: Sequence[Film], predictions: pl.DataFrame, replicates: int, stratum: str) -> Scored:
    """Score predictions for one set of images. The draws of patients depend only on ``stratum`` and the patients."""
    rows = [(film.name, CLASS, *map(float, box)) for film in films for box in film.boxes]
    boxes = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    images = population_of(boxes, [film.name for film in films], {film.name: film.subject for film in films})
    (matches,) = match_run(
        images, predictions.with_columns(finding=pl.lit(CLASS)), IOUS, POINTS
    ).matches_by_finding.values()
    values = average_precision(matches)[0]
    replicate_draws = draw_patient_weights(images.patients, replicates, stable_hash("study", stratum) % 2**32)
    draws = [average_precision(matches, draws=some).mean(axis=1) for some in replicate_draws]
    recall = float(recall_at(matches, AT_50, [0.5])[0])
    return Scored(float(values.mean()), float(values[AT_30]), recall, np.concatenate([np.zeros(0), *draws]))


Scores = Mapping[tuple[str, Task], Scored]
"""{(set of films, training): its scores}."""


def mean_scores(scores: Scores, where: str, run: str, tasks: Sequence[Task]) -> Scored | None:
    """Return the mean scores of a run's trainings on the set ``where``, or None without trainings.

    The draws of different folds are independent.
    """
    run_scores = [scores[where, task] for task in tasks if task.run == run and (where, task) in scores]
    if not run_scores:
        return None
    values = np.mean([(scored.value, scored.at_30, scored.recall) for scored in run_scores], axis=0)
    return Scored(*map(float, values), np.mean([scored.draws for scored in run_scores], axis=0))


def scores_table(scores: Scores, tasks: Sequence[Task]) -> pl.DataFrame:
    """Return a row for each run and set: percentages, interval, values by fold and by seed, number of trainings."""
    rows = []
    for run in dict.fromkeys(task.run for task in tasks):
        for where in sorted({where for where, _ in scores}):
            mean = mean_scores(scores, where, run, tasks)
            if mean is None:
                continue
            low, high = percentile_ends(mean.draws[:, None], LEVEL)
            trainings = [
                (task, scores[where, task].value) for task in tasks if task.run == run and (where, task) in scores
            ]
            folds = {
                f: np.mean([v for task, v in trainings if task.fold == f])
                for f in sorted({t.fold for t, _ in trainings})
            }
            seeds = {
                s: np.mean([v for task, v in trainings if task.seed == s])
                for s in sorted({t.seed for t, _ in trainings})
            }
            rows.append(
                {"run": run, "set": where, "map1070": 100 * mean.value, "low": 100 * low[0], "high": 100 * high[0],
                 "map30": 100 * mean.at_30, "recall50_half_false": 100 * mean.recall,
                 "folds": _list(folds), "seeds": _list(seeds), "trainings": len(trainings)}
            )  # fmt: skip
    return pl.DataFrame(rows)


def _list(values: Mapping[int, float]) -> str:
    return " / ".join(f"{100 * value:.1f}" for value in values.values())


def compare_runs(scores: Scores, where: str, first: str, second: str, tasks: Sequence[Task]) -> dict | None:
    """Return a row of the table of differences (first minus second, percentage points) over the trainings of both
    runs."""
    shared = {(t.fold, t.seed) for t in tasks if t.run == first and (where, t) in scores}
    shared &= {(t.fold, t.seed) for t in tasks if t.run == second and (where, t) in scores}
    some = [t for t in tasks if (t.fold, t.seed) in shared]
    first_mean, second_mean = (mean_scores(scores, where, name, some) for name in (first, second))
    if first_mean is None or second_mean is None:
        return None
    gap = compare_replicates(first_mean.value - second_mean.value, first_mean.draws, second_mean.draws, LEVEL)
    gaps = {
        fold: np.mean([scores[where, Task(first, (fold,), s)].value
                       - scores[where, Task(second, (fold,), s)].value
                       for f, s in shared if f == fold])
        for fold in sorted({f for f, _ in shared})
    }  # fmt: skip
    return {
        "set": where, "run": first, "against": second, "difference": 100 * gap.value, "low": 100 * gap.low,
        "high": 100 * gap.high, "share_above_zero": 1 - gap.below, "folds": _list(gaps), "trainings": len(shared),
    }  # fmt: skip


def target_table(scores: Scores, tasks: Sequence[Task]) -> pl.DataFrame:
    """Return the targets of the study, with their values and whether they are met; missed targets are listed too."""
    rows = []

    def add_target(number: str, label: str, value: float | None, least: float, more: bool = True) -> None:
        if value is not None:
            met = value >= least if more else value <= least
            sign = ">=" if more else "<="
            rows.append({"target": number, "what": label, "value": value, "wanted": f"{sign} {least:g}", "met": met})

    def value(where: str, run: str) -> float | None:
        mean = mean_scores(scores, where, run, tasks)
        return 100 * mean.value if mean else None

    few = compare_runs(scores, "nih", "ten+synthetic", "ten+unedited", tasks)
    if few:
        add_target("1", "ten films, with synthetic less without, NIH, points", few["difference"], 2)
        add_target("1", "its share of draws above 0", few["share_above_zero"], 0.8)
        add_target("1", "folds in which it is above 0", sum(float(part) > 0 for part in few["folds"].split(" / ")), 2)
        covid = compare_runs(scores, "covid", "ten+synthetic", "ten+unedited", tasks)
        add_target("1", "the same, COVID, points", covid and covid["difference"], -1)
    alone, ten, mixed = (value("nih", name) for name in ("synthetic", "ten+unedited", "shuffled"))
    add_target("2", "no real box, NIH, %", alone, 25)
    add_target("2", "its ratio to ten real films", alone / ten if alone and ten else None, 0.85)
    add_target("2", "no real box, COVID, %", value("covid", "synthetic"), 18)
    add_target(
        "2", "shuffled boxes over right ones, NIH", mixed / alone if mixed is not None and alone else None, 0.5, False
    )
    for where, least in (("nih", -1), ("covid", 0)):
        every = compare_runs(scores, where, "all+synthetic", "all+unedited", tasks)
        add_target(
            "3", f"all films, with synthetic less without, {where}, points", every and every["difference"], least
        )
    return pl.DataFrame(rows)
