"""The costs of a run, and the text of the forecast that is printed before the first job.

Core seconds, GPU seconds and bytes of each job are computed from the unit costs in ``resources/costs.yaml``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass

from cxr.base.vocabulary import SPLITS
from cxr.nets.hub import is_downloaded
from cxr.workflow.forecast.cohort import CohortForecast, forecast_cohort
from cxr.workflow.forecast.counts import SystemCounts, count_systems, unit_costs, yield_of
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
"""{system: its name in the table of costs}, in the order of the table's rows."""
OF_WING = {"imaging": "images", "language": "images", "rules": "images"}


@dataclass(frozen=True)
class Cost:
    """Cost of some jobs: number of jobs, core seconds, GPU seconds, bytes of results, number of unmeasured jobs."""

    num_jobs: int = 0
    core_s: float = 0.0
    gpu_s: float = 0.0
    num_bytes: float = 0.0
    num_unknown: int = 0


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    return Cost(*map(sum, zip(*map(astuple, costs), strict=True)))


def cost_of(job: Planned, counts: Mapping[str, float | Mapping[str, float]], plan: Plan) -> Cost:
    """Return the cost of a job.

    counts: {unit of a cost, such as "images": number of these units in the run}. If the number depends on a wildcard of
    the job, it is {value of the wildcard: number}. A job of one shard gets an equal part of the number.
    """
    units = unit_costs()
    forecast = units["forecast"]
    unit = forecast["rules"].get(job.rule, {})
    amount = counts[unit["per"]] if "per" in unit else 0.0
    if isinstance(amount, Mapping):
        amount = next((amount[value] for value in job.wildcards.values() if value in amount), 0.0)
    amount /= len(plan.shards) if job.by_shard else 1
    core_s, gpu_s, num_bytes = (unit.get(name, 0.0) for name in ("core_s", "gpu_s", "bytes"))
    is_unknown = job.num_gpus > 0
    if stage := unit.get("stage"):
        core_s, gpu_s, is_unknown = _of_engine(units, stage, plan)
        num_bytes = units["bytes"][stage]
    elif job.num_gpus and gpu_s:
        core_s, is_unknown = 0.0, False
    elif not job.num_gpus:
        gpu_s = 0.0
    start_s = unit.get("start_s", forecast["start_s"])
    return Cost(1, start_s + core_s * amount, gpu_s * amount, num_bytes * amount, int(is_unknown))


def _of_engine(units: Mapping, stage: str, plan: Plan) -> tuple[float, float, bool]:
    """Return (core s, GPU s, whether these are unknown) per image of a stage's engine. ``units``: its unit costs."""
    engine = plan.engines.get(stage, "")
    if engine == "lite":
        return units["lite"][stage]["core_s"], 0.0, False
    large = units["paper"][stage]
    if large["engine"] != engine:
        return 0.0, 0.0, True
    return (0.0, large["gpu_s"], False) if plan.gpus.get(stage) else (large["without_gpu_core_s"], 0.0, False)


@dataclass(frozen=True)
class Forecast:
    """Input and output of a run, its costs by system, and reasons to refuse it.

    ``most_per_image``: how often SemiSynCXR may put one finding into the same X-ray. ``absent_models``: a sentence for
    each model of the Hugging Face hub that a job would load and that is not on this machine.
    """

    cohort: CohortForecast
    counts: SystemCounts
    costs: Mapping[str, Cost]
    refusals: Sequence[str]
    most_per_image: int
    absent_models: Sequence[str] = ()

    @property
    def cost(self) -> Cost:
        """Return the cost of all jobs."""
        return total(self.costs.values())

    def text(self) -> str:
        """Return the text of the forecast for the terminal."""
        return "\n".join([*self._lines_of_counts(), "", *self._lines_of_costs()])

    def _lines_of_counts(self) -> Iterator[str]:
        cohort, counts = self.cohort, self.counts
        yield f"Plan of this run, from {cohort.basis}:"
        yield ""
        yield f"  {'':16}{'all':>10}" + "".join(f"{split:>10}" for split in SPLITS)
        yield f"  {'images listed':16}{cohort.num_images:>10,}"
        titles = (("subjects", "num_subjects"), ("X-rays used", "num_xrays"), ("readable reports", "num_reports"))
        for title, name in titles:
            yield _row(title, getattr(cohort, name))
        if "ils" in self.costs:
            for thresholds, pairs in counts.pairs.items():
                yield _row(f"pairs, {thresholds}", pairs)
        if "medground" in self.costs:
            yield _row("MedGround lines", counts.queries)
        if "radvlm" in self.costs:
            for mix, lines in counts.mix_lines.items():
                yield _row(f"RadVLM lines, {mix}", lines)
        if counts.model_reports:
            rules = unit_costs()["forecast"]["rules"].values()
            gpu_s = sum(unit["gpu_s"] for unit in rules if unit.get("per") == "model_reports")
            num_xrays = sum(cohort.num_xrays.values())
            per_1000 = 1000 * counts.model_reports / num_xrays
            yield ""
            yield (
                f"  A language model reads about {counts.model_reports:,.0f} of {num_xrays:,.0f} reports. "
                f"Of 1,000 reports it reads {per_1000:,.0f}, which take about {duration(per_1000 * gpu_s)} of GPU time"
            )
        if "semisyn" in self.costs:
            about = "" if counts.is_healthy_counted else "about "
            yield ""
            yield (
                f"  SemiSynCXR: {about}{counts.num_healthy:,.0f} healthy X-rays, each used at most "
                f"{self.most_per_image} times for a finding; {about}{counts.num_asked:,} images of each finding, "
                f"{counts.edits:,.0f} edits"
            )

    def _lines_of_costs(self) -> Iterator[str]:
        yield f"  {'':16}{'jobs':>10}{'core time':>14}{'GPU time':>14}{'results':>12}"
        rows = [(TITLES[system], self.costs[system]) for system in TITLES if system in self.costs]
        for title, cost in [*rows, ("all", self.cost)]:
            gpu = duration(cost.gpu_s) + (" + ?" if cost.num_unknown else "")
            size = f"{cost.num_bytes / 1e9:,.2f} GB"
            yield f"  {title:16}{cost.num_jobs:>10,}{duration(cost.core_s):>14}{gpu:>14}{size:>12}"
        if self.cost.num_unknown:
            yield f"  ?: no costs are known for {self.cost.num_unknown} of these jobs (resources/costs.yaml)"
        yield from (f"  {sentence}" for sentence in self.absent_models)


def _row(title: str, by_split: Mapping[str, float]) -> str:
    numbers = [sum(by_split.values()), *(by_split[split] for split in SPLITS)]
    return f"  {title:16}" + "".join(f"{number:>10,.0f}" for number in numbers)


def duration(seconds: float) -> str:
    """Return a time as text in a suitable unit, such as "40 s", "12 min" or "3.4 h", and "-" for less than 1 s."""
    if seconds < 1:
        return "-"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 360_000 else f"{seconds / 3600:,.0f} h"


def make_forecast(plan: Plan, planned: Sequence[Planned]) -> Forecast:
    """Return the forecast of the planned jobs. Raises UserError if a table of the user cannot be read."""
    jobs = [job for job in planned if job.output]
    remade = {path for job in jobs for path in job.output}
    by_system: dict[str, list[Planned]] = {}
    for job in jobs:
        by_system.setdefault(_system_of(plan, job), []).append(job)
    cohort = forecast_cohort(plan.settings.cohort.source, plan.options, plan.shards, remade, yield_of("decoded"))
    counts = count_systems(plan, cohort, remade, set(by_system))
    numbers = _numbers(cohort, counts)
    costs = {
        system: total(cost_of(job, numbers, plan) for job in by_system[system])
        for system in TITLES
        if system in by_system
    }
    return Forecast(
        cohort,
        counts,
        costs,
        refusals(plan, cohort, counts, jobs),
        plan.options["semisyn_placement_plan"]["most_per_image"],
        list(dict.fromkeys(_absent_models(plan, jobs))),
    )


def _absent_models(plan: Plan, jobs: Sequence[Planned]) -> Iterator[str]:
    """Yield a sentence for each vision-language run whose model is on the hub and not on this machine."""
    for run, keys in plan.vlm.runs.items():
        model, revision = keys["options"]["model"], keys["options"]["revision"]
        is_loaded = any(job.wing == "vlm" and job.wildcards.get("run") == run for job in jobs)
        if model and is_loaded and not is_downloaded(model, revision):
            pin = f" --revision {revision}" if revision else ""
            yield (
                f"vlm.tuning.runs.{run}: the model {model} is not on this machine, and no job downloads it. If jobs "
                f"run on this machine, run `hf download {model}{pin}`, or set the key model to its folder"
            )


def _system_of(plan: Plan, job: Planned) -> str:
    """Return the system of a job, a key of :data:`TITLES`. A job of ``vlm`` belongs to the system of its samples."""
    if job.wing == "vlm":
        run = plan.vlm.runs.get(job.wildcards.get("run", ""), {})
        return run.get("system") or plan.vlm.systems.get(job.wildcards.get("set", "")) or "vlm"
    return OF_WING.get(job.wing, job.wing)


def _numbers(cohort: CohortForecast, counts: SystemCounts) -> dict[str, float | Mapping[str, float]]:
    """Return {unit of a cost: number of these units}, the argument ``counts`` of :func:`cost_of`."""
    return vars(counts) | {
        "images": cohort.num_images,
        "xrays": sum(cohort.num_xrays.values()),
        "reports": sum(cohort.num_reports.values()),
        "queries": sum(counts.queries.values()),
        "mix_lines": {mix: sum(lines.values()) for mix, lines in counts.mix_lines.items()},
    }
