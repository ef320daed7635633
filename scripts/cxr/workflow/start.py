"""Steps before the first job: refuse mistakes, and print the plan of the run."""

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
    """Print the plan of the jobs, and end the run with a message if it would fail. The target ``plan`` also ends here.
    A run calls this function before its first job, a dry run before it lists the jobs."""
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
    # imported here, because every job of a cluster reads the Snakefile and none needs these modules
    from cxr.workflow.forecast.forecast import make_forecast

    return make_forecast(plan, planned)


def describe_plan(plan: Plan, planned: Sequence[compat.Planned], unrecorded: list[str]) -> str:
    """Return the printed text of the target ``plan``: the forecast of all systems, and why a run would be refused.
    ``planned``: the jobs of a run. ``unrecorded``: existing results without a record of Snakemake."""
    if not any(job.output for job in planned):
        return "There is nothing to do: all four systems are finished."
    forecast = _forecast(plan, planned)
    sentences = [*forecast.refusals]
    try:
        refuse_unrecorded(unrecorded)
    except UserError as error:
        sentences.append(str(error))
    lines = [f"Would be refused: {sentence}" for sentence in sentences] or ["Nothing would be refused."]
    return "\n".join([forecast.text(), "", *lines])


def describe_unknown_name(plan: Plan, path: str) -> str:
    """Return a sentence if the path of a result contains a name that the settings do not declare, else ""."""
    detectors = plan.semisyn.detectors.runs
    # (pattern of paths, kind of the name in them, declared names, settings that declare them)
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
            return f"{path}: there is no {kind} {match[1]!r}; there {verb} {', '.join(names) or 'none'} ({key}): fix it"
    return ""
