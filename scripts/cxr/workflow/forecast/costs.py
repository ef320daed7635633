"""What jobs cost: core and GPU seconds and bytes, by the unit costs in ``resources/costs.yaml``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import yaml

from cxr.base.paths import RESOURCES
from cxr.workflow.snakemake_compat import Planned

RESOURCE_FILES = ("costs.yaml",)


@dataclass(frozen=True)
class Cost:
    """Of some jobs: their number, core seconds, GPU seconds, bytes of their results, and jobs of unknown cost."""

    num_jobs: int = 0
    core_s: float = 0.0
    gpu_s: float = 0.0
    num_bytes: float = 0.0
    num_unknown: int = 0

    def __add__(self, addend: "Cost") -> "Cost":
        return Cost(
            self.num_jobs + addend.num_jobs,
            self.core_s + addend.core_s,
            self.gpu_s + addend.gpu_s,
            self.num_bytes + addend.num_bytes,
            self.num_unknown + addend.num_unknown,
        )


@cache
def unit_costs() -> dict:
    """Return the unit costs."""
    return yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))


def yield_of(name: str) -> float:
    """Return how many things of a name come of one that goes in."""
    return unit_costs()["forecast"]["yields"][name]["number"]


@dataclass(frozen=True)
class Machine:
    """What the jobs run on. engines: {stage: engine}; gpus: {stage: its GPUs}; num_shards: of the cohort."""

    engines: Mapping[str, str]
    gpus: Mapping[str, int]
    num_shards: int


def cost_of(job: Planned, counts: Mapping[str, float | Mapping[str, float]], machine: Machine) -> Cost:
    """Return the cost of a job.

    counts: {what: how many there are in all, or {value of a wildcard: how many}}; a shard has its part of them.
    """
    units = unit_costs()
    forecast = units["forecast"]
    unit = forecast["rules"].get(job.rule, {})
    amount = counts[unit["per"]] if "per" in unit else 0.0
    if isinstance(amount, Mapping):
        amount = next((amount[value] for value in job.wildcards.values() if value in amount), 0.0)
    amount /= machine.num_shards if job.by_shard else 1
    core_s, gpu_s, num_bytes = (unit.get(name, 0.0) for name in ("core_s", "gpu_s", "bytes"))
    is_unknown = job.num_gpus > 0
    if stage := unit.get("stage"):
        core_s, gpu_s, is_unknown = _of_engine(units, stage, machine)
        num_bytes = units["bytes"][stage]
    elif job.num_gpus and gpu_s:
        core_s, is_unknown = 0.0, False
    elif not job.num_gpus:
        gpu_s = 0.0
    start_s = unit.get("start_s", forecast["start_s"])
    return Cost(1, start_s + core_s * amount, gpu_s * amount, num_bytes * amount, int(is_unknown))


def _of_engine(units: Mapping, stage: str, machine: Machine) -> tuple[float, float, bool]:
    """Return core and GPU seconds of an image in a stage's engine, and whether they are unknown."""
    engine = machine.engines.get(stage, "")
    if engine == "lite":
        return units["lite"][stage]["core_s"], 0.0, False
    large = units["paper"][stage]
    if large["engine"] != engine:
        return 0.0, 0.0, True
    return (0.0, large["gpu_s"], False) if machine.gpus.get(stage) else (large["without_gpu_core_s"], 0.0, False)


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    return sum(costs, Cost())
