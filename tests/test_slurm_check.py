"""What `make slurm-check` finds on clusters of several kinds, from what SLURM's own commands print there."""

import shutil
import subprocess
import sys

import pytest

from conftest import ROOT
from ils.core.slurm import UNLIMITED, Asked, Partition, asked, findings, minutes, partitions
from slurm_runs import needs_slurm

CONFIG = """Configuration data as of 2026-11-22T08:00:00
AccountingStorageEnforce = none
AccountingStorageType   = accounting_storage/slurmdbd
MinJobAge               = 3600 sec
SLURM_VERSION           = 23.11.4
"""
NODES = (
    "short|1-00:00:00|192000+|48|(null)|OFF\nshort|1-00:00:00|96000|64|(null)|OFF\n"
    "big|3-00:00:00|512000|64|gpu:h100:4(S:0-1)|REQUEUE\n"
)
JOBS = [Asked("frames", 240, 4000, 2, 0), Asked("anomaly-gpu", 1440, 8000, 2, 1)]
PROFILE = {"sdm": "conda", "default-resources": {}, "slurm-init-seconds-before-status-checks": 40}
KNOWN = {"short": {}, "big": {"max_gpu": 4}}


def lacks(**changes: object) -> dict[str, str]:
    given = {"config": CONFIG, "sinfo": NODES, "jobs": JOBS, "profile": PROFILE, "known": KNOWN, "orphans": []}
    found = findings(**(given | {"programs": {"sbatch", "sacct", "conda"}} | changes))
    return {one.what: one.told for one in found if not one.good}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 30), ("5:30", 6), ("1:00:00", 60), ("1-00:00:00", 1440), ("2-12", 3600), ("1-06:30", 1830),
        ("00:00:01", 1), ("infinite", UNLIMITED), ("n/a", UNLIMITED),
    ],
)  # fmt: skip
def test_slurms_times(text, expected):
    assert minutes(text) == expected


def test_a_partition_is_its_largest_node():
    assert partitions(NODES) == {
        "short": Partition("short", 1440, 192000, 64, 0, False),
        "big": Partition("big", 4320, 512000, 64, 4, False),
    }
    assert partitions("a|infinite|1000|2|gpu:2,gpu:a100:1,shard:8|OFF\n")["a"].gpus == 3


def test_a_cluster_that_has_all_lacks_nothing():
    assert lacks() == {}


@pytest.mark.parametrize(
    ("changes", "what", "words"),
    [
        ({"config": CONFIG.replace("slurmdbd", "none")}, "accounting", "Leave slurm_account out"),
        ({"programs": {"conda"}}, "accounting", "for ever"),
        ({"config": CONFIG.replace("3600", "60")}, "MinJobAge", "lower slurm-init-seconds-before-status-checks to 20"),
        ({"config": CONFIG.replace("= none", "= associations,limits")}, "account", "set slurm_account"),
        ({"known": KNOWN | {"gpu": {"max_gpu": 1}}}, "partition gpu", "which has short, big"),
        ({"known": {"short": {"max_gpu": 1}, "big": {"max_gpu": 1}}}, "partition short", "it has no GPU"),
        (
            {"jobs": [Asked("training_run", 4321, 64000, 8, 1)]},
            "job training_run",
            "72 h 01 min, 64,000 MB, 8 cores, 1",
        ),
        ({"jobs": [Asked("frames", 240, 600000, 2, 0)]}, "job frames", "which no partition grants"),
        ({"jobs": [Asked("x", 10, 1, 1, 5)]}, "job x", "5 GPUs"),
        ({"sinfo": NODES.replace("REQUEUE", "GANG,CANCEL")}, "partition big", "name another"),
        ({"programs": {"sacct"}}, "environments", "--sdm env-modules"),
        ({"orphans": ["cxr-ils_1", "cxr-ils_2"]}, "earlier runs", "scancel --name=cxr-ils_1,cxr-ils_2"),
    ],
)
def test_what_is_missing_is_said_with_its_remedy(changes, what, words):
    found = lacks(**changes)
    assert list(found) == [what]
    assert words in found[what]


def test_an_account_that_is_given_is_enough():
    enforced = CONFIG.replace("= none", "= associations")
    assert lacks(config=enforced, profile=PROFILE | {"default-resources": {"slurm_account": "'lab'"}}) == {}


DRY_RUN = """
[Sun Nov 22 08:00:00 2026]
rule cohort_shards:
    output: results/cohort/00.parquet
    log: logs/cohort/cohort.log
    threads: 2
    resources: tmpdir=/tmp, mem_mb=8000, mem=8 GB, mem_mib=7630, runtime=240, serial=1
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
    resources: gpu=1, mem_mb=8000, runtime=1440
[Sun Nov 22 08:00:00 2026]
localrule weights:
    log: logs/weights/weights.log
    resources: mem_mb=1000, runtime=10
[Sun Nov 22 08:00:00 2026]
rule all:
    input: results/cohort/00.parquet
    resources: mem_mb=4000, runtime=60
Job stats:
"""


def test_a_dry_run_tells_what_is_asked_for():
    assert asked(DRY_RUN) == [
        Asked("cohort_shards", 240, 8000, 2, 0), Asked("masks", 8, 6000, 4, 0), Asked("anomaly_shard", 1440, 8000, 1, 1)
    ]  # fmt: skip


def test_the_command_looks_at_this_cluster():
    needs_slurm()
    command = [sys.executable, str(ROOT / "scripts/slurm_check.py"), "--submit"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    told = [line.split("  ") for line in done.stdout.splitlines()]
    assert all(line[0].strip() in {"ok", "LACKS"} for line in told)
    assert len(told) <= 24
    short = [" ".join(line) for line in told if line[0] == "LACKS"]
    assert [line for line in short if "environments" not in line] == []
    assert done.returncode == bool(short)
    assert bool(short) == (shutil.which("conda") is None)
    assert "has this Python and writes into this folder" in done.stdout


def test_without_slurm_it_says_so_in_one_line(tmp_path):
    command = [sys.executable, str(ROOT / "scripts/slurm_check.py")]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines() == ["slurm-check: there is no sbatch: run this on a login node of the cluster"]
    assert done.returncode == 1
