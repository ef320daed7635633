"""The study of SemiSynCXR on real X-rays: do painted films help a detector?  ``semisyn_real.py DATA WORK [options]``.

DATA holds nih, nih_more and covid in the layout of CXR_ILS_SHARED. Folds are by patient; priors are fitted, lesions are
painted and detectors are trained on the training folds alone, and so is chosen how synthetic films are mixed in. WORK
keeps every finished training, so the command is resumed where it stopped. It ends with the tables scores.tsv,
differences.tsv and targets.tsv of WORK.
"""

import argparse
import json
import multiprocessing
import pickle
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.tables import write_table
from semisyn_study import scores as scoring
from semisyn_study.films import FOLDS, Film, Films, chests, read_films
from semisyn_study.runs import (
    CANDIDATES,
    CURVES,
    RUNS,
    Run,
    Task,
    done,
    inner_tasks,
    pools_of,
    predictions,
    run_of,
    tasks,
    train_and_predict,
)
from semisyn_study.setup import Study, options_of, told_of
from semisyn_study.synthesis import Painted, digest_of, synthetic

EVERY = (*RUNS, *CURVES)
PAIRS = (
    ("ten+synthetic", "ten+unedited"), ("synthetic", "ten+unedited"), ("synthetic-paper", "synthetic"),
    ("shuffled", "synthetic"), ("all+synthetic", "all+unedited"), ("ten+synthetic-nih", "ten+unedited-nih"),
    ("5+synthetic", "5+unedited"), ("20+synthetic", "20+unedited"), ("ten+synthetic-first", "ten+unedited"),
    ("all+synthetic-0.125", "all+unedited"), ("all+synthetic-0.25", "all+unedited"),
    ("all+synthetic-0.4", "all+unedited"), ("ten+synthetic", "ten+shuffled"),
    ("ten+shuffled", "ten+unedited"), ("all+synthetic-0.4", "all+shuffled-0.4"), ("all+shuffled-0.4", "all+unedited"),
)  # fmt: skip
"""The comparisons that are printed, whether or not they flatter."""


@dataclass(frozen=True)
class Work:
    """Where the study lies and how large it is."""

    data: Path
    folder: Path
    study: Study

    @property
    def runs(self) -> Path:
        """The folder of finished trainings."""
        return self.folder / "runs"

    def painted(self, held: tuple[int, ...], run: Run) -> Path:
        """Return the file of the synthetic films of a run, with the digest of what they depend on in its name."""
        folds = "-".join(map(str, held))
        return self.folder / "painted" / f"without{folds}.{run.priors}.{run.sources}.{told_of(self.study)}.pickle"

    def told(self, task: Task) -> str | None:
        """Return the digest of the synthetic films of a task themselves, None before they are made.

        A change of code that changes no film re-trains nothing.
        """
        path = self.painted(task.held, self.run(task)).with_suffix(".digest")
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def run(self, task: Task) -> Run:
        """Return what a task is trained on, with what was chosen for its held-out fold."""
        path = self.folder / "choices.json"
        chosen = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return run_of(task.run, chosen.get(str(task.fold), {}))

    def done(self, task: Task) -> bool:
        """Return whether a task's predictions are there."""
        told = self.told(task)
        return told is not None and done(task, self.run(task), options_of(self.study), self.runs, told)


def training_films(films: Films, held: tuple[int, ...], sources: str) -> tuple[list[Film], list[Film]]:
    """Return the boxed films and the healthy ones of the folds that are not held out."""
    healthy = films.healthy + (films.more if sources == "more" else [])
    return [one for one in films.boxed if one.fold not in held], [one for one in healthy if one.fold not in held]


def painted(films: Films, work: Work, held: tuple[int, ...], run: Run) -> list[Painted]:
    """Return the synthetic films of the folds that are not held out, made once and kept."""
    path = work.painted(held, run)
    if not path.is_file():
        boxed, healthy = training_films(films, held, run.sources)
        masks = work.folder / "organs"
        found = synthetic(chests(healthy, masks), chests(boxed, masks), run.priors == "fit", work.study.jobs)
        with atomic_file(path.with_suffix(".digest")) as temporary:
            temporary.write_text(digest_of(found), encoding="utf-8")
        with atomic_file(path) as temporary:
            temporary.write_bytes(pickle.dumps(found))
    return pickle.loads(path.read_bytes())


def make(work: Work, task: Task) -> str:
    """Train and predict one task unless that is done; return what to print."""
    if work.done(task):
        return ""
    start, run, options = time.process_time(), work.run(task), options_of(work.study)
    films = read_films(work.data)
    real, _ = training_films(films, task.held, run.sources)
    made = painted(films, work, task.held, run)
    if not made:
        return f"{task.name}: left out, as no job has room under a prior fitted to {len(real)} films"
    pools = pools_of(run, real, made, options.size, task.seed)
    tested = [film for film in films.boxed + films.healthy if film.fold in task.held] + films.covid
    train_and_predict(task, run, pools, tested, options, work.runs, work.told(task))
    return f"{task.name}: {time.process_time() - start:.0f} s"


def _make(arguments: tuple[Work, Task]) -> str:
    import torch

    torch.set_num_threads(1)
    return make(*arguments)


def make_all(work: Work, asked: list[Task], processes: int) -> None:
    """Train all tasks that are not finished; what several want is painted before."""
    films = read_films(work.data)
    for task in asked:
        if not work.painted(task.held, work.run(task)).is_file():
            painted(films, work, task.held, work.run(task))
    waiting = [task for task in asked if not work.done(task)]
    if waiting:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            for text in pool.imap(_make, [(work, task) for task in waiting]):
                print(text, flush=True)


def choose(work: Work, processes: int) -> None:
    """Choose for each held-out fold on its training folds: trained on one of them, tested on the other, both ways.

    No film of the held-out fold takes part. A training without a synthetic film is left out. Writes choices.json and
    choices.tsv.
    """
    inner = inner_tasks(FOLDS)
    make_all(work, inner, processes)
    films, rows, chosen = read_films(work.data), [], {}
    for held in range(FOLDS):
        chosen[str(held)] = {}
        for run, candidates in CANDIDATES.items():
            values = {}
            for candidate in candidates:
                some = [task for task in inner if task.run == f"{run}/{candidate}" and held in task.held]
                of = [_inner_score(work, films, task, held) for task in some if work.done(task)]
                values[candidate] = float(np.mean(of)) if of else 0.0
                rows.append({"held_out": held, "run": run, "candidate": candidate, "map1070": 100 * values[candidate]})
            chosen[str(held)][run] = max(values, key=values.__getitem__)
    write_table(work.folder / "choices.tsv", pl.DataFrame(rows))
    with atomic_file(work.folder / "choices.json") as temporary:
        temporary.write_text(json.dumps(chosen), encoding="utf-8")
    print(json.dumps(chosen, indent=1), flush=True)


def _inner_score(work: Work, films: Films, task: Task, held: int) -> float:
    """Return map1070 of a training of one fold on the one that is neither trained on nor held out."""
    (tested,) = set(task.held) - {held}
    some = [film for film in films.boxed + films.healthy if film.fold == tested]
    told = predictions(work.runs, task).filter(pl.col("set") == "nih")
    return scoring.score(some, told, 0, "inner").value


def report(work: Work, asked: list[Task]) -> None:
    """Score what is finished and write the tables."""
    films, scores = read_films(work.data), {}
    finished = [task for task in asked if work.done(task)]
    for task in finished:
        told = predictions(work.runs, task)
        nih = [film for film in films.boxed + films.healthy if film.fold == task.fold]
        for name, some, stratum in (("nih", nih, f"nih {task.fold}"), ("covid", films.covid, "covid")):
            if any(len(film.boxes) for film in some):
                own = told.filter(pl.col("set") == name)
                scores[name, task] = scoring.score(some, own, work.study.replicates, stratum)
    rows = [scoring.compare(scores, where, *pair, finished) for pair in PAIRS for where in ("nih", "covid")]
    tables = {
        "scores": scoring.scores_table(scores, finished),
        "differences": pl.DataFrame([row for row in rows if row]),
        "targets": scoring.targets(scores, finished),
    }
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200, fmt_str_lengths=60, float_precision=2):
        for name, table in tables.items():
            write_table(work.folder / f"{name}.tsv", table)
            print(table)
    print(f"{len(finished)} of {len(asked)} trainings are done")


def main() -> None:
    """Parse the command line and run."""
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
    given = parser.parse_args()
    work = Work(given.data, given.work, Study(given.updates, given.jobs))
    names = given.runs.split(",") if given.runs else [*RUNS, *(CURVES if given.curves else ())]
    if not given.report:
        films = read_films(given.data)
        print(
            f"{len(films.boxed)} films with {sum(len(film.boxes) for film in films.boxed)} boxes, "
            f"{len(films.healthy)} + {len(films.more)} without a finding, {len(films.covid)} of COVID",
            flush=True,
        )
        choose(work, given.processes)
        if given.choose:
            return
        make_all(work, tasks(names, FOLDS, given.seeds), given.processes)
    report(work, tasks(EVERY, FOLDS, given.seeds))


if __name__ == "__main__":
    main()
