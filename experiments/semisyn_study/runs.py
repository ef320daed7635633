"""The runs of the study: their training data, and training and prediction of one run."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_table
from cxr.semisyn.detectors import lite
from cxr.semisyn.detectors.lite import LiteOptions, grid_of
from cxr.semisyn.detectors.pools import LazySample, Sample, read_sample, shuffle_boxes
from semisyn_study.films import Film
from semisyn_study.synthesis import Painted

CLASSES = ("opacity",)
SCHEMA = {"set": pl.String, "image_id": pl.String, "confidence": pl.Float64} | dict.fromkeys(
    ("x1", "y1", "x2", "y2"), pl.Float64
)


@dataclass(frozen=True)
class Run:
    """Training data of a run. films: number of real images with boxes, None for all; priors: of the synthetic images.

    shares: {pool: (fraction of a batch at the beginning, at the end)}; sources: ``nih``, or ``more`` to use the healthy
    images of ``nih_more`` too; boxes: of the synthetic images, conditioning (as placed) or visible.
    """

    films: int | None
    shares: dict[str, tuple[float, float]]
    boxes: str = "conditioning"
    priors: str = "fit"
    sources: str = "more"


def take_images(samples: Sequence[Sample], most: int, seed: int) -> list[Sample]:
    """Return up to ``most`` images, patient by patient in random order.

    Only the last patient may be incomplete. Smaller sets are subsets of larger ones.
    """
    ranked = sorted(samples, key=lambda sample: (stable_hash("thinned", seed, sample.subject_id), sample.image_id))
    return ranked[:most]


def _beside(synthetic: float) -> dict[str, tuple[float, float]]:
    """Return the shares of a run with real images: half of each batch is real, and the fraction ``synthetic``
    synthetic."""
    return {"real": HALF, "synthetic": (synthetic, synthetic), "unedited": (0.5 - synthetic, 0.5 - synthetic)}


HALF = (0.5, 0.5)
FIRST = {"real": (0.25, 0.5), "synthetic": (0.5, 0.0), "unedited": (0.25, 0.5)}
"""Shares of a run that begins with synthetic images: their fraction falls from one half to 0."""
ALONE = {"synthetic": HALF, "unedited": HALF}
MIXED = {"shuffled": HALF, "unedited": HALF}
KINDS = ("conditioning", "visible")
CANDIDATES: dict[str, dict[str, Run]] = {"synthetic": {kind: Run(0, ALONE, kind) for kind in KINDS}}
"""{run: {candidate: run}}. One candidate is chosen for each held-out fold, using its training folds only."""
FIXED = {
    "ten+unedited": Run(10, _beside(0.0)),
    "all+unedited": Run(None, _beside(0.0)),
    "ten+unedited-nih": Run(10, _beside(0.0), sources="nih"),
    "5+unedited": Run(5, _beside(0.0)),
    "20+unedited": Run(20, _beside(0.0)),
}
LIKE = {
    "ten+synthetic": {"films": 10, "shares": _beside(0.25)},
    "all+synthetic": {"films": None, "shares": FIRST},
    "shuffled": {"shares": MIXED},
    "ten+shuffled": {"films": 10, "shares": {"real": HALF, "shuffled": (0.25, 0.25), "unedited": (0.25, 0.25)}},
    "all+shuffled-0.4": {"films": None, "shares": {"real": HALF, "shuffled": (0.4, 0.4), "unedited": (0.1, 0.1)}},
    "synthetic-paper": {"priors": "paper"},
    "ten+synthetic-nih": {"films": 10, "shares": _beside(0.25), "sources": "nih"},
    "5+synthetic": {"films": 5, "shares": _beside(0.25)},
    "20+synthetic": {"films": 20, "shares": _beside(0.25)},
    "ten+synthetic-first": {"films": 10, "shares": FIRST},
} | {f"all+synthetic-{share:g}": {"films": None, "shares": _beside(share)} for share in (0.125, 0.25, 0.4)}
"""{run with synthetic images: its differences from the chosen run without real images}."""
RUNS = (
    "ten+unedited", "ten+synthetic", "synthetic", "all+unedited", "all+synthetic", "shuffled", "synthetic-paper",
)  # fmt: skip
"""The runs for the study's targets, in the order in which they are trained."""
CURVES = (
    "5+unedited", "5+synthetic", "20+unedited", "20+synthetic", "ten+synthetic-first", "all+synthetic-0.125",
    "all+synthetic-0.25", "all+synthetic-0.4", "ten+unedited-nih", "ten+synthetic-nih", "ten+shuffled",
    "all+shuffled-0.4",
)  # fmt: skip
"""Runs for the learning curve, for the mixing shares, and with healthy images from ``nih`` only."""


def run_of(name: str, choice: Mapping[str, str]) -> Run:
    """Return the run ``name``, or a candidate ``run/candidate``; ``choice``: {run: candidate} of the held-out fold."""
    run, _, candidate = name.partition("/")
    if candidate:
        return CANDIDATES[run][candidate]
    if run in FIXED:
        return FIXED[run]
    return replace(CANDIDATES["synthetic"][choice["synthetic"]], **LIKE.get(run, {}))


class Task(NamedTuple):
    """One training: the run's name, the held-out folds, and the seed."""

    run: str
    held: tuple[int, ...]
    seed: int

    @property
    def name(self) -> str:
        """File name of the training."""
        run = self.run.replace("/", "-").replace(" ", "-")
        return f"{run}.f{'-'.join(map(str, self.held))}.s{self.seed}"

    @property
    def fold(self) -> int:
        """The held-out fold of a training with one held-out fold."""
        return self.held[0]


def tasks(names: Sequence[str], folds: int, seeds: int) -> list[Task]:
    """Return the trainings, ordered by seed, so that an unfinished study has pairs of runs to compare."""
    return [Task(name, (fold,), seed) for seed in range(seeds) for name in names for fold in range(folds)]


def inner_tasks(folds: int) -> list[Task]:
    """Return the trainings for the choices: every candidate on each single fold, with all other folds held out."""
    names = [f"{run}/{candidate}" for run, candidates in CANDIDATES.items() for candidate in candidates]
    return [
        Task(name, tuple(fold for fold in range(folds) if fold != trained), 0)
        for name in names
        for trained in range(folds)
    ]


def make_pools(
    run: Run, real: Sequence[Film], painted: Sequence[Painted], size: int, seed: int
) -> dict[str, list[Sample]]:
    """Return {pool: samples} of a run: real images, synthetic images, their unedited sources, and shuffled boxes."""
    grid = grid_of(CLASSES, size)

    def sample(frame: np.ndarray, boxes: np.ndarray, name: str, subject: str) -> Sample:
        labelled_boxes = tuple((0, *box) for box in np.asarray(boxes).tolist())
        return read_sample(LazySample(labelled_boxes, (0,), name, subject, lambda: frame), grid)

    films = [sample(film.frame, film.boxes, film.name, film.subject) for film in real]
    synthetic = [
        sample(film_made.frame, film_made.boxes[run.boxes], film_made.job, film_made.source.subject)
        for film_made in painted
    ]
    none = np.zeros((0, 4))
    return {
        "real": films if run.films is None else take_images(films, run.films, seed),
        "synthetic": synthetic,
        "unedited": [
            sample(film_made.source.frame, none, film_made.job, film_made.source.subject) for film_made in painted
        ],
        "shuffled": shuffle_boxes(synthetic, seed),
    }


def is_finished(task: Task, run: Run, options: LiteOptions, folder: Path, digest: str) -> bool:
    """Return whether the predictions of a task exist and were made with the same run, options and digest."""
    path = folder / f"{task.name}.json"
    return path.is_file() and path.read_text(encoding="utf-8") == _task_record(task, run, options, digest)


def _task_record(task: Task, run: Run, options: LiteOptions, digest: str) -> str:
    return json.dumps([task, vars(run), vars(options), digest], sort_keys=True)


def train_and_predict(
    task: Task,
    run: Run,
    pools: Mapping[str, Sequence[Sample]],
    films: Sequence[Film],
    options: LiteOptions,
    folder: Path,
    digest: str,
) -> None:
    """Train one run, and write its predictions for ``films`` to ``folder``; an interrupted training is resumed.

    ``digest``: of the synthetic images, on which the pools depend.
    """
    unfinished = folder / f"{task.name}.unfinished"
    net = lite.train_lite(pools, run.shares, CLASSES, options, task.seed, unfinished)
    rows = []
    for film in films:
        boxes, confidence, _ = lite.find_boxes(net, film.frame)
        rows += [(film.set, film.name, float(c), *map(float, box)) for c, box in zip(confidence, boxes, strict=True)]
    write_table(folder / f"{task.name}.parquet", pl.DataFrame(rows, schema=SCHEMA, orient="row"))
    with atomic_file(folder / f"{task.name}.json") as temporary:
        temporary.write_text(_task_record(task, run, options, digest), encoding="utf-8")
    shutil.rmtree(unfinished, ignore_errors=True)


def read_predictions(folder: Path, task: Task) -> pl.DataFrame:
    """Return the predictions of a finished task."""
    return read_table(folder / f"{task.name}.parquet")
