"""What Snakemake is about to run, looked at before the first job."""

from pathlib import Path

from ils.core.run import UserError


def refuse_blind_rerun(dag) -> None:
    """Raise UserError if the cohort is to be made anew in the same run as shards that are finished.

    Snakemake plans ahead: it takes every shard of a cohort that is made anew for changed, and runs all of them through
    every stage. Made by itself first, most of its shards turn out to hold the same bytes, and are left as they are.
    ``dag``: Snakemake's; a cohort that was asked for with ``--forcerun`` or ``--forceall`` is none of our business.
    """
    planned = list(dag.needrun_jobs())
    if not any(job.rule.name == "cohort_shards" and not dag.reason(job).forced for job in planned):
        return
    shards = [job for job in planned if "shard" in job.wildcards_dict]
    finished = sum(all(Path(path).exists() for path in job.output) for job in shards)
    if finished:
        raise UserError(
            f"the cohort has changed, and {finished} finished jobs of its shards would run again, changed or not: run "
            "`snakemake cohort` with the same options first, then this again"
        )
