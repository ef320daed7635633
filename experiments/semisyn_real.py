"""Study of SemiSynCXR on real X-rays: do synthetic X-rays improve a detector?  ``semisyn_real.py DATA WORK [options]``.

DATA contains nih, nih_more and covid in the layout of CXR_ILS_SHARED. Folds are by patient. Only the training folds are
used to fit priors, paint lesions, train detectors and choose the kind of synthetic boxes. WORK keeps every finished
training, so an interrupted command can be resumed. It writes the tables scores.tsv, differences.tsv and targets.tsv
into WORK.
"""

import argparse
import json
import multiprocessing
import pickle
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import numpy as np
import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.tables import write_table
from semisyn_study import scores as scoring
from semisyn_study.films import FOLDS, Film, Films, read_chests, read_films
from semisyn_study.runs import (
    CANDIDATES,
    CURVES,
    RUNS,
    Run,
    Task,
    inner_tasks,
    is_finished,
    make_pools,
    read_predictions,
    run_of,
    tasks,
    train_and_predict,
)
from semisyn_study.setup import Study, detector_options, synthesis_digest
from semisyn_study.synthesis import Painted, digest_of, make_synthetic

EVERY = (*RUNS, *CURVES)
PAIRS = (
    ("ten+synthetic", "ten+unedited"), ("synthetic", "ten+unedited"), ("synthetic-paper", "synthetic"),
    ("shuffled", "synthetic"), ("all+synthetic", "all+unedited"), ("ten+synthetic-nih", "ten+unedited-nih"),
    ("5+synthetic", "5+unedited"), ("20+synthetic", "20+unedited"), ("ten+synthetic-first", "ten+unedited"),
    ("all+synthetic-0.125", "all+unedited"), ("all+synthetic-0.25", "all+unedited"),
    ("all+synthetic-0.4", "all+unedited"), ("ten+synthetic", "ten+shuffled"),
    ("ten+shuffled", "ten+unedited"), ("all+synthetic-0.4", "all+shuffled-0.4"), ("all+shuffled-0.4", "all+unedited"),
)  # fmt: skip
"""(run, run to compare it with). All comparisons are printed, whatever their result."""


@dataclass(frozen=True)
class Work:
    """Folders and size of the study."""

    data: Path
    folder: Path
    study: Study

    @property
    def runs(self) -> Path:
        """The folder of finished trainings."""
        return self.folder / "runs"

    def painted_path(self, held_out: tuple[int, ...], run: Run) -> Path:
        """Return the file of a run's synthetic images; its name contains the digest of code, resources and settings."""
        folds = "-".join(map(str, held_out))
        return (
            self.folder / "painted" / f"without{folds}.{run.priors}.{run.sources}.{synthesis_digest(self.study)}.pickle"
        )

    def painted_digest(self, task: Task) -> str | None:
        """Return the digest of the contents of a task's synthetic images, or None before they exist.

        A change of code that does not change the images causes no new training.
        """
        path = self.painted_path(task.held, self.run_of_task(task)).with_suffix(".digest")
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def run_of_task(self, task: Task) -> Run:
        """Return the run of a task, with the candidate that was chosen for its held-out fold."""
        path = self.folder / "choices.json"
        choices = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return run_of(task.run, choices.get(str(task.fold), {}))

    def is_done(self, task: Task) -> bool:
        """Return whether a task's predictions exist."""
        digest = self.painted_digest(task)
        return digest is not None and is_finished(
            task, self.run_of_task(task), detector_options(self.study), self.runs, digest
        )


def training_films(films: Films, held_out: tuple[int, ...], sources: str) -> tuple[list[Film], list[Film]]:
    """Return (images with boxes, healthy images) of the folds that are not held out."""
    healthy = films.healthy + (films.more if sources == "more" else [])
    return [film for film in films.boxed if film.fold not in held_out], [
        film for film in healthy if film.fold not in held_out
    ]


def painted_films(films: Films, work: Work, held_out: tuple[int, ...], run: Run) -> list[Painted]:
    """Return the synthetic images of the folds that are not held out; they are made once and stored."""
    path = work.painted_path(held_out, run)
    if not path.is_file():
        boxed, healthy = training_films(films, held_out, run.sources)
        masks = work.folder / "organs"
        films_made = make_synthetic(
            read_chests(healthy, masks), read_chests(boxed, masks), run.priors == "fit", work.study.jobs
        )
        with atomic_file(path.with_suffix(".digest")) as temporary:
            temporary.write_text(digest_of(films_made), encoding="utf-8")
        with atomic_file(path) as temporary:
            temporary.write_bytes(pickle.dumps(films_made))
    return pickle.loads(path.read_bytes())


def train_task(work: Work, task: Task) -> str:
    """Train and predict one task unless its predictions exist; return a message or ""."""
    if work.is_done(task):
        return ""
    start, run, options = time.process_time(), work.run_of_task(task), detector_options(work.study)
    films = read_films(work.data)
    real, _ = training_films(films, task.held, run.sources)
    synthetic_films = painted_films(films, work, task.held, run)
    if not synthetic_films:
        return f"{task.name}: left out, as no job has room under a prior fitted to {len(real)} films"
    pools = make_pools(run, real, synthetic_films, options.size, task.seed)
    tested = [film for film in films.boxed + films.healthy if film.fold in task.held] + films.covid
    train_and_predict(task, run, pools, tested, options, work.runs, work.painted_digest(task))
    return f"{task.name}: {time.process_time() - start:.0f} s"


def _train_in_process(arguments: tuple[Work, Task]) -> str:
    import torch

    torch.set_num_threads(1)
    return train_task(*arguments)


def train_all(work: Work, requested: list[Task], processes: int) -> None:
    """Train all unfinished tasks in ``processes`` processes; synthetic images are made before."""
    films = read_films(work.data)
    for task in requested:
        if not work.painted_path(task.held, work.run_of_task(task)).is_file():
            painted_films(films, work, task.held, work.run_of_task(task))
    waiting = [task for task in requested if not work.is_done(task)]
    if waiting:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            for text in pool.imap(_train_in_process, [(work, task) for task in waiting]):
                print(text, flush=True)


def choose_candidates(work: Work, processes: int) -> None:
    """Choose a candidate for each held-out fold. Each of the two training folds is tested with a net trained on the
    other.

    No image of the held-out fold is used. A training without synthetic images is omitted. Writes choices.json and
    choices.tsv.
    """
    inner = inner_tasks(FOLDS)
    train_all(work, inner, processes)
    films, rows, choices = read_films(work.data), [], {}
    for held_out in range(FOLDS):
        choices[str(held_out)] = {}
        for run, candidates in CANDIDATES.items():
            values = {}
            for candidate in candidates:
                fold_tasks = [task for task in inner if task.run == f"{run}/{candidate}" and held_out in task.held]
                scores = [_inner_score(work, films, task, held_out) for task in fold_tasks if work.is_done(task)]
                values[candidate] = float(np.mean(scores)) if scores else 0.0
                rows.append(
                    {"held_out": held_out, "run": run, "candidate": candidate, "map1070": 100 * values[candidate]}
                )
            choices[str(held_out)][run] = max(values, key=values.__getitem__)
    write_table(work.folder / "choices.tsv", pl.DataFrame(rows))
    with atomic_file(work.folder / "choices.json") as temporary:
        temporary.write_text(json.dumps(choices), encoding="utf-8")
    print(json.dumps(choices, indent=1), flush=True)


def _inner_score(work: Work, films: Films, task: Task, held_out: int) -> float:
    """Return map1070 of a training on one fold, tested on the fold that is neither its training fold nor held out."""
    (tested,) = set(task.held) - {held_out}
    tested_films = [film for film in films.boxed + films.healthy if film.fold == tested]
    predicted = read_predictions(work.runs, task).filter(pl.col("set") == "nih")
    return scoring.score_predictions(tested_films, predicted, 0, "inner").value


def write_report(work: Work, requested: list[Task]) -> None:
    """Score the finished trainings and write the tables."""
    films, scores = read_films(work.data), {}
    finished = [task for task in requested if work.is_done(task)]
    for task in finished:
        predicted = read_predictions(work.runs, task)
        nih = [film for film in films.boxed + films.healthy if film.fold == task.fold]
        for name, tested, stratum in (("nih", nih, f"nih {task.fold}"), ("covid", films.covid, "covid")):
            if any(len(film.boxes) for film in tested):
                set_predictions = predicted.filter(pl.col("set") == name)
                scores[name, task] = scoring.score_predictions(tested, set_predictions, work.study.replicates, stratum)
    rows = [scoring.compare_runs(scores, where, *pair, finished) for pair in PAIRS for where in ("nih", "covid")]
    tables = {
        "scores": scoring.scores_table(scores, finished),
        "differences": pl.DataFrame([row for row in rows if row]),
        "targets": scoring.target_table(scores, finished),
    }
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200, fmt_str_lengths=60, float_precision=2):
        for name, table in tables.items():
            write_table(work.folder / f"{name}.tsv", table)
            print(table)
    print(f"{len(finished)} of {len(requested)} trainings are done")


def main() -> None:
    """Parse the command line and run the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", help="names, joined by commas; by default those of the targets")
    parser.add_argument("--curves", action="store_true", help="also the learning curve and the mixing shares")
    parser.add_argument("--updates", type=int, default=Study.updates)
    parser.add_argument("--jobs", type=int, default=Study.jobs, help="synthetic films of each finding in a fold")
    parser.add_argument("--choose", action="store_true", help="end after the choices on the training folds")
    parser.add_argument("--report", action="store_true", help="train nothing, score what is finished")
    arguments = parser.parse_args()
    work = Work(arguments.data, arguments.work, Study(arguments.updates, arguments.jobs))
    names = arguments.runs.split(",") if arguments.runs else [*RUNS, *(CURVES if arguments.curves else ())]
    if not arguments.report:
        films = read_films(arguments.data)
        print(
            f"{len(films.boxed)} films with {sum(len(film.boxes) for film in films.boxed)} boxes, "
            f"{len(films.healthy)} + {len(films.more)} without a finding, {len(films.covid)} of COVID",
            flush=True,
        )
        choose_candidates(work, arguments.processes)
        if arguments.choose:
            return
        train_all(work, tasks(names, FOLDS, arguments.seeds), arguments.processes)
    write_report(work, tasks(EVERY, FOLDS, arguments.seeds))


if __name__ == "__main__":
    main()
