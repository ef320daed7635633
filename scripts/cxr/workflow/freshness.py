"""Keep results up to date beyond what Snakemake sees: changed images and reports, a changed cohort, copied results."""

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
    """Check around the planning of a run that its results are, or will be, those of the present files and settings."""
    checks = _Checks(workflow, plan)
    compat.around_planning(workflow, checks.before, checks.after)


class _Checks:
    def __init__(self, workflow, plan: Plan):
        self.workflow, self.plan = workflow, plan

    def before(self, dag) -> None:
        """Let the jobs run again whose images or reports have changed. With --touch, record what has no record."""
        self.files = ChangedFiles()
        if compat.is_touch_run(self.workflow):
            compat.force_outputs(dag, set(map(str, Path("results").rglob("*"))) - set(compat.Records().outputs()))
        else:
            compat.force_outputs(dag, self.files.outdated)

    def after(self, dag) -> None:
        """Report what has changed, refuse results without a record, and make a changed cohort first.

        For the target ``clean_old``, remove the results of earlier settings instead. The target ``plan`` itself says
        what would be refused.
        """
        targets = compat.requested_targets(self.workflow)
        if TARGET in targets:
            if len(targets) > 1:
                raise UserError(f"{TARGET} makes nothing: run it without other targets")
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
        if self.plan.settings.cohort.source != "embedded":  # else the run makes the images and reports too
            self._make_cohort_first(dag)

    def _make_cohort_first(self, dag) -> None:
        """Run a changed cohort alone before its shards' jobs are planned.

        Snakemake plans ahead: it treats every shard of a regenerated cohort as changed and would run all of them
        through every stage. Once the cohort is made, most of its shards have the same bytes and are not run again.
        Raises UserError if the cohort would change at each run.
        """
        reruns = blind_reruns(compat.planned_jobs(dag, self.files.outdated))
        if not reruns:
            return
        if compat.is_dry_run(self.workflow) or PLAN_TARGET in compat.requested_targets(self.workflow):
            compat.print_message(
                "the cohort has changed: a run makes it first and plans again, so that of the jobs below only those "
                "run whose studies have changed"
            )
        elif os.environ.get(compat.TARGET_DONE):
            raise UserError(
                f"the cohort has changed again, and {reruns} finished jobs of its shards would run again: start again "
                "when nothing writes into its files"
            )
        else:
            compat.print_message("the cohort has changed: it is made first, then the rest is planned")
            compat.run_target_first(self.workflow, "cohort")


def refuse_unrecorded(outputs: list[str]) -> None:
    """Raise UserError if some existing results have no record of the settings and code that made them."""
    if outputs:
        suffix = f" and {len(outputs) - 1} other results" if len(outputs) > 1 else ""
        raise UserError(
            f"{outputs[0]}{suffix}: no record tells with which settings they were made, as after a copy without "
            "results/records: copy that folder too; or, if you know that they fit the present settings, run the same "
            "command with --touch first; or delete them"
        )


def blind_reruns(planned: list[compat.Planned]) -> int:
    """Return how many finished jobs of shards would run again only because the cohort is made in the same run.

    0 if the user requested the cohort with ``--forcerun`` or ``--forceall``.
    """
    if not any(job.rule == "cohort_shards" and not job.forced for job in planned):
        return 0
    return sum(all(Path(path).exists() for path in job.output) for job in planned if job.by_shard)
