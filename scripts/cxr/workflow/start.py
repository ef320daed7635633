"""What happens before the first job: mistakes are refused, and the plan is printed."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cxr.base.errors import UserError
from cxr.workflow.folder import refuse_orphans, refuse_unwritable
from cxr.workflow.freshness import PLAN_TARGET, refuse_unrecorded
from cxr.workflow.plan import Plan
from cxr.workflow.snakemake_compat import (
    Planned,
    is_touch_run,
    planned_jobs,
    print_message,
    submits_to_slurm,
    unrecorded_outputs,
)

if TYPE_CHECKING:
    from cxr.workflow.forecast.forecast import Forecast

KIND_BY_PATH = {
    r"results/(?:masks|dataset|figures|review|release|paraphrase)/([^/]+)/": "threshold set",
    r"results/(?:training|inference|evaluation)/([^/]+)/": "run",
    r"results/vlm/([^/]+)/": "vision-language run",
    r"results/radvlm/instructions/([^/]+)/": "mix",
    r"results/medground/(?:sources|regions|queries|verification)/([^/]+)/": "MedGround source",
    r"results/semisyn/detectors/([^/]+)\.s\d+/": "detector run",
}
"""{pattern of a path: what its folder is named after}."""
DECLARED_AT = {
    "threshold set": "thresholds.sets and thresholds.grid",
    "run": "training.runs and evaluation.predictions",
    "vision-language run": "vlm.tuning.runs and vlm.answers.predictions",
    "mix": "radvlm.instructions.mixes",
    "MedGround source": "medground.sources.sets",
    "detector run": "semisyn.detectors.runs",
}
"""{kind of name: settings that declare such names}."""


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
        if any(job.output for job in planned):
            forecast = _forecast(plan, planned)
            print_message(forecast.text())
            if forecast.refusals:
                raise UserError(forecast.refusals[0])
    except UserError as error:
        sys.exit(f"cxr-ils: {error}")


def _forecast(plan: Plan, planned: Sequence[Planned]) -> "Forecast":
    # imported here: every job of a cluster parses the workflow, and none needs what a forecast needs
    from cxr.workflow.forecast.forecast import make_forecast

    return make_forecast(plan, planned)


def describe_plan(plan: Plan, planned: Sequence[Planned], unrecorded: list[str]) -> str:
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


def declared_names(plan: Plan) -> Mapping[str, Iterable[str]]:
    """Return {kind of name: the names that the settings declare}."""
    return {
        "threshold set": plan.sets,
        "run": [*plan.ils.runs, *plan.ils.predictions],
        "vision-language run": [*plan.vlm.runs, *plan.vlm.predictions],
        "mix": plan.radvlm.mixes,
        "MedGround source": plan.medground.sources,
        "detector run": plan.semisyn.detectors.runs,
    }


def describe_unknown_name(plan: Plan, path: str) -> str:
    """Return a sentence if a path of results bears a name that the settings do not declare, else ""."""
    for pattern, kind in KIND_BY_PATH.items():
        match = re.match(pattern, path.removeprefix("./"))
        names = list(declared_names(plan)[kind])
        if match and match[1] not in names:
            return (
                f"{path}: there is no {kind} {match[1]!r}; there {'is' if len(names) == 1 else 'are'} "
                f"{', '.join(names) or 'none'} ({DECLARED_AT[kind]})"
            )
    return ""
