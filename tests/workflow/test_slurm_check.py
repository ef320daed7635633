"""What `make slurm-check` finds on clusters of several kinds, from what SLURM's own commands print there."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import parsed
import slurm_check
from conftest import ROOT, SLICE, stand_in, write_settings
from cxr.base.errors import UserError
from cxr.workflow.slurm import devices
from cxr.workflow.slurm.check import UNLIMITED, Finding, make_findings, parse_minutes, read_sinfo
from cxr.workflow.slurm.jobs import ClusterPartition, JobRequest, local_rules, read_requests, working_directory
from cxr.workflow.slurm.profile import Profile, read_partitions, read_profile
from cxr.workflow.snakemake_compat import LOCAL_RULES
from slurm_runs import needs_slurm

CONFIG = """Configuration data as of 2026-11-22T08:00:00
AccountingStorageEnforce = none
AccountingStorageType   = accounting_storage/slurmdbd
MinJobAge               = 3600 sec
SLURM_VERSION           = 23.11.4
"""
NODES = (
    "short*|1-00:00:00|192000|48|(null)|OFF\nshort*|1-00:00:00|96000|64|(null)|OFF\n"
    "big|3-00:00:00|512000|64|gpu:h100:4(S:0-1)|REQUEUE\n"
)
FRAMES, ANOMALY = JobRequest("frames", 240, 4000, 2, 0), JobRequest("anomaly-gpu", 1440, 8000, 2, 1)
JOBS = [FRAMES, ANOMALY]
PROFILE = Profile(("conda",), {"serial": "1"}, first_look_s=40, retries=2, conda_in_image=False)
KNOWN = {"short": {}, "big": {"max_gpu": 4}}


@pytest.fixture
def found(tmp_path) -> Callable[..., list[Finding]]:
    """Return a function that gives what is found on the cluster above, but for what it is told."""

    def look(known: dict | None = None, **changes: object) -> list[Finding]:
        (tmp_path / "partitions.yaml").write_text(yaml.safe_dump({"partitions": known or KNOWN}, sort_keys=False))
        given = {"config": CONFIG, "sinfo": NODES, "jobs": JOBS, "profile": PROFILE, "orphans": []} | changes
        given = {"last": given["jobs"], "programs": {"sbatch", "sacct", "conda"}} | given
        return make_findings(profile_partitions=read_partitions(tmp_path / "partitions.yaml"), **given)

    return look


@pytest.fixture
def lacks(found) -> Callable[..., dict[str, str]]:
    """Return a function that gives what is lacking there."""
    return lambda **changes: {one.subject: one.message for one in found(**changes) if not one.is_good}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 30), ("5:30", 6), ("1:00:00", 60), ("1-00:00:00", 1440), ("2-12", 3600), ("1-06:30", 1830),
        ("00:00:01", 1), ("infinite", UNLIMITED), ("n/a", UNLIMITED),
    ],
)  # fmt: skip
def test_slurms_times(text, expected):
    assert parse_minutes(text) == expected


def test_a_partition_has_nodes_of_several_kinds():
    assert read_sinfo(NODES) == {
        "short": ClusterPartition("short", 1440, ((192000, 48, 0), (96000, 64, 0)), default=True),
        "big": ClusterPartition("big", 4320, ((512000, 64, 4),)),
    }
    assert read_sinfo("a|infinite|1000|2|gpu:2,gpu:a100:1,shard:8|OFF\n")["a"].most("gpus") == 3


def test_a_cluster_that_has_all_lacks_nothing(found):
    assert [(one.subject, one.is_good) for one in found()] == [
        ("SLURM", True), ("accounting", True), ("MinJobAge", True), ("account", True), ("partition short", True),
        ("partition big", True), ("CPU jobs", True), ("GPU jobs", True), ("targets", True), ("environments", True),
        ("earlier runs", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "what", "words"),
    [
        ({"config": CONFIG.replace("slurmdbd", "none")}, "accounting", "Leave slurm_account out"),
        ({"programs": {"conda"}}, "accounting", "for ever"),
        ({"config": CONFIG.replace("3600", "60")}, "MinJobAge", "lower slurm-init-seconds-before-status-checks to 20"),
        ({"config": CONFIG.replace("= none", "= associations,limits")}, "account", "set slurm_account"),
        ({"known": KNOWN | {"gpu": {"max_gpu": 1}}}, "partition gpu", "which has short, big"),  # and no job
        ({"known": {"short": {"max_gpu": 9}, "big": {"max_gpu": 1}}}, "partition short", "no GPU, so remove max_gpu"),
        ({"sinfo": NODES.replace("REQUEUE", "GANG,CANCEL")}, "partition big", "name another"),
        ({"programs": {"sacct"}}, "environments", "--sdm env-modules"),
        ({"profile": replace(PROFILE, resources={})}, "groups", "add it there"),
        ({"orphans": ["cxr-ils_1", "cxr-ils_2"]}, "earlier runs", "scancel --name=cxr-ils_1,cxr-ils_2"),
    ],
)
def test_what_is_missing_is_said_with_its_remedy(lacks, changes, what, words):
    short = lacks(**changes)
    assert list(short) == [what]
    assert words in short[what]


def test_an_account_that_is_given_is_enough(lacks):
    enforced = CONFIG.replace("= none", "= associations")
    profile = replace(PROFILE, resources=PROFILE.resources | {"slurm_account": "'lab,other'"})
    assert lacks(config=enforced, profile=profile) == {}
    assert profile.account == "lab"
    assert lacks(config=enforced, default_account="lab") == {}


HOUR = NODES.replace("1-00:00:00", "1:00:00")
SHARDS = JobRequest("organs-cpu", 120, 4000, 2, 0, (("organs_shard", 15),) * 8)
CHAIN = JobRequest("tables", 335, 4000, 1, 0, (("pairs", 30), ("package", 300), ("index", 5)))
SHORT = {"known": {"short": {}}, "sinfo": HOUR}


@pytest.mark.parametrize(
    ("changes", "job", "words"),
    [
        # the executor takes `short` for any CPU job, whatever else would grant it
        (
            {"sinfo": HOUR}, FRAMES,
            "4 h 00 min, 4,000 MB, 2 cores; goes to short, which grants 1 h 00 min: write max_runtime: 60 below short "
            "in partitions.yaml, so that it goes to big",
        ),
        ({"sinfo": HOUR, "known": KNOWN | {"short": {"max_runtime": 60}}}, FRAMES, ""),
        (
            {"known": {"short": {}, "big": {}}}, ANOMALY,
            "no partition of partitions.yaml takes it, because of max_gpu, and SLURM's default partition is short: "
            "write max_gpu: 1 or more below a partition with GPUs",
        ),
        (SHORT, FRAMES, "set compute.max_runtime: 60, or name a partition that grants more"),
        (SHORT | {"sinfo": NODES.replace("1-00:00:00", "59")}, FRAMES, "grants 0 h 59 min: name a partition that"),
        (SHORT, SHARDS, "grants 1 h 00 min: set group-components of organs-cpu: 4, or name"),
        (SHORT, replace(SHARDS, minutes=60, members=SHARDS.members[:4]), ""),
        (
            SHORT, replace(SHARDS, minutes=200, members=(("organs_shard", 100),) * 2),
            "set group-components of organs-cpu: 1 and compute.max_runtime: 60, or",
        ),
        (SHORT | {"sinfo": NODES.replace("1-00", "02")}, CHAIN, "grants 2 h 00 min: set compute.max_runtime: 85, or"),
        ({"known": {"short": {"max_runtime": "2h"}}}, FRAMES, "max_runtime, and SLURM's default partition is short"),
        ({"known": {"short": {"max_runtime": "2h"}}}, FRAMES, ": set compute.max_runtime: 120, or name"),
        ({"known": {"short": {"max_mem_mb": 2000}}}, FRAMES, "mb, and SLURM's default partition is short: raise"),
        ({}, replace(ANOMALY, minutes=4321), "72 h 01 min, 8,000 MB, 2 cores, 1 GPUs; goes to big, which grants 72"),
        ({}, replace(FRAMES, memory_mb=600000), "which grants 192,000 MB: name a partition with larger nodes"),
        ({}, replace(FRAMES, memory_mb=200000), "write max_mem_mb: 192000 below short in partitions"),
        ({"known": {"short": {}}}, replace(FRAMES, memory_mb=192000, cores=64), "no node has all that it asks for"),
        ({"known": {"short": {}}}, replace(FRAMES, memory_mb=192000, cores=48), ""),
        ({"known": {"short": {}, "big": {"max_gpu": 8}}}, replace(ANOMALY, gpus=5), "which grants 4 GPUs"),
        ({}, replace(FRAMES, other_resources={"slurm_partition": "h100"}),
         "h100, which is not on this cluster: correct"),
        ({}, replace(FRAMES, memory_mb=200000, other_resources={"slurm_partition": "big"}), ""),
    ],
)  # fmt: skip
def test_what_the_executors_own_choice_does_not_grant(lacks, changes, job, words):
    short = lacks(**changes, jobs=[job])
    assert list(short) == ([f"job {job.name}"] if words else [])
    assert words in short.get(f"job {job.name}", "")


def test_the_last_try_may_ask_for_more_time_than_is_granted(lacks, found):
    short = NODES.replace("1-00:00:00", "4:00:00")
    last = [replace(FRAMES, minutes=720, memory_mb=12000), replace(ANOMALY, minutes=1440)]
    assert lacks(sinfo=short, last=last, known=KNOWN) == {
        "job frames": "12 h 00 min, 12,000 MB, 2 cores at try 3; goes to short, which grants 4 h 00 min: write "
        "max_runtime: 240 below short in partitions.yaml, so that it goes to big"
    }
    last = [replace(SHARDS, minutes=360, members=(("organs_shard", 45),) * 8)]
    two = NODES.replace("1-00:00:00", "2:00:00")
    told = lacks(sinfo=two, jobs=[SHARDS], last=last, known={"short": {}})["job organs-cpu"]
    assert told.endswith("at try 3; goes to short, which grants 2 h 00 min: set group-components of organs-cpu: 2")
    # a first try that is refused is told once
    assert len(lacks(sinfo=HOUR, jobs=[FRAMES], last=[replace(FRAMES, minutes=720)])) == 1


def test_a_last_try_without_enough_memory_is_told_and_is_no_lack(found):
    last = [replace(FRAMES, memory_mb=200000), replace(ANOMALY, memory_mb=600000)]
    told = {one.subject: one for one in found(last=last)}
    assert all(one.is_good for one in told.values())
    assert told["memory at try 3"].message == (
        "anomaly-gpu, frames: up to 600,000 MB, more than their partition grants; SLURM would "
        "refuse this try: set compute.max_memory_mb: 192000"
    )
    capped = [replace(job, memory_mb=192000) for job in last]
    assert "memory at try 3" not in {one.subject for one in [*found(), *found(last=capped)]}
    # of the nodes with more memory none has as many cores
    (told,) = [one for one in found(last=[replace(FRAMES, memory_mb=200000, cores=64)]) if "try 3" in one.subject]
    assert told.message.endswith("set compute.max_memory_mb: 96000")
    # so too where partitions.yaml says it
    limits = {"short": {"max_mem_mb": 192000}, "big": {"max_gpu": 4, "max_mem_mb": 512000}}
    last = [replace(FRAMES, memory_mb=600000)]
    (told,) = [one for one in found(last=last, known=limits) if "try 3" in one.subject]
    assert (told.message.startswith("frames: "), told.message.endswith("max_memory_mb: 512000")) == (
        True,
        True,
    )  # in big


def test_of_many_jobs_three_are_shown_and_each_once(lacks):
    jobs = [JobRequest(f"job{number}", 100 + number, 1, 1, 0) for number in range(5)] * 2
    short = lacks(**SHORT, jobs=[*jobs, JobRequest("job1", 300, 1, 1, 0)])
    assert list(short) == ["job job1", "job job4", "job job3"]  # the longest
    assert short["job job1"].startswith("5 h 00 min")
    assert [told.endswith("; 2 more like these") for told in short.values()] == [False, False, True]


def test_what_is_ok_is_counted(found):
    later = [replace(FRAMES, minutes=720), ANOMALY]
    told = {one.subject: one.message for one in found(last=later, jobs=[FRAMES, replace(FRAMES, minutes=5), ANOMALY])}
    assert told["CPU jobs"] == (
        "2 sent to short; the longest, frames: 4 h 00 min, 4,000 MB, 2 cores; at try 3 none asks for more than "
        "12 h 00 min"
    )
    assert told["GPU jobs"].startswith("1 sent to big; the longest, anomaly-gpu: 24 h 00 min, 8,000 MB, 2 cores, 1 GPU")
    assert told["targets"].startswith(
        "not checked: paraphrase, training, inference, evaluation, ablation, release. Name those that you"
    )
    names = (
        "paraphrase_wordings",
        "training_run",
        "inference_run",
        "evaluation_run",
        "ablation_table",
        "release_package",
    )
    jobs = [JobRequest(name, 1, 1, 1, 0, ((name, 1),)) for name in names]
    assert "targets" not in {one.subject for one in found(jobs=jobs)}


@pytest.mark.parametrize(
    ("ways", "programs", "inside", "good", "words"),
    [
        ((), set(), False, True, "jobs run in the environment of Snakemake"),
        (("env-modules",), set(), False, True, "jobs run in the environment of Snakemake"),
        (("conda", "apptainer"), {"conda", "apptainer"}, False, True, "found conda, apptainer"),
        (("conda", "apptainer"), {"apptainer"}, True, True, "found apptainer"),
        (("conda", "apptainer"), {"apptainer"}, False, False, "add `--conda-base-path /opt/conda`"),
        (("conda", "apptainer"), {"conda"}, False, False, "apptainer is not installed: install it, or run in"),
        (("conda", "apptainer"), set(), False, False, "conda, apptainer are not installed: install them, or run in"),
        (
            ("mamba",),
            {"conda"},
            False,
            False,
            "sdm is mamba in the profile: choose from conda, apptainer, env-modules",
        ),
    ],
)
def test_how_software_is_deployed(found, ways, programs, inside, good, words):
    profile = replace(PROFILE, deployment=ways, conda_in_image=inside)
    (told,) = [one for one in found(profile=profile, programs={"sacct", *programs}) if one.subject == "environments"]
    assert (told.is_good, words in told.message) == (good, True), told


def test_the_two_files_are_read_as_they_stand():
    profile = read_profile(ROOT / "profiles/slurm/config.yaml")
    assert profile.deployment == ("conda",)
    assert profile.resources == {"runtime": "60", "mem_mb": "4000", "disk_mb": "1000", "serial": "1"}
    assert (profile.first_look_s, profile.retries, profile.account) == (40, 2, "")
    known = read_partitions(ROOT / "profiles/slurm/partitions.yaml")
    assert [(one.name, one.limits.max_gpu) for one in known] == [("cpu", 0), ("gpu", 8)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ((), {}, 40, 0)),
        ("sdm: [conda, apptainer]\nretries: '3'", (("conda", "apptainer"), {}, 40, 3)),
        ("sdm:\ndefault-resources:\nslurm-init-seconds-before-status-checks: 20", ((), {}, 20, 0)),
        ("default-resources: [serial=1, slurm_account=lab]", ((), {"serial": "1", "slurm_account": "lab"}, 40, 0)),
        ("default-resources: serial=1 mem_mb=4", ((), {"serial": "1", "mem_mb": "4"}, 40, 0)),
    ],
)
def test_what_a_profile_leaves_out_has_the_executors_default(tmp_path, text, expected):
    (tmp_path / "config.yaml").write_text(text)
    profile = read_profile(tmp_path / "config.yaml")
    assert (profile.deployment, profile.resources, profile.first_look_s, profile.retries) == expected
    instead = read_profile(tmp_path / "config.yaml", {"sdm": ["env-modules"], "retries": "5", "conda-base-path": "/c"})
    assert (instead.deployment, instead.retries, instead.conda_in_image) == (("env-modules",), 5, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no"),
        ("a: [", "is not valid YAML at line 1: correct it"),
        ("- sdm", "is not a list of `key: value`"),
        ("retries: often", "retries is 'often': write a whole number of at least 0"),
        ("retries: -1", "retries is -1"),
        ("slurm-init-seconds-before-status-checks: 0", "status-checks is 0: write a whole number of at least 1"),
        ("default-resources: 5", "default-resources is not a list of `name: value`"),
    ],
)
def test_a_mistake_in_the_profile_is_one_sentence(tmp_path, text, words):
    one_sentence(read_profile, tmp_path / "profiles/slurm/config.yaml", text, words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no"),
        ("", "names no partition: below `partitions:`, write those that `sinfo` lists"),
        ("partitions:", "names no partition"),
        ("partitions: {}", "names no partition"),
        ("partitions: [cpu]", "names no partition"),
        ("partitions:\n  cpu:\n", "cpu is None: write `cpu: {}` for a partition without limits"),
        ("partitions: {cpu: 5}", "cpu is 5: write `cpu: {}`"),
        ("partitions: {7: {}}", "write the partition 7 in quotes"),
        (
            "partitions: {gpu: {max_gpus: 8}}",
            "gpu has max_gpus, which the executor does not know: use max_runtime, max_mem_mb",
        ),
        ("partitions: {gpu: {max_gpu: many}}", "max_gpu of gpu is 'many': write a number"),
        ("partitions: {gpu: {max_mem_mb: }}", "max_mem_mb of gpu is None"),
        ("partitions: {cpu: {max_runtime: soon}}", "Invalid time format: 'soon'"),
        ("partitions: {cpu: {}", "is not valid YAML"),
    ],
)
def test_a_mistake_in_the_partitions_is_one_sentence(tmp_path, text, words):
    one_sentence(read_partitions, tmp_path / "profiles/slurm/partitions.yaml", text, words)


def one_sentence(read: Callable[[Path], object], path: Path, text: str | None, words: str) -> None:
    path.parent.mkdir(parents=True)
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError) as told:
        read(path)
    assert f"profiles/slurm/{path.name}" in str(told.value)
    assert words in str(told.value)
    assert "\n" not in str(told.value)


DRY_RUN = """
[Sun Nov 22 08:00:00 2026]
rule cohort_shards:
    output: results/cohort/00.parquet
    log: logs/cohort/cohort.log
    threads: 2
    resources: tmpdir=/tmp, mem_mb=8000, mem=8 GB, mem_mib=7630, runtime=240, serial=1, slurm_partition=long
[Sun Nov 22 08:00:00 2026] Group job masks (jobs in lexicogr. order):

    [Sun Nov 22 08:00:00 2026]
    rule masks_index:
        log: logs/masks/default/index.log
        resources: tmpdir=/tmp, mem_mb=4000, mem_mib=3815, runtime=3
    [Sun Nov 22 08:00:00 2026]
    rule masks_shard:
        log: logs/masks/default/00.log
        threads: 4
        resources: tmpdir=/tmp, gpu=0, mem_mb=6000, runtime=5
[Sun Nov 22 08:00:00 2026]
rule anomaly_shard:
    log: logs/anomaly/00.log
    resources: gpu=1, mem_mb=8000, runtime=1440, constraint=a100,v100
[Sun Nov 22 08:00:00 2026]
rule weights:
    log: logs/weights/weights.log
    resources: mem_mb=1000, runtime=10
[Sun Nov 22 08:00:00 2026]
rule all:
    input: results/cohort/00.parquet
    resources: mem_mb=4000, runtime=60
Job stats:
"""


def test_a_dry_run_tells_what_is_asked_for():
    jobs = read_requests(f"{LOCAL_RULES}report, weights\n{DRY_RUN}")
    cohort = JobRequest("cohort_shards", 240, 8000, 2, 0, (("cohort_shards", 240),))
    assert jobs == [
        replace(cohort, other_resources={"serial": 1, "slurm_partition": "long"}),
        JobRequest("masks", 8, 6000, 4, 0, (("masks_index", 3), ("masks_shard", 5))),
        JobRequest("anomaly_shard", 1440, 8000, 1, 1, (("anomaly_shard", 1440),), {"constraint": "a100,v100"}),
    ]  # fmt: skip
    assert [job.name for job in read_requests(DRY_RUN)] == ["cohort_shards", "masks", "anomaly_shard", "weights"]
    with pytest.raises(UserError, match="the dry run shows no job: leave out --quiet"):
        read_requests("Building DAG of jobs...\n")
    with pytest.raises(UserError, match="the dry run names no folder: leave out --quiet"):
        working_directory(DRY_RUN)


@pytest.fixture(scope="module")
def dry_runs(tmp_path_factory) -> dict[int, str]:
    """A real dry run with the profile, at the first and at the third try, without SLURM."""
    compute = {"max_runtime": 600, "max_memory_mb": 23000}
    folder = write_settings(tmp_path_factory.mktemp("dry"), SLICE | {"compute": compute})
    words = ["all", "training", "--directory", str(folder), "--configfile", str(folder / "mine.yaml")]
    return {attempt: slurm_check.dry_run(words, attempt) for attempt in (1, 3)}


@pytest.mark.slow
@pytest.mark.xdist_group("slurm-check")
def test_rules_that_are_no_jobs_of_the_cluster_are_known(dry_runs):
    local = {name for name, rule in parsed.rules().items() if rule.local}
    assert local_rules(dry_runs[1]) == local
    assert {"exclusions", "page_costs", "weights_radedit", "weights_sdxl_vae", "weights_clip"} <= local
    assert not {name for name in local if "_shard" in name or "_run" in name}
    left_out = {rule for job in read_requests(dry_runs[1]) for rule, _ in job.members} & local
    assert left_out == set()


@pytest.mark.slow
@pytest.mark.xdist_group("slurm-check")
def test_a_real_dry_run_is_read_whole(dry_runs):
    first, last = (read_requests(dry_runs[attempt].replace(LOCAL_RULES, "")) for attempt in (1, 3))
    (total,) = set(re.findall(r"^total +(\d+)$", dry_runs[1], flags=re.M))
    targets = ("all", "training")  # with neither log nor work
    assert sum(len(job.members) for job in first) == int(total) - len(targets) > 40
    by_name = {job.name: job for job in first}, {job.name: job for job in last}
    (cohort, organs, training), again = (
        [jobs[name] for name in ("cohort_shards", "organs-cpu", "training_run")] for jobs in by_name
    )
    assert cohort == JobRequest("cohort_shards", 240, 8000, 2, 0, (("cohort_shards", 240),), {"serial": 1})
    assert organs == JobRequest("organs-cpu", 120, 4000, 2, 0, (("organs_shard", 40),) * 3, {"serial": 1})
    # as the third try is asked for: no more than compute.max_runtime and compute.max_memory_mb
    assert [(job.minutes, job.memory_mb) for job in again] == [(600, 23000), (360, 12000), (600, 23000)]
    assert (training.minutes, training.memory_mb, training.cores) == (240, 8000, 1)


@pytest.mark.slow
@pytest.mark.xdist_group("slurm-check")
def test_the_command_looks_where_the_run_would_work(dry_runs, monkeypatch, tmp_path):
    seen, nodes = {}, "cpu*|1-00:00:00|21694|8|gpu:2|OFF\ngpu|1-00:00:00|21694|8|gpu:2|OFF\n"

    def answer(*command: str) -> str:
        if "--dry-run" in command:
            seen.setdefault("tries", []).append(command[command.index("--attempt") + 1])
            seen["words"] = command
            return dry_runs[int(seen["tries"][-1])]
        if command[0] == "sacctmgr":
            raise UserError("sacctmgr does not answer")
        return CONFIG if command[0] == "scontrol" else nodes

    monkeypatch.setattr(slurm_check, "run_command", answer)
    monkeypatch.setattr(slurm_check, "find_orphans", lambda directory: seen.update(orphans=directory) or [])
    monkeypatch.setattr(
        slurm_check, "check_node", lambda *given: seen.update(node=given) or Finding("a node", True, "")
    )
    monkeypatch.setattr(shutil, "which", lambda name: name if name != "conda" else None)
    words = ["all", "training", "--directory", "mine", "--sdm", "conda", "apptainer"]
    found = slurm_check.check_cluster([*words, "--submit", "--default-resources", "serial=1", "slurm_account=lab"])
    told = {one.subject: one.message for one in found}
    assert seen["tries"] == ["1", "3"]
    assert seen["words"][seen["words"].index("all") :][: len(words)] == tuple(words)
    assert seen["words"].count("--sdm") == 2  # the last one holds: conda is not looked for
    directory = working_directory(dry_runs[1])
    assert (seen["orphans"], seen["node"]) == (directory, ("cpu", "lab", directory))
    assert [one.subject for one in found if not one.is_good] == ["environments"]
    assert told["CPU jobs"].startswith("16 sent to cpu; the longest, cohort_shards: 4 h 00 min, 8,000 MB, 2 cores; at")
    assert told["targets"].startswith("not checked: paraphrase, inference, evaluation, ablation, release. ")
    short = told["memory at try 3"]  # of jobs with 8,000 MB at the first, three are named
    assert re.match(r"[\w, -]+ and 1 more: up to 23,000 MB.*: set compute.max_memory_mb: 21694$", short)

    def silent(directory: Path) -> list[str]:
        raise UserError("squeue does not answer: try again")

    monkeypatch.setattr(slurm_check, "find_orphans", silent)
    with pytest.raises(SystemExit, match=r"^slurm-check: squeue does not answer: try again$"):
        slurm_check.main(words)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo a >&2; echo b >&2; echo c; exit 3", "b"),
        ("echo 'Using profile slurm' >&2; echo MissingRule:; echo no rule x; exit 1", "no rule x"),
        ("exit 3", "3"),
    ],
)
def test_a_command_that_fails_is_one_sentence(script, told):
    with pytest.raises(UserError, match=rf"^sh -c {re.escape(script)} fails: {told}$"):
        slurm_check.run_command("/bin/sh", "-c", script)


def test_a_command_that_hangs_is_one_sentence(monkeypatch):
    monkeypatch.setattr(slurm_check, "ANSWER_S", 0.1)
    with pytest.raises(UserError, match=r"^sleep does not answer: check that SLURM's controller runs$"):
        slurm_check.run_command("sleep", "5")


@pytest.fixture
def sbatch(tmp_path, monkeypatch) -> Callable[[str], Callable[[], list[str]]]:
    """Return a function that puts a shell script in the place of sbatch; what that gives tells how it was called."""
    for name in ("sbatch", "scancel"):
        stand_in(tmp_path / name, f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/calls\n')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def does(script: str) -> Callable[[], list[str]]:
        with open(tmp_path / "sbatch", "a") as file:
            file.write(script)
        return lambda: (tmp_path / "calls").read_text().splitlines()

    return does


RUN_IT = "for last; do :; done\nlog=$(printf '%s\\n' \"$@\" | sed -n 's/^--output=//p')\n"


def test_a_node_that_writes_here(sbatch, tmp_path):
    calls = sbatch(f'{RUN_IT}sh -c "$last" > "$log" 2>&1\necho 7\n')
    place = tmp_path / "it's here"
    told = slurm_check.check_node("cpu", "lab", place)
    assert (told.subject, told.is_good) == ("a node of cpu", True)
    assert told.message.endswith(f" has this Python and writes into {place}")
    assert "--partition=cpu" in calls()[0]
    assert "--account=lab" in calls()[0]
    slurm_check.check_node("cpu", "", place)
    assert "--account" not in calls()[1]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2\nexit 1\n",
            "SLURM refuses a job: sbatch: error: Batch job submission failed: Invalid account",
        ),
        (f'{RUN_IT}echo "python: not found" > "$log"\necho 7\nexit 1\n', ", its log ends with: python: not found; "),
        ("echo 7\nexit 1\n", "every node must have that folder, "),
        (
            "exec sleep 30\n",
            "a job of 2 minutes did not end within 0.5 s and was cancelled: try again when nodes are free",
        ),
    ],
)
def test_a_node_that_does_not_is_told_in_slurms_words(sbatch, tmp_path, monkeypatch, script, words):
    calls = sbatch(script)
    monkeypatch.setattr(slurm_check, "SUBMIT_S", 0.5)
    told = slurm_check.check_node("cpu", "", tmp_path)
    assert not told.is_good
    assert words in told.message
    name = re.search(r"--job-name=(\S+)", calls()[0]).group(1)
    assert calls()[1:] == ([f"scancel --name={name} --me"] if "sleep" in script else [])


@pytest.mark.slow
def test_the_command_looks_at_this_cluster(tmp_path):
    needs_slurm()
    words = ["--submit", "all", "training", "evaluation", "release", "--directory", str(tmp_path)]
    command = [sys.executable, str(ROOT / "scripts/tools/slurm_check.py"), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    told = [line.split("  ") for line in done.stdout.splitlines()]
    assert all(line[0].strip() in {"ok", "LACKS"} for line in told), done.stderr
    assert len(told) <= 24
    short = [" ".join(line) for line in told if line[0] == "LACKS"]
    assert [line for line in short if "environments" not in line] == []
    assert done.returncode == bool(short)
    assert bool(short) == (shutil.which("conda") is None)
    assert f"has this Python and writes into {tmp_path}" in done.stdout
    (counted,) = re.findall(r"^ok +CPU jobs +(\d+) to ", done.stdout, flags=re.M)
    assert int(counted) >= 20


def test_without_slurm_it_says_so_in_one_line(tmp_path):
    (tmp_path / "which").symlink_to(shutil.which("which"))  # Snakemake needs it to be imported
    command = [sys.executable, str(ROOT / "scripts/tools/slurm_check.py")]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines() == ["slurm-check: there is no sbatch: run this on a login node of the cluster"]
    assert done.returncode == 1


# torch on nodes with GPUs


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"organs": {"engine": "hybridgnet"}}, {"organs-hybridgnet": {"gpus": 1, "partition": "gpu"}}),
        (
            {"training": {"engine": "rosalia"}, "compute": {"gpus": 4}},
            {"training-rosalia": {"gpus": 4, "partition": "gpu"}, "inference": {"gpus": 1, "partition": "gpu"}},
        ),
    ],
)
def test_the_environments_of_jobs_that_want_a_gpu_are_known(tmp_path, more, expected):
    folder = write_settings(tmp_path, more)
    words = ["inference", "--configfile", str(folder / "mine.yaml"), "--config", "seed=3"]
    settings = devices.read_settings(words, ROOT)
    assert settings.seed == 3
    assert settings.compute.gpus == more.get("compute", {}).get("gpus", 1)
    rules = {"organs-hybridgnet": "organs_shard", "training-rosalia": "training_run", "inference": "inference_run"}
    jobs = [
        JobRequest(rules[name], 60, 4000, 2, asked["gpus"], ((rules[name], 60),))
        for name, asked in sorted(expected.items())
    ]
    jobs.append(JobRequest("frames", 60, 4000, 2, 0, (("frames_shard", 60),)))
    known = read_partitions(ROOT / "profiles/slurm/partitions.yaml")
    assert devices.gpu_environments(jobs, known, settings) == expected
    assert {f"{name}.yaml" for name in expected} <= {path.name for path in (ROOT / "envs").glob("*.yaml")}
    with pytest.raises(UserError, match="is not a setting"):
        devices.read_settings([*words, "sed=3"], ROOT)


@pytest.mark.parametrize(
    ("told", "good", "words"),
    [
        ("gpu07: 4 x NVIDIA H100, torch 2.8.0+cu128", True, "gpu07: 4 x NVIDIA H100, torch 2.8.0+cu128"),
        ("", False, "a job with 4 GPUs in this environment fails, and says: No module named 'torch'"),
    ],
)
def test_what_torch_says_on_a_node_is_told(tmp_path, told, good, words):
    (tmp_path / "training-rosalia.log").write_text("Traceback\nNo module named 'torch'\n")
    if told:
        (tmp_path / "training-rosalia.txt").write_text(told)
    found = devices._finding("training-rosalia", 4, tmp_path, "")
    assert (found.subject, found.is_good) == ("torch in training-rosalia", good)
    assert words in found.message


@pytest.mark.slow
def test_torch_is_asked_on_a_node_with_a_gpu(tmp_path):
    """On the real cluster, whose GPUs are files: the executor sends the job there, and torch says that it sees none."""
    needs_slurm()
    torch = pytest.importorskip("torch")
    (told,) = devices.check_gpus(
        {"organs-hybridgnet": {"gpus": 1, "partition": "gpu"}}, "", tmp_path, ROOT, {"sdm": ["env-modules"]}
    )
    if torch.cuda.is_available():
        assert told.is_good, told
        return
    assert not told.is_good
    assert (
        f"(torch {torch.__version__} was built without CUDA, no NVIDIA driver is loaded, torch says: Torch not compiled"
        in told.message
    )
