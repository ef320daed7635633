"""The forecast of a run, as numbers and as the text that is printed before its first job."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cxr.base.vocabulary import SPLITS
from cxr.workflow.forecast.cohort import CohortForecast, forecast_cohort
from cxr.workflow.forecast.costs import Cost, Machine, cost_of, total, yield_of
from cxr.workflow.forecast.counts import SystemCounts, count_systems
from cxr.workflow.forecast.refusals import refusals
from cxr.workflow.plan import Plan
from cxr.workflow.snakemake_compat import Planned

TITLES = {
    "images": "images, reports",
    "ils": "ILS, ROSALIA",
    "semisyn": "SemiSynCXR",
    "medground": "MedGround",
    "radvlm": "RadVLM",
    "vlm": "other models",
    "reporting": "tables, pages",
}
"""{system: its name in the table of costs}, in this order."""
OF_WING = {"imaging": "images", "language": "images", "rules": "images"}


@dataclass(frozen=True)
class Forecast:
    """What goes into a run, what it makes, what that costs by system, and why it would be refused."""

    cohort: CohortForecast
    counts: SystemCounts
    costs: Mapping[str, Cost]
    refusals: Sequence[str]
    most_per_image: int

    @property
    def cost(self) -> Cost:
        """Return the cost of all jobs."""
        return total(self.costs.values())

    def text(self) -> str:
        """Return the forecast as it is printed: at most a screen of lines."""
        return "\n".join([*self._lines_of_cohort(), *self._lines_of_systems(), "", *self._lines_of_costs()])

    def _lines_of_cohort(self) -> Iterator[str]:
        cohort = self.cohort
        yield f"Plan of this run, from {cohort.basis}:"
        yield ""
        yield f"  {'':16}{'all':>10}" + "".join(f"{split:>10}" for split in SPLITS)
        yield f"  {'images listed':16}{cohort.num_images:>10,}"
        titles = (("subjects", "num_subjects"), ("X-rays used", "num_xrays"), ("readable reports", "num_reports"))
        for title, name in titles:
            by_split = getattr(cohort, name)
            yield _row(title, by_split)
        counts = self.counts
        if "ils" in self.costs:
            for thresholds, pairs in counts.pairs.items():
                yield _row(f"pairs, {thresholds}", pairs)
        if "medground" in self.costs:
            yield _row("MedGround lines", counts.queries)
        if "radvlm" in self.costs:
            for mix, lines in counts.mix_lines.items():
                yield _row(f"RadVLM lines, {mix}", lines)

    def _lines_of_systems(self) -> Iterator[str]:
        counts = self.counts
        if "semisyn" in self.costs:
            about = "" if "num_healthy" in counts.exact else "about "
            yield ""
            yield (
                f"  SemiSynCXR: {about}{counts.num_healthy:,.0f} healthy X-rays, each used at most "
                f"{self.most_per_image} times for a finding; {about}{counts.num_asked:,} images of each finding, "
                f"{counts.num_edits:,.0f} edits"
            )

    def _lines_of_costs(self) -> Iterator[str]:
        yield f"  {'':16}{'jobs':>10}{'core time':>14}{'GPU time':>14}{'results':>12}"
        rows = [(TITLES[system], self.costs[system]) for system in TITLES if system in self.costs]
        for title, cost in [*rows, ("all", self.cost)]:
            gpu = duration(cost.gpu_s) + (" + ?" if cost.num_unknown else "")
            size = f"{cost.num_bytes / 1e9:,.2f} GB"
            yield f"  {title:16}{cost.num_jobs:>10,}{duration(cost.core_s):>14}{gpu:>14}{size:>12}"
        if self.cost.num_unknown:
            yield f"  ?: nobody has measured {self.cost.num_unknown} of these jobs (resources/costs.yaml)"


def _row(title: str, by_split: Mapping[str, float]) -> str:
    numbers = [sum(by_split.values()), *(by_split[split] for split in SPLITS)]
    return f"  {title:16}" + "".join(f"{number:>10,.0f}" for number in numbers)


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it: "40 s", "12 min", "3.4 h", "320 h"; "-" for none."""
    if seconds < 1:
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 360_000 else f"{seconds / 3600:,.0f} h"


def make_forecast(plan: Plan, planned: Sequence[Planned]) -> Forecast:
    """Return the forecast of the planned jobs. Raises UserError for a table of the user's that cannot be read."""
    jobs = [job for job in planned if job.output]
    remade = {path for job in jobs for path in job.output}
    by_system: dict[str, list[Planned]] = {}
    for job in jobs:
        by_system.setdefault(_system_of(plan, job), []).append(job)
    cohort = forecast_cohort(plan.settings.cohort.source, plan.options, plan.shards, remade, yield_of("decoded"))
    counts = count_systems(plan, cohort, remade, set(by_system))
    numbers = _numbers(cohort, counts)
    machine = Machine(plan.engines, plan.gpus, len(plan.shards))
    costs = {
        system: total(cost_of(job, numbers, machine) for job in by_system[system])
        for system in TITLES
        if system in by_system
    }
    return Forecast(
        cohort,
        counts,
        costs,
        refusals(plan, cohort, counts, jobs),
        plan.options["semisyn_placement_plan"]["most_per_image"],
    )


def _system_of(plan: Plan, job: Planned) -> str:
    """Return the system that a job belongs to; that of a vision-language model's run is the system of its lines."""
    if job.wing == "vlm":
        run = plan.vlm.runs.get(job.wildcards.get("run", ""), {})
        return run.get("system") or plan.vlm.systems.get(job.wildcards.get("set", "")) or "vlm"
    return OF_WING.get(job.wing, job.wing)


def _numbers(cohort: CohortForecast, counts: SystemCounts) -> dict[str, float | Mapping[str, float]]:
    """Return {what a unit cost is of: how many there are, or {wildcard: how many}}."""
    return {
        "images": cohort.num_images,
        "xrays": sum(cohort.num_xrays.values()),
        "reports": sum(cohort.num_reports.values()),
        "edits": counts.num_edits,
        "exported_images": counts.exported_images,
        "queries": sum(counts.queries.values()),
        "mix_lines": {mix: sum(lines.values()) for mix, lines in counts.mix_lines.items()},
        "training_pairs": counts.training_pairs,
        "test_pairs": counts.test_pairs,
        "tuning_updates": counts.tuning_updates,
        "questions": counts.questions,
        "detector_updates": counts.detector_updates,
    }
