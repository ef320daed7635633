"""What Snakemake is about to run, looked at before the first job."""

from hashlib import sha256
from pathlib import Path

from cxr.base.errors import UserError
from cxr.workflow.snakemake_compat import Planned

READERS = {
    "review_pages": ("lines", "to review: choose another review.split"),
    "inference_run": ("lines", "to ask: choose another inference.split"),
    "training_run": ("train", "to train on: take another threshold set (training.runs), or more studies"),
}
"""Rules that want pairs: the name of the input that holds them, and what can be done where it holds none."""


def refuse_blind_rerun(planned: list[Planned]) -> None:
    """Raise UserError if the cohort is to be made anew in the same run as shards that are finished.

    Snakemake plans ahead: it takes every shard of a cohort that is made anew for changed, and runs all of them through
    every stage. Made by itself first, most of its shards turn out to hold the same bytes, and are left as they are.
    A cohort that was asked for with ``--forcerun`` or ``--forceall`` is none of our business.
    """
    if not any(job.rule == "cohort_shards" and not job.forced for job in planned):
        return
    finished = sum(all(Path(path).exists() for path in job.output) for job in planned if job.by_shard)
    if finished:
        raise UserError(
            f"the cohort has changed, and {finished} finished jobs of its shards would run again, changed or not: run "
            "`snakemake cohort` with the same options first, then this again"
        )


def refuse_empty_splits(planned: list[Planned]) -> None:
    """Raise UserError if a job is to ask, train on or review a split that is made and holds no pair.

    One that is only made in this run is refused by the job itself.
    """
    made = {path for job in planned for path in job.output}
    for job in planned:
        name, remedy = READERS.get(job.rule, ("", ""))
        path = job.input.get(name, "")
        if path and path not in made and Path(path).is_file() and not Path(path).stat().st_size:
            raise UserError(f"{path} holds no pair, so there is nothing {remedy}")


def present(paths: list[str]) -> dict[str, str]:
    """Return {path: digest of its content} of the files that are there.

    As a param it makes a rule run again when one of them appears, changes or goes, though it is not the rule's to make.
    """
    return {path: sha256(Path(path).read_bytes()).hexdigest()[:16] for path in paths if Path(path).is_file()}


def shown(known: dict, scored: dict, reworded: bool) -> list[str]:
    """Return what the page shows where it is there: made by name, so that a bare run need not make it.

    ``known``: the runs; ``scored``: what is evaluated; ``reworded``: whether in other wordings too.
    """
    files = [f"results/ablation/{name}" for name in ("points.tsv", "curves.png", "map.png")]
    files += [f"results/evaluation/{name}" for name in ("comparison.tsv", "masks.png", "text.png")]
    files += ["results/evaluation/paraphrases.tsv"] if reworded else []
    files += [f"results/evaluation/{name}/pairs.parquet" for name in scored]
    return files + [f"results/training/{name}/curves.png" for name in known]
