"""Handle changes that Snakemake does not see: changed images and reports, a changed cohort, copied results."""

import os
from pathlib import Path

from cxr.base.errors import UserError
from cxr.workflow import snakemake_compat as compat
from cxr.workflow.changed_files import ChangedFiles
from cxr.workflow.old_files import TARGET, OldFiles
from cxr.workflow.params import cohort_options
from cxr.workflow.plan import Plan

PLAN_TARGET = "plan"
"""Target that prints the plan of all systems and runs nothing."""


def keep_fresh(workflow, plan: Plan) -> None:
    """Make Snakemake check before and after its planning that all results fit the present files and settings."""
    checks = _Checks(workflow, plan)
    compat.around_planning(workflow, checks.before, checks.after)


class _Checks:
    def __init__(self, workflow, plan: Plan):
        self.workflow, self.plan = workflow, plan

    def before(self, dag) -> None:
        """Rerun the jobs whose images or reports have changed. With --touch, write the missing records of results."""
        self.files = ChangedFiles()
        if compat.is_touch_run(self.workflow):
            compat.force_outputs(dag, set(map(str, Path("results").rglob("*"))) - set(compat.Records().outputs()))
        else:
            compat.force_outputs(dag, self.files.outdated)

    def after(self, dag) -> None:
        """Print which files have changed, refuse results without a record of their making, and rerun a changed cohort.

        For the target ``clean_old``, remove the results of earlier settings instead. For the target ``plan``, refuse
        nothing, because the plan lists the refusals.
        """
        targets = compat.requested_targets(self.workflow)
        if TARGET in targets:
            if len(targets) > 1:
                raise UserError(f"the target {TARGET} only removes files: run it without other targets")
            OldFiles(self.workflow, self.plan.shards_of).clean(
                cohort_options(self.plan.options), compat.is_dry_run(self.workflow)
            )
            return
        tables = compat.needed_outputs(dag) & (self.files.outdated | self.files.missing.keys())
        if compat.is_touch_run(self.workflow):
            self.files.accept(tables)
            return
        for sentence in self.files.sentences(sorted(tables)):
            compat.print_message(sentence)
        if PLAN_TARGET not in targets:
            refuse_unrecorded(compat.unrecorded_outputs(dag))
        if self.plan.settings.cohort.source != "embedded":  # an embedded cohort has no files of the user
            self._make_cohort_first(dag)

    def _make_cohort_first(self, dag) -> None:
        """Rerun the cohort alone if it has changed, before the jobs of its shards are planned.

        Snakemake plans all jobs before the first one, so it would rerun every shard of a cohort that is made again. If
        the cohort is made before the planning, only the shards with new bytes are rerun. Raises UserError if the cohort
        has changed again since it was made just before this run.
        """
        reruns = blind_reruns(compat.planned_jobs(dag, self.files.outdated))
        if not reruns:
            return
        if compat.is_dry_run(self.workflow) or PLAN_TARGET in compat.requested_targets(self.workflow):
            compat.print_message(
                "the cohort has changed: a run makes it first and then plans again, so of the jobs below "
                "only those will run whose studies have changed"
            )
        elif os.environ.get(compat.TARGET_DONE):
            raise UserError(
                f"the cohort has changed again, and {reruns} finished jobs of its shards would run again: start the "
                "run again when no program writes into the cohort's files"
            )
        else:
            compat.print_message("the cohort has changed: it is made first, then all other jobs are planned")
            compat.run_target_first(self.workflow, "cohort")


def refuse_unrecorded(outputs: list[str]) -> None:
    """Raise UserError if some existing results have no record of the settings and code that made them."""
    if outputs:
        suffix = f" and {len(outputs) - 1} other results" if len(outputs) > 1 else ""
        raise UserError(
            f"{outputs[0]}{suffix}: there is no record of the settings that they were made with, as after a copy "
            "without results/records: copy that folder too, or delete these results. If you know that they fit the "
            "present settings, run the same command with --touch first"
        )


def blind_reruns(planned: list[compat.Planned]) -> int:
    """Return how many finished jobs of shards would rerun because the run remakes the cohort, even if they need not.
    Return 0 if the user requested the cohort with ``--forcerun`` or ``--forceall``."""
    if not any(job.rule == "cohort_shards" and not job.forced for job in planned):
        return 0
    return sum(all(Path(path).exists() for path in job.output) for job in planned if job.by_shard)
