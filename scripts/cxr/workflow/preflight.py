"""Check the planned jobs before the first one runs."""

from hashlib import sha256
from pathlib import Path

from cxr.base.errors import UserError
from cxr.workflow.snakemake_compat import Planned

MORE = "take more studies, or other splits (cohort.split, or the table's column split)"
READERS = (
    ("review_pages", "lines", "pair", "to review: choose another review.split"),
    ("inference_run", "lines", "pair", "to ask: choose another inference.split"),
    ("training_run", "train", "pair", "to train on: take another threshold set (training.runs), or more studies"),
    ("training_run", "validate", "pair", f"to choose the weights by: {MORE}"),
    ("vlm_tuning_run", "lines", "sample", f"to tune on: {MORE}"),
    ("medground_scoring_run", "lines", "sample", f"to score: {MORE}"),
    ("radvlm_evaluation_scores", "lines", "sample", f"to score: {MORE}"),
)
"""Rules that need lines: the input that holds them, what a line is, and the remedy if there is none."""


def blind_reruns(planned: list[Planned]) -> int:
    """Return how many finished jobs of shards would run again only because the cohort is made in the same run.

    0 if the user requested the cohort with ``--forcerun`` or ``--forceall``.
    """
    if not any(job.rule == "cohort_shards" and not job.forced for job in planned):
        return 0
    return sum(all(Path(path).exists() for path in job.output) for job in planned if job.by_shard)


def refuse_empty_splits(planned: list[Planned]) -> None:
    """Raise UserError if a job would ask, train on, score or review a finished split without lines.

    If the split is made in this run, the job itself refuses it.
    """
    planned_paths = {path for job in planned for path in job.output}
    for job in planned:
        for rule, name, line, remedy in READERS:
            path = job.input.get(name, "") if job.rule == rule else ""
            if path and path not in planned_paths and Path(path).is_file() and not Path(path).stat().st_size:
                raise UserError(f"{path} holds no {line}, so there is nothing {remedy}")


def digest_existing(paths: list[str]) -> dict[str, str]:
    """Return {path: digest of its content} of the existing files.

    As a param it re-runs a rule when one of them appears, changes or disappears, without making them its inputs.
    """
    return {path: sha256(Path(path).read_bytes()).hexdigest()[:16] for path in paths if Path(path).is_file()}
