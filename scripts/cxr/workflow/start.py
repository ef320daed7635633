"""What happens before the first job: mistakes are refused, and the plan is printed."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cxr.base.errors import UserError
from cxr.workflow.freshness import PLAN_TARGET, refuse_unrecorded
from cxr.workflow.plan import Plan
from cxr.workflow.preflight import refuse_empty_splits
from cxr.workflow.slurm.orphans import refuse_orphans
from cxr.workflow.snakemake_compat import (
    Planned,
    is_touch_run,
    planned_jobs,
    print_message,
    submits_to_slurm,
    unrecorded_outputs,
)
from cxr.workflow.writable import refuse_unwritable

if TYPE_CHECKING:
    from cxr.workflow.forecast.forecast import Forecast


def start_run(plan: Plan, workflow) -> None:
    """Refuse what cannot end well, and print the plan of the jobs; end here if that is all that was asked for.

    It is called when the jobs are known: by a run before its first job, by a dry run before it lists them.
    """
    try:
        if is_touch_run(workflow):
            return
        planned = planned_jobs(workflow.dag)
        if any(job.rule == PLAN_TARGET for job in planned):
            print(describe_plan(plan, planned, unrecorded_outputs(workflow.dag)), flush=True)
            sys.exit(0)
        refuse_unwritable(Path.cwd())
        refuse_orphans(Path.cwd(), submits=submits_to_slurm(workflow))
        _refuse(plan, planned)
    except UserError as error:
        sys.exit(f"cxr-ils: {error}")


def _refuse(plan: Plan, planned: Sequence[Planned]) -> None:
    """Print the plan of the jobs. Raises UserError for what cannot end well."""
    refuse_empty_splits(planned)
    if not any(job.output for job in planned):
        return
    forecast = _forecast(plan, planned)
    print_message(forecast.text())
    if forecast.refusals:
        raise UserError(forecast.refusals[0])


def _forecast(plan: Plan, planned: Sequence[Planned]) -> "Forecast":
    # imported here: every job of a cluster parses the workflow, and none needs what a forecast needs
    from cxr.workflow.forecast.forecast import make_forecast

    return make_forecast(plan, planned)


def describe_plan(plan: Plan, planned: Sequence[Planned], unrecorded: list[str]) -> str:
    """Return the plan of all systems, with what would be refused; ``unrecorded``: results that have no record."""
    if not any(job.output for job in planned):
        return "Nothing is to be done: all four systems are finished."
    forecast = _forecast(plan, planned)
    return "\n".join([forecast.text(), "", *_refusal_lines(planned, forecast, unrecorded)])


def _refusal_lines(planned: Sequence[Planned], forecast: "Forecast", unrecorded: list[str]) -> list[str]:
    sentences = list(forecast.refusals)
    for check, values in ((refuse_empty_splits, planned), (refuse_unrecorded, unrecorded)):
        try:
            check(values)
        except UserError as error:
            sentences.append(str(error))
    return [f"Would be refused: {sentence}" for sentence in sentences] or ["Nothing would be refused."]
