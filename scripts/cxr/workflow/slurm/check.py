"""Check whether a SLURM cluster fits the profile `slurm` (`make slurm-check`).

The functions only read the output of `scontrol`, `sinfo` and a dry run. :func:`make_findings` calls all others.
"""

import re
from dataclasses import dataclass

from snakemake_executor_plugin_slurm.partitions import Partition, PartitionLimits

from cxr.workflow.slurm.jobs import (
    TOGETHER,
    UNLIMITED,
    Cluster,
    ClusterPartition,
    JobRequest,
    describe_request,
    format_minutes,
    partition_of,
)
from cxr.workflow.slurm.profile import FIRST_LOOK, Profile

MAX_SHOWN = 3
"""Maximum number of refused jobs shown per device (CPU or GPU)."""
LONG_TARGETS = ("paraphrase", "training", "inference", "evaluation", "ablation", "release")
"""Targets with long jobs that `snakemake` runs only if they are named."""
METHODS = ("conda", "apptainer", "env-modules")
"""Snakemake's names for the methods of software deployment."""


@dataclass(frozen=True)
class Finding:
    """One line of the check: its subject, whether the subject is in order, and a message with the remedy if not."""

    subject: str
    is_good: bool
    message: str


def parse_minutes(text: str) -> int:
    """Return a SLURM time such as "1-00:00:00" or "30:00" in minutes, rounded up; :data:`UNLIMITED` for "infinite"."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        return UNLIMITED
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    # "5" and "5:30" start with minutes. After days ("1-5"), or with three numbers, the first number is hours.
    hours_first = bool(days) or len(parts) == 3
    hour, minute, seconds = [*parts, 0, 0][:3] if hours_first else [0, *parts, 0][:3]
    return int(days or 0) * 1440 + hour * 60 + minute + (seconds > 0)


def read_sinfo(sinfo: str) -> dict[str, ClusterPartition]:
    """Return {name: partition} from the output of ``sinfo --exact --noheader --format=%P|%l|%m|%c|%G|%M``.
    The output has one line for each kind of node in each partition."""
    cluster: dict[str, ClusterPartition] = {}
    for line in sinfo.splitlines():
        name, limit, memory, cores, generic, preemption = line.split("|")
        default, name = name.endswith("*"), name.rstrip("*")
        gpus = sum(int(count) for count in re.findall(r"gpu(?::[^:,(]+)?:(\d+)", generic))
        node = (int(memory.rstrip("+")), int(cores.rstrip("+")), gpus)
        nodes = (*cluster[name].nodes, node) if name in cluster else (node,)
        cluster[name] = ClusterPartition(name, parse_minutes(limit), nodes, "CANCEL" in preemption, default)
    return cluster


def make_findings(
    *,
    config: str,
    sinfo: str,
    jobs: list[JobRequest],
    last: list[JobRequest],
    profile: Profile,
    profile_partitions: list[Partition],
    programs: set[str],
    orphans: list[str],
    default_account: str = "",
) -> list[Finding]:
    """Return the lines of the check, in the order in which a user should correct the faults.

    ``config``: the output of `scontrol show config`. ``sinfo``: see :func:`read_sinfo`. ``jobs``, ``last``: requests
    of all jobs at their first and at their last try. ``profile``, ``profile_partitions``: the content of config.yaml
    and partitions.yaml. ``programs``: the installed programs of SLURM and of software deployment. ``orphans``: names
    of earlier runs that still have jobs. ``default_account``: the account that SLURM charges if a job names none.
    """
    values = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", config, flags=re.M))
    cluster, tries = Cluster(read_sinfo(sinfo), profile_partitions), profile.retries + 1
    return [
        Finding("SLURM", True, f"release {values.get('SLURM_VERSION', 'unknown')} answers"),
        _accounting(values, programs),
        _memory_of_jobs(values, profile),
        _account(values, profile, default_account),
        *_groups(profile),
        *[_partition(partition.name, partition.limits, cluster.by_name) for partition in profile_partitions],
        *_devices(jobs, last, tries, cluster),
        *_memory_of_tries(jobs, last, tries, cluster),
        *_targets(jobs),
        _deployment(profile, programs),
        _orphans(orphans),
    ]


def _accounting(values: dict[str, str], programs: set[str]) -> Finding:
    good = values.get("AccountingStorageType", "").endswith("slurmdbd") and "sacct" in programs
    lack = (
        "the cluster has none. Leave slurm_account out of the profile. If the controller does not answer for a minute, "
        "the run waits for ever: end it and start it again"
    )
    return Finding("accounting", good, "sacct answers even if the controller does not" if good else lack)


def _memory_of_jobs(values: dict[str, str], profile: Profile) -> Finding:
    seconds = int(re.match(r"\d*", values.get("MinJobAge", "")).group() or 0)
    needed_s = 3 * profile.first_look_s
    lack = (
        f"squeue shows ended jobs for {seconds} s, but Snakemake's executor needs {needed_s} s to see them: lower "
        f"{FIRST_LOOK} to {max(1, seconds // 3)}, or ask the administrator for MinJobAge={needed_s}"
    )
    return Finding("MinJobAge", seconds >= needed_s, f"{seconds} s" if seconds >= needed_s else lack)


def _account(values: dict[str, str], profile: Profile, default: str) -> Finding:
    enforced = "associations" in values.get("AccountingStorageEnforce", "")
    account = profile.account or (f"{default}, SLURM's default for you" if default else "")
    lack = (
        "the cluster requires one: set slurm_account in the profile; `sacctmgr show associations user=$USER` lists it"
    )
    return Finding("account", not enforced or bool(account), account or (lack if enforced else "none is required"))


def _groups(profile: Profile) -> list[Finding]:
    lack = (
        "`serial: 1` is not among the default-resources of the profile, so a group would ask for the memory and cores "
        "of all its jobs at once: add it there"
    )
    return [] if profile.resources.get("serial") == "1" else [Finding("groups", False, lack)]


def _partition(name: str, limits: PartitionLimits, cluster: dict[str, ClusterPartition]) -> Finding:
    subject = f"partition {name}"
    if name not in cluster:
        return Finding(subject, False, f"not on this cluster, which has {', '.join(cluster)}: correct partitions.yaml")
    has = cluster[name]
    cores, memory_mb, gpus = (has.most(demand) for demand in ("cores", "memory_mb", "gpus"))
    summary = f"{cores} cores, {memory_mb:,} MB, {gpus} GPUs a node; {format_minutes(has.minutes)} a job"
    if limits.max_gpu and not gpus:
        return Finding(subject, False, f"{summary}: no GPU, so remove max_gpu below it in partitions.yaml")
    if has.cancels:
        remedy = "name another partition, or restart a run that makes no progress"
        return Finding(
            subject, False, f"{summary}: it cancels jobs in favour of others, and Snakemake waits for ever: {remedy}"
        )
    return Finding(subject, True, summary)


def _devices(jobs: list[JobRequest], last: list[JobRequest], tries: int, cluster: Cluster) -> list[Finding]:
    """Return a line for each job that SLURM would refuse or never start, or else a line about the longest job.

    CPU jobs and GPU jobs are checked separately. ``last``: the requests of the jobs at the last of ``tries`` tries, of
    which only the time is checked here, because :func:`_memory_of_tries` checks their memory.
    """
    findings = []
    away = {partition.name for partition in cluster.listed} - cluster.by_name.keys()  # already reported
    for device in ("CPU", "GPU"):
        first_jobs, later = (
            [
                job
                for job in some
                if bool(job.gpus) == (device == "GPU") and partition_of(job, cluster.listed) not in away
            ]
            for some in (jobs, last)
        )
        refused = _longest_by_name([job for job in first_jobs if cluster.find_denial(job)[0]])
        again = _longest_by_name([job for job in later if cluster.find_denial(job)[0] == "minutes"])
        again = {name: job for name, job in again.items() if name not in refused}
        lines = [(job, "", cluster.refusal(job)) for job in refused.values()]
        lines += [(job, f" at try {tries}", cluster.refusal(job, again=True)) for job in again.values()]
        for number, (job, when, why) in enumerate(lines[:MAX_SHOWN], start=1):
            remainder_note = f"; {len(lines) - MAX_SHOWN} more like these" if number == MAX_SHOWN < len(lines) else ""
            findings.append(Finding(f"job {job.name}", False, f"{describe_request(job)}{when}; {why}{remainder_note}"))
        if first_jobs and not lines:
            findings.append(Finding(f"{device} jobs", True, _longest(first_jobs, later, tries, cluster.listed)))
    return findings


def _longest_by_name(jobs: list[JobRequest]) -> dict[str, JobRequest]:
    """Return {name: longest of the jobs with this name}, from the longest to the shortest."""
    longest_by_name: dict[str, JobRequest] = {}
    for job in sorted(jobs, key=lambda job: -job.minutes):
        longest_by_name.setdefault(job.name, job)
    return longest_by_name


def _longest(jobs: list[JobRequest], last: list[JobRequest], tries: int, partitions: list[Partition]) -> str:
    job = max(jobs, key=lambda job: job.minutes)
    places = ", ".join(sorted({partition_of(request, partitions) or "SLURM's default" for request in jobs}))
    at_last = max((request.minutes for request in last), default=0)
    last_note = f"; at try {tries} none asks for more than {format_minutes(at_last)}" if tries > 1 else ""
    return f"{len(jobs)} sent to {places}; the longest, {job.name}: {describe_request(job)}{last_note}"


def _memory_of_tries(jobs: list[JobRequest], last: list[JobRequest], tries: int, cluster: Cluster) -> list[Finding]:
    """Return a line that names the jobs whose last try asks for more memory than their partition grants, or []."""
    first = {job.name for job in jobs if cluster.find_denial(job)[0]}
    short = [job for job in last if job.name not in first and cluster.find_denial(job)[0] in ("memory_mb", TOGETHER)]
    if not short:
        return []
    names = list(dict.fromkeys(job.name for job in sorted(short, key=lambda job: -job.memory_mb)))
    names_text = ", ".join(names[:MAX_SHOWN]) + (
        f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    )
    most, granted = max(job.memory_mb for job in short), min(map(cluster.most_memory, short))
    remedy = f": set compute.max_memory_mb: {granted}" if granted else ""
    summary = f"{names_text}: up to {most:,} MB, more than their partition grants; SLURM would refuse this try"
    return [Finding(f"memory at try {tries}", True, summary + remedy)]


def _targets(jobs: list[JobRequest]) -> list[Finding]:
    rules = {rule for job in jobs for rule, _ in job.members}
    missing_targets = [name for name in LONG_TARGETS if not any(rule.startswith(f"{name}_") for rule in rules)]
    names = ", ".join(missing_targets)
    summary = f'not checked: {names}. Name those that you will run, before any option, as in ARGS="all release"'
    return [Finding("targets", True, summary)] if missing_targets else []


def _deployment(profile: Profile, programs: set[str]) -> Finding:
    subject, methods = "environments", profile.deployment
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        return Finding(subject, False, f"sdm is {', '.join(unknown)} in the profile: choose from {', '.join(METHODS)}")
    inside = profile.conda_in_image and "apptainer" in methods
    needed_programs = [method for method in methods if method != "env-modules" and not (method == "conda" and inside)]
    absent = [method for method in needed_programs if method not in programs]
    if not absent:
        return Finding(
            subject,
            True,
            f"found {', '.join(needed_programs)}" if needed_programs else "jobs run in the environment of Snakemake",
        )
    remedy = "run in an environment with requirements/run.txt and add `--sdm env-modules`"
    if absent == ["conda"] and "apptainer" in methods:
        remedy = "add `--conda-base-path /opt/conda`, which is conda's path in the image"
    lack = (
        f"{absent[0]} is not installed: install it"
        if len(absent) == 1
        else f"{', '.join(absent)} are not installed: install them"
    )
    return Finding(subject, False, f"{lack}, or {remedy}")


def _orphans(names: list[str]) -> Finding:
    lack = f"jobs of an earlier run still work here: end them with `scancel --name={','.join(names)}`, or wait"
    return Finding("earlier runs", not names, lack if names else "none of their jobs is left in this folder")
