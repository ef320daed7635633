"""Read the requests of a dry run's jobs, find each job's partition, and check whether the partition grants them."""

import logging
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

from snakemake_executor_plugin_slurm.partitions import Partition, get_best_partition

from cxr.base.errors import UserError
from cxr.workflow.snakemake_compat import LOCAL_RULES

UNLIMITED = 10**9
"""Number of minutes that stands for no time limit."""
LEAST_MINUTES = 60
"""Minimum of the setting ``compute.max_runtime``, in minutes."""
LIMITS = {"minutes": "max_runtime", "memory_mb": "max_mem_mb", "cores": "max_threads", "gpus": "max_gpu"}
"""{request of a job: key of partitions.yaml that limits it}."""
UNITS = {"memory_mb": "MB", "cores": "cores", "gpus": "GPUs"}
TOGETHER = "together"
"""Code for a job that no node can run, although each of its requests alone fits some node."""
KNOWN_RESOURCES = {"mem_mb", "runtime", "gpu", "mem", "mem_mib", "disk", "disk_mb", "disk_mib", "tmpdir"}
"""Resources with a field in :class:`JobRequest`, or that do not affect a job's partition."""
QUIET = logging.getLogger("cxr.quiet")
QUIET.disabled = True


@dataclass(frozen=True)
class JobRequest:
    """The request of a SLURM job of the workflow: minutes, megabytes, cores and GPUs.
    ``members``: (rule, minutes) of its Snakemake jobs. ``other_resources``: other requests, such as slurm_partition."""

    name: str
    minutes: int
    memory_mb: int
    cores: int
    gpus: int
    members: tuple[tuple[str, int], ...] = ()
    other_resources: dict[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterPartition:
    """The limits of a SLURM partition.

    minutes: time limit of a job. nodes: (megabytes, cores, GPUs) of each kind of node. cancels: whether it ends jobs in
    favour of others without requeueing them. default: whether jobs go there if they name no partition.
    """

    name: str
    minutes: int
    nodes: tuple[tuple[int, int, int], ...]
    cancels: bool = False
    default: bool = False

    def most(self, demand: str) -> int:
        """Return the largest amount of ``demand``, a key of :data:`LIMITS`, that a job may request."""
        if demand == "minutes":
            return self.minutes
        return max(node[("memory_mb", "cores", "gpus").index(demand)] for node in self.nodes)


def read_requests(dry_run: str) -> list[JobRequest]:
    """Return the requests of the jobs that go to the cluster, from the output of a dry run.

    A group is one job, because its members run one after the other. Rules that run where Snakemake was started are left
    out. Raises UserError if the dry run shows no job.
    """
    blocks: list[tuple[str, list[str]]] = []
    for block in re.split(r"\n(?=\[)", dry_run):
        if head := re.match(r"\[[^\]]*\](?: Group job (\S+)|\s+rule (\w+):)", block):
            blocks.append((head.group(1) or head.group(2), re.split(r"\n\s*\n?\s+(?=\[)", block)))
    if not blocks:
        raise UserError("the dry run shows no job: leave out --quiet, and take Snakemake from requirements/run.txt")
    requests, local = [], local_rules(dry_run)
    for name, members in blocks:
        member_resources = [_resources(text) for text in members if "log:" in text]  # a target has none
        member_resources = [member for member in member_resources if member["rule"] not in local]
        if member_resources:
            requests.append(_one_job(name, member_resources))
    return requests


def _one_job(name: str, member_resources: list[dict]) -> JobRequest:
    most = {key: max(member.pop(key) for member in member_resources) for key in ("mem_mb", "threads", "gpu")}
    members = tuple((member.pop("rule"), member.pop("runtime")) for member in member_resources)
    other_resources = {
        key: value for member in member_resources for key, value in member.items() if key not in KNOWN_RESOURCES
    }
    minutes = sum(number for _, number in members)
    return JobRequest(name, minutes, most["mem_mb"], most["threads"], most["gpu"], members, other_resources)


def _resources(text: str) -> dict[str, int | str]:
    resources = {"rule": _search(r"rule (\w+):", text), "threads": _search(r"threads: (.*)", text, "1")}
    resources |= {"mem_mb": "0", "runtime": "0", "gpu": "0"}
    pairs = (pair.partition("=") for pair in re.split(r", (?=\w+=)", _search("resources: (.*)", text)))
    resources |= {key: value for key, _, value in pairs}
    return {key: int(value) if value.isdecimal() else value for key, value in resources.items()}


def _search(pattern: str, text: str, default: str = "") -> str:
    match = re.search(pattern, text)
    return match.group(1) if match else default


def local_rules(dry_run: str) -> set[str]:
    """Return the rules that run where Snakemake was started, as a dry run names them."""
    return set(_search(re.escape(LOCAL_RULES) + "(.*)", dry_run).split(", ")) - {""}


def working_directory(dry_run: str) -> Path:
    """Return the working directory of a run from its dry run. Raises UserError if the dry run does not state it."""
    path = _search(r"\n  Working directory: (.*)", dry_run)
    if not path:
        raise UserError("the dry run names no folder: leave out --quiet, and take Snakemake from requirements/run.txt")
    return Path(path)


def partition_of(job: JobRequest, partitions: list[Partition]) -> str | None:
    """Return the partition that Snakemake's executor sends a job to, or None if it leaves the choice to SLURM."""
    wish = job.other_resources.get("slurm_partition")
    if wish:
        return str(wish)
    resources = job.other_resources | {"mem_mb": job.memory_mb, "runtime": job.minutes, "gpu": job.gpus}
    return get_best_partition(partitions, SimpleNamespace(name=job.name, threads=job.cores, resources=resources), QUIET)


def find_lack(job: JobRequest, place: ClusterPartition) -> str:
    """Return the request that a partition refuses: a key of :data:`LIMITS` or :data:`TOGETHER`, or "" for none."""
    if job.minutes > place.minutes:
        return "minutes"
    request = (job.memory_mb, job.cores, job.gpus)
    if any(all(has >= want for has, want in zip(node, request, strict=True)) for node in place.nodes):
        return ""
    return next((demand for demand in LIMITS if getattr(job, demand) > place.most(demand)), TOGETHER)


@dataclass(frozen=True)
class Cluster:
    """All partitions of a cluster by name, and the ones listed in partitions.yaml, among which the executor chooses."""

    by_name: dict[str, ClusterPartition]
    listed: list[Partition]

    def find_denial(self, job: JobRequest) -> tuple[str, str | None]:
        """Return (request, partition): the request that a job's partition does not grant, and the partition's name.

        The request is a key of :data:`LIMITS`, :data:`TOGETHER`, "partition" if the cluster lacks the partition, or ""
        if all is granted. The partition is None if no partition of partitions.yaml takes the job.
        """
        name = partition_of(job, self.listed)
        if name is None:
            without = (demand for demand in LIMITS if partition_of(replace(job, **{demand: 0}), self.listed))
            return next(without, "gpus" if job.gpus else "minutes"), None
        if name not in self.by_name:
            return "partition", name
        return find_lack(job, self.by_name[name]), name

    def most_memory(self, job: JobRequest) -> int:
        """Return the largest memory in megabytes with which a job would be granted; 0 if there is none."""
        amounts = {node[0] for place in self.by_name.values() for node in place.nodes}
        limits = [partition.limits.max_mem_mb for partition in self.listed]
        amounts |= {int(limit) for limit in limits if limit < math.inf}
        granted = (amount for amount in amounts if not self.find_denial(replace(job, memory_mb=amount))[0])
        return max(granted, default=0)

    def refusal(self, job: JobRequest, again: bool = False) -> str:
        """Return why SLURM refuses a job or lets it wait for ever, with the remedy; "" if it does neither.
        ``again``: whether the job is a later try of a job whose first try is granted."""
        demand, name = self.find_denial(job)
        if not demand:
            return ""
        if demand == "partition":
            return f"goes to {name}, which is not on this cluster: correct slurm_partition"
        if name is None:
            default = next((place.name for place in self.by_name.values() if place.default), "none")
            reason = f"no partition of partitions.yaml takes it, because of {LIMITS[demand]}"
            return f"{reason}, and SLURM's default partition is {default}: {_wider(job, demand, self.listed, again)}"
        if demand == TOGETHER:
            return f"goes to {name}, where no node has all that it asks for together: name another partition"
        most = self.by_name[name].most(demand)
        grants = f"goes to {name}, which grants {_amount(demand, most)}"
        if alternative := self._alternative(job, demand, name):
            remedy = f"write {LIMITS[demand]}: {most} below {name} in partitions.yaml, so that it goes to {alternative}"
        elif demand == "minutes":
            remedy = _less_time(job, most, again)
        else:
            remedy = "name a partition with larger nodes"
        return f"{grants}: {remedy}"

    def _alternative(self, job: JobRequest, demand: str, name: str) -> str | None:
        """Return the partition that takes a job once partitions.yaml states the limit of ``name``, or None.
        ``name``: the partition that the job goes to now. ``demand``: the request that this partition refuses."""
        limit = {LIMITS[demand]: self.by_name[name].most(demand)}
        listed = [
            replace(partition, limits=replace(partition.limits, **limit)) if partition.name == name else partition
            for partition in self.listed
        ]
        alternative = partition_of(job, listed)
        is_granted = alternative in self.by_name and not find_lack(job, self.by_name[alternative])
        return alternative if alternative != name and is_granted else None


def _wider(job: JobRequest, demand: str, partitions: list[Partition], again: bool) -> str:
    """Return the remedy if the request ``demand`` fits no partition. ``again``: see :meth:`Cluster.refusal`."""
    if demand == "gpus":
        return f"write max_gpu: {job.gpus} or more below a partition with GPUs"
    candidates = [partition for partition in partitions if partition_of(replace(job, **{demand: 0}), [partition])]
    if demand == "minutes" and candidates:
        return _less_time(job, int(max(partition.limits.max_runtime for partition in candidates)), again)
    return f"raise {LIMITS[demand]} of a partition whose nodes grant more"


def _less_time(job: JobRequest, limit: int, again: bool) -> str:
    """Return advice to make a job ask for at most ``limit`` minutes. ``again``: see :meth:`Cluster.refusal`."""
    rules, numbers = {rule for rule, _ in job.members}, [number for _, number in job.members] or [job.minutes]
    shards = len(numbers) > 1 and len(rules) == 1
    settings = [f"group-components of {job.name}: {max(1, limit // max(numbers))}"] if shards else []
    most = limit if shards else _most_each(numbers, limit)
    alternative = "name a partition that grants more"
    if max(numbers) > most:
        if most < LEAST_MINUTES:
            return alternative
        settings.append(f"compute.max_runtime: {most}")
    return f"set {' and '.join(settings)}{'' if again else f', or {alternative}'}"


def _most_each(members: list[int], limit: int) -> int:
    """Return the largest cap on each member's minutes that keeps the sum of all members' minutes within ``limit``."""
    remaining = limit
    for number, member_minutes in enumerate(sorted(members)):
        share = remaining // (len(members) - number)
        if member_minutes > share:
            return share
        remaining -= member_minutes
    return limit


def _amount(demand: str, number: int) -> str:
    return format_minutes(number) if demand == "minutes" else f"{number:,} {UNITS[demand]}"


def describe_request(job: JobRequest) -> str:
    """Return a job's request as text, such as "3 h 05 min, 8,000 MB, 4 cores"."""
    parts = [f"{job.memory_mb:,} MB", f"{job.cores} cores", *([f"{job.gpus} GPUs"] if job.gpus else [])]
    return ", ".join([format_minutes(job.minutes), *parts])


def format_minutes(minutes: int) -> str:
    """Return minutes as text, such as "3 h 05 min"."""
    return "any time" if minutes >= UNLIMITED else f"{minutes // 60} h {minutes % 60:02} min"
