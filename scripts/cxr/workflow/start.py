"""What happens before the first job: mistakes are refused, and the plan is printed."""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cxr.base.errors import UserError
from cxr.workflow import snakemake_compat as compat
from cxr.workflow.folder import refuse_orphans, refuse_unwritable
from cxr.workflow.freshness import PLAN_TARGET, refuse_unrecorded
from cxr.workflow.plan import Plan

if TYPE_CHECKING:
    from cxr.workflow.forecast.forecast import Forecast


def start_run(plan: Plan, workflow) -> None:
    """Refuse what cannot end well, and print the plan of the jobs; end here if that is all that was asked for.

    It is called when the jobs are known: by a run before its first job, by a dry run before it lists them.
    """
    try:
        if compat.is_touch_run(workflow):
            return
        planned = compat.planned_jobs(workflow.dag)
        if any(job.rule == PLAN_TARGET for job in planned):
            print(describe_plan(plan, planned, compat.unrecorded_outputs(workflow.dag)), flush=True)
            sys.exit(0)
        refuse_unwritable(Path.cwd())
        refuse_orphans(Path.cwd(), submits=compat.submits_to_slurm(workflow))
        if any(job.output for job in planned):
            forecast = _forecast(plan, planned)
            compat.print_message(forecast.text())
            if forecast.refusals:
                raise UserError(forecast.refusals[0])
    except UserError as error:
        sys.exit(f"cxr-ils: {error}")


def _forecast(plan: Plan, planned: Sequence[compat.Planned]) -> "Forecast":
    # imported here: every job of a cluster parses the workflow, and none needs what a forecast needs
    from cxr.workflow.forecast.forecast import make_forecast

    return make_forecast(plan, planned)


def describe_plan(plan: Plan, planned: Sequence[compat.Planned], unrecorded: list[str]) -> str:
    """Return the plan of all systems, with what would be refused; ``unrecorded``: results that have no record."""
    if not any(job.output for job in planned):
        return "Nothing is to be done: all four systems are finished."
    forecast = _forecast(plan, planned)
    sentences = [*forecast.refusals]
    try:
        refuse_unrecorded(unrecorded)
    except UserError as error:
        sentences.append(str(error))
    lines = [f"Would be refused: {sentence}" for sentence in sentences] or ["Nothing would be refused."]
    return "\n".join([forecast.text(), "", *lines])


def describe_unknown_name(plan: Plan, path: str) -> str:
    """Return a sentence if a path of results bears a name that the settings do not declare, else ""."""
    detectors = plan.semisyn.detectors.runs
    # (folder that is named, kind of its name, the names that there are, settings that declare them)
    declarations: list[tuple[str, str, Iterable[str], str]] = [
        ("(?:masks|dataset|figures|review|release|paraphrase)/([^/]+)/", "threshold set", plan.sets,
         "thresholds.sets and thresholds.grid"),
        ("(?:training|inference|evaluation)/([^/]+)/", "run", [*plan.ils.runs, *plan.ils.predictions],
         "training.runs and evaluation.predictions"),
        ("vlm/([^/]+)/", "vision-language run", [*plan.vlm.runs, *plan.vlm.predictions],
         "vlm.tuning.runs and vlm.answers.predictions"),
        ("radvlm/instructions/([^/]+)/", "mix", plan.radvlm.mixes, "radvlm.instructions.mixes"),
        ("medground/(?:sources|regions|queries|verification)/([^/]+)/", "MedGround source", plan.medground.sources,
         "medground.sources.sets"),
        (r"semisyn/detectors/([^/]+)\.s\d+/", "detector run", detectors, "semisyn.detectors.runs"),
    ]  # fmt: skip
    for pattern, kind, declared, key in declarations:
        match, names = re.match(f"results/{pattern}", path.removeprefix("./")), list(declared)
        if match and match[1] not in names:
            verb = "is" if len(names) == 1 else "are"
            return f"{path}: there is no {kind} {match[1]!r}; there {verb} {', '.join(names) or 'none'} ({key})"
    return ""
