"""What a SLURM cluster must have for the profile `slurm`, and what of it is missing: `make slurm-check`.

Pure functions over what `scontrol`, `sinfo` and a dry run print; :func:`findings` puts them together.
"""

import re
from dataclasses import dataclass

UNLIMITED = 10**9
"""Minutes of a partition without a limit."""
SHOWN = 3
"""Jobs that nothing grants, shown of each device."""


@dataclass(frozen=True)
class Finding:
    """One line of the check: what was looked at, whether it will do, and what to do where it will not."""

    what: str
    good: bool
    told: str


@dataclass(frozen=True)
class Asked:
    """What a SLURM job of the workflow asks for: its rules, minutes, megabytes, cores and GPUs."""

    name: str
    minutes: int
    memory_mb: int
    cores: int
    gpus: int


@dataclass(frozen=True)
class Partition:
    """What a partition grants: minutes a job; megabytes, cores and GPUs of its largest node; whether it ends jobs for
    others' sake and does not put them back into the queue.
    """

    name: str
    minutes: int
    memory_mb: int
    cores: int
    gpus: int
    cancels: bool


def minutes(text: str) -> int:
    """Return SLURM's way to write a time ("1-00:00:00", "30:00", "infinite") as minutes, rounded up."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        return UNLIMITED
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    # "5" and "5:30" are minutes, "1-5" and "1-5:30" days and hours, three numbers always hours first
    hours_first = bool(days) or len(parts) == 3
    hours, whole, seconds = [*parts, 0, 0][:3] if hours_first else [0, *parts, 0][:3]
    return int(days or 0) * 1440 + hours * 60 + whole + (seconds > 0)


def partitions(sinfo: str) -> dict[str, Partition]:
    """Read ``sinfo --noheader --format=%R|%l|%m|%c|%G|%M``: one line for each kind of node of a partition."""
    found: dict[str, Partition] = {}
    for line in sinfo.splitlines():
        name, limit, memory, cores, generic, preemption = line.split("|")
        gpus = sum(int(count) for count in re.findall(r"gpu(?::[^:,(]+)?:(\d+)", generic))
        node = Partition(
            name, minutes(limit), int(memory.rstrip("+")), int(cores.rstrip("+")), gpus, "CANCEL" in preemption
        )
        old = found.get(name, node)
        found[name] = Partition(
            name,
            max(old.minutes, node.minutes),
            max(old.memory_mb, node.memory_mb),
            max(old.cores, node.cores),
            max(old.gpus, node.gpus),
            node.cancels,
        )
    return found


def asked(dry_run: str) -> list[Asked]:
    """Read the jobs of a dry run that go to the cluster: the members of a group, one after the other, are one job."""
    groups: list[tuple[str, list[str]]] = []
    for block in re.split(r"\n(?=\[)", dry_run):
        head = re.match(r"\[[^\]]*\](?: Group job (\S+)|\s+rule (\w+):)", block)
        if head:
            groups.append((head.group(1) or head.group(2), re.split(r"\n\s*\n?\s+\[", block)))
    found = []
    for name, members in groups:
        told = [_resources(text) for text in members if "log:" in text]  # a target has none
        if told:
            most = {key: max(one[key] for one in told) for key in ("mem_mb", "threads", "gpu")}
            found.append(Asked(name, sum(one["runtime"] for one in told), most["mem_mb"], most["threads"], most["gpu"]))
    return found


def _resources(text: str) -> dict[str, int]:
    line = re.search(r"resources: (.*)", text).group(1)
    found = {key: int(value) for key, value in re.findall(r"\b(mem_mb|runtime|gpu)=(\d+)", line)}
    threads = re.search(r"threads: (\d+)", text)
    return {"mem_mb": 0, "runtime": 0, "gpu": 0, "threads": int(threads.group(1)) if threads else 1} | found


def findings(
    *,
    config: str,
    sinfo: str,
    jobs: list[Asked],
    profile: dict,
    known: dict[str, dict],
    programs: set[str],
    orphans: list[str],
) -> list[Finding]:
    """Return what was looked at, in the order in which a user should mend it.

    ``config`` is what `scontrol show config` prints, ``profile`` and ``known`` the profile and its partitions as read,
    ``programs`` those of SLURM and of software deployment that are installed, ``orphans`` runs whose jobs still write
    here.
    """
    values = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", config, flags=re.M))
    there = partitions(sinfo)
    return [
        Finding("SLURM", True, f"release {values.get('SLURM_VERSION', 'unknown')} answers"),
        _accounting(values, programs),
        _memory_of_jobs(values, profile),
        _account(values, profile),
        *[_partition(name, limits, there) for name, limits in known.items()],
        *_largest(jobs, known, there),
        _deployment(profile, programs),
        _orphans(orphans),
    ]


def _accounting(values: dict[str, str], programs: set[str]) -> Finding:
    good = values.get("AccountingStorageType", "").endswith("slurmdbd") and "sacct" in programs
    lack = (
        "none: a controller that is away for a minute makes the run wait for ever; if that happens, end it and start "
        "again. Leave slurm_account out of the profile"
    )
    return Finding("accounting", good, "sacct answers while the controller is away" if good else lack)


def _memory_of_jobs(values: dict[str, str], profile: dict) -> Finding:
    seconds = int(re.match(r"\d+", values.get("MinJobAge", "0")).group())
    wanted = 3 * profile["slurm-init-seconds-before-status-checks"]
    lack = (
        f"SLURM forgets ended jobs after {seconds} s, the executor needs {wanted} s to rely on squeue: lower "
        f"slurm-init-seconds-before-status-checks to {max(1, seconds // 3)}, or ask for MinJobAge={wanted}"
    )
    return Finding("MinJobAge", seconds >= wanted, f"{seconds} s" if seconds >= wanted else lack)


def _account(values: dict[str, str], profile: dict) -> Finding:
    enforced = "associations" in values.get("AccountingStorageEnforce", "")
    given = profile["default-resources"].get("slurm_account")
    lack = "the cluster wants one: set slurm_account in the profile (`sacctmgr show associations user=$USER`)"
    return Finding("account", not enforced or bool(given), given or (lack if enforced else "none is asked for"))


def _partition(name: str, limits: dict, there: dict[str, Partition]) -> Finding:
    what, wanted = f"partition {name}", limits.get("max_gpu", 0)
    if name not in there:
        return Finding(what, False, f"not on this cluster, which has {', '.join(there)}: correct partitions.yaml")
    has = there[name]
    told = f"{has.cores} cores, {has.memory_mb:,} MB, {has.gpus} GPUs a node; {_hours(has.minutes)} a job"
    if wanted and not has.gpus:
        return Finding(what, False, f"{told}: it has no GPU, take max_gpu out of partitions.yaml or name another")
    if has.cancels:
        remedy = "name another, or restart a run that stands still"
        return Finding(what, False, f"{told}: it cancels jobs to make room, and Snakemake waits for them: {remedy}")
    return Finding(what, True, told)


def _largest(jobs: list[Asked], known: dict[str, dict], there: dict[str, Partition]) -> list[Finding]:
    """Look at what is asked for each device: jobs that no partition grants, else the longest."""
    found = []
    for device in ("CPU", "GPU"):
        own = [job for job in jobs if bool(job.gpus) == (device == "GPU")]
        refused = [job for job in own if not any(_fits(job, there[name]) for name in known if name in there)]
        for job in refused[:SHOWN]:
            found.append(Finding(f"job {job.name}", False, f"asks for {_told(job)}, which no partition grants"))
        if own and not refused:
            longest = max(own, key=lambda job: job.minutes)
            found.append(Finding(f"{device} jobs", True, f"{len(own)}; the longest, {longest.name}: {_told(longest)}"))
    return found


def _fits(job: Asked, place: Partition) -> bool:
    return (
        job.minutes <= place.minutes
        and job.memory_mb <= place.memory_mb
        and job.cores <= place.cores
        and job.gpus <= place.gpus
    )


def _told(job: Asked) -> str:
    gpus = f", {job.gpus} GPUs" if job.gpus else ""
    return f"{_hours(job.minutes)}, {job.memory_mb:,} MB, {job.cores} cores{gpus}"


def _hours(minutes_: int) -> str:
    return "any time" if minutes_ >= UNLIMITED else f"{minutes_ // 60} h {minutes_ % 60:02} min"


def _deployment(profile: dict, programs: set[str]) -> Finding:
    way = profile["sdm"]
    lack = (
        "conda is not here: install it, or run in an environment with requirements/run.txt and add `--sdm env-modules`"
    )
    return Finding("environments", way in programs, f"{way} is here" if way in programs else lack)


def _orphans(names: list[str]) -> Finding:
    lack = f"jobs of an earlier run still work here: scancel --name={','.join(names)}, or wait for them"
    return Finding("earlier runs", not names, lack if names else "none of their jobs is left in this folder")
