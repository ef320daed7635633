"""The profile `slurm`: what it asks a cluster for, jobs of an earlier run, and a run on a real one in which jobs fail.

The runs need a SLURM (docs/how-to/cluster.md); without one they are skipped, visibly.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake_executor_plugin_slurm.partitions import get_best_partition, read_partition_file

import parsed
from conftest import ROOT, snakemake, stand_in, write_settings
from cxr.base.errors import UserError
from cxr.nets.settings import ComputeSettings
from cxr.workflow import folder as queue
from cxr.workflow.folder import find_orphans
from cxr.workflow.jobs import grow_with_tries
from profiles import EDITS_BY_RADEDIT, PAPER_ON_A_GPU, profile
from slurm_runs import TWO, finish, jobs_of, needs_slurm, queued, run_name, start, wait_for, with_fault
from whole_runs import arrays, copy_repository, pair_lines_of_any_code

DAY = 1440
"""Minutes that any cluster grants a job."""
CHAINS = {
    "evaluation": [
        {"evaluation_predictions", "evaluation_run"}, {"evaluation_persona"}, {"inference_panels"}, {"training_curves"}
    ],
    # the frames of a reference's images
    "frames": [{"frames_shard"}, {"semisyn_detectors_frames"}, {"radvlm_sources_frames"}],
    **{f"organs-{device}": [{"organs_shard"}, {"semisyn_priors_organs"}] for device in ("cpu", "gpu")},
}  # fmt: skip
"""Of a group whose rules do not all follow from each other, those that do: such a chain is one of its components."""


@pytest.mark.parametrize("settings", [{}, PAPER_ON_A_GPU, PAPER_ON_A_GPU | EDITS_BY_RADEDIT])
def test_a_group_has_one_device_and_fits_into_a_day(settings):
    """What SLURM is asked for at the third try: members of a group run one after the other, so their minutes add up."""
    slurm, asked, devices = profile("slurm"), {}, {}
    components, tries = slurm["group-components"], 1 + slurm["retries"]
    for name, rule in parsed.working(settings).items():
        if rule.group:
            asked.setdefault(rule.group, {})[name] = rule.resources["runtime"][tries - 1]
            devices.setdefault(rule.group, set()).add(bool(rule.resources.get("gpu", [0])[0]))
            assert devices[rule.group] == {rule.group.endswith("-gpu")}, f"{name}: CPU and GPU in one group"
    for group, minutes in asked.items():
        chains = CHAINS.get(group, [minutes.keys()])
        assert set().union(*chains) == minutes.keys()
        assert max(sum(minutes[name] for name in chain) for chain in chains) * components[group] <= DAY, group
    other = "-cpu" if settings else "-gpu"
    of_stages = {name for name in components if not name.endswith(other)}
    assert asked.keys() - of_stages <= {"frames-cpu", "reports-cpu", "semisyn_editing-cpu", "semisyn_realism-cpu"}
    assert of_stages <= asked.keys() | {"semisyn_editing-gpu"}


def test_no_group_waits_for_itself(tmp_path, dry_run):
    """Jobs of a group that need one of another, which needs one of theirs, cannot be planned."""
    write_settings(tmp_path, {"cohort": {"shards": 3}})
    targets = ("semisyn", "semisyn_realism", "semisyn_detectors", "medground_dataset")
    jobs = dry_run(tmp_path, "--profile", "slurm", "--sdm", "env-modules", "--", *targets)
    assert jobs["organs_shard"] == jobs["semisyn_realism_organs"] == 3


@pytest.mark.parametrize(("gpu", "partition"), [(0, "cpu"), (1, "gpu"), (8, "gpu"), (9, None)])
def test_a_job_with_a_gpu_goes_to_the_partition_with_gpus(gpu, partition):
    partitions = read_partition_file(ROOT / "profiles/slurm/partitions.yaml")
    job = SimpleNamespace(resources={"gpu": gpu, "mem_mb": 64000, "runtime": 4320}, threads=8, name="anomaly_shard")
    quiet = SimpleNamespace(debug=str, info=str, warning=str)
    assert get_best_partition(partitions, job, quiet) == partition


def test_every_rule_asks_for_more_with_each_try():
    for name, rule in parsed.working().items():
        for resource in ("mem_mb", "runtime"):
            first, second, third = rule.resources[resource]
            most = {"mem_mb": ComputeSettings().max_memory_mb, "runtime": ComputeSettings().max_runtime}[resource]
            # of what a wildcard decides, the function is what all others are made with
            assert first is None or (second, third) == (min(2 * first, most), min(3 * first, most)), name
    assert [grow_with_tries(4000, 180_000)(None, attempt) for attempt in (1, 2, 3)] == [4000, 8000, 12000]
    assert [grow_with_tries(600, 1440)(None, attempt) for attempt in (1, 2, 3)] == [600, 1200, 1440]


def test_the_profile_avoids_what_the_executor_cannot_do():
    slurm = profile("slurm")
    assert slurm["slurm-status-command"] == "squeue"
    assert slurm["slurm-status-attempts"] >= 1000
    assert slurm["retries"] >= 1
    assert slurm["slurm-requeue"] is True  # else it waits for a preempted job for ever
    assert slurm["sdm"] == "conda"
    assert not any("array" in key for key in slurm)
    assert slurm["default-resources"]["serial"] == 1  # see the limit in rules/common.smk


RUNS = [f"cxr-ils_0f8fad5b-d9cd-469f-a165-70867728950{digit}" for digit in range(3)]
DEAD = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
NO_ANSWER = (
    "SLURM does not answer (slurm_load_jobs error: Unable to contact slurm controller (connect failure)), so jobs"
)


@pytest.fixture
def squeue(tmp_path, monkeypatch) -> Callable[[str], None]:
    """Return a function that puts a squeue before all others: the right question makes it do ``deed``, in sh.

    Nothing can be submitted meanwhile.
    """
    folder = tmp_path / "bin"
    stand_in(folder / "sbatch", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(deed: str) -> None:
        question = f"--noheader --user={os.getuid()} --format=%j|%Z"
        stand_in(folder / "squeue", f"#!/bin/sh\n[ \"$*\" = '{question}' ] || exit 3\n{deed}\n")

    return put


def showing(*jobs: tuple[str, Path]) -> str:
    lines = "\n".join(f"{name}|{directory}" for name, directory in jobs)
    return f"cat <<'END'\n{lines}\nEND"


@pytest.mark.parametrize("name", ["run", "my run", "a|b", "brüssel"])
def test_jobs_of_an_earlier_run_are_known_by_their_directory(squeue, tmp_path, name):
    here, link = tmp_path / name, tmp_path / "link"
    here.mkdir()
    link.symlink_to(here)
    mine = [(RUNS[1], here), (RUNS[0], link), (RUNS[1], here), (RUNS[0].removeprefix("cxr-ils_"), here)]
    others = [
        (RUNS[2], tmp_path), (RUNS[2], here / "below"), (RUNS[2], f"{here}2"), ("fit", here), ("my fit|x", here),
        (f"{RUNS[2]}|x", here), (f"my {RUNS[2]}", here),
    ]  # fmt: skip
    squeue(showing(*others, *mine))
    assert find_orphans(here) == find_orphans(link) == [RUNS[0].removeprefix("cxr-ils_"), RUNS[0], RUNS[1]]
    squeue(showing(*others))
    assert find_orphans(here) == []
    squeue("printf 'f\\374t|/\\n'")  # a name that is no UTF-8
    assert find_orphans(here) == []


def test_a_slurm_that_does_not_answer_is_not_an_empty_queue(squeue, tmp_path, monkeypatch):
    squeue(DEAD)
    with pytest.raises(UserError, match=re.escape(NO_ANSWER)):
        find_orphans(tmp_path)
    squeue("exit 1")
    with pytest.raises(UserError, match=re.escape("SLURM does not answer (status 1), so")):
        find_orphans(tmp_path)
    monkeypatch.setattr(queue, "PATIENCE_S", 0.1)
    squeue("exec sleep 60")
    with pytest.raises(UserError, match=re.escape("SLURM does not answer (nothing in 0.1 s), so")):
        find_orphans(tmp_path)
    (tmp_path / "bin/squeue").write_text("no program")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UserError, match=r"SLURM does not answer \(.*Exec format error"):
        find_orphans(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_orphans(tmp_path) == []  # where there is no squeue there is no SLURM


def test_a_run_is_not_started_beside_jobs_of_an_earlier_one(squeue, tmp_path):
    write_settings(tmp_path, {})
    squeue(showing((RUNS[0], tmp_path), (RUNS[1], tmp_path)))
    done = snakemake(tmp_path, "phantom", check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"cxr-ils: jobs of an earlier run still work in this folder ({RUNS[0]}, {RUNS[1]}): wait until `squeue --me` "
        f"shows none of them, or end them with `scancel --name={RUNS[0]},{RUNS[1]}`, then start again"
    )
    assert "rule phantom" not in done.stderr


@pytest.mark.slow
def test_a_run_on_a_cluster_waits_for_a_slurm_that_does_not_answer(squeue, tmp_path):
    write_settings(tmp_path, {})
    squeue(DEAD)
    words = finish(start(tmp_path, "phantom"), tmp_path, check=False)
    told = f"cxr-ils: {NO_ANSWER} of an earlier run may still work in this folder: start again when "
    assert f"{told}`squeue --me` answers" in words.splitlines()[-2:]  # a thread of the executor's may say a last word
    assert "Traceback" not in words
    assert "Embedded cohort:" not in words  # nothing was submitted


def test_a_run_on_one_machine_needs_no_slurm_that_answers(squeue, tmp_path):
    write_settings(tmp_path, {})
    squeue(DEAD)
    snakemake(tmp_path, "weights")
    assert (tmp_path / "results/weights/manifest.tsv").is_file()


pytestmark = pytest.mark.xdist_group("slurm")  # in one process: the run of this fixture is theirs all


@pytest.fixture(scope="module")
def faulty_run(tmp_path_factory) -> Path:
    """A run on the cluster: one job lacks memory and one is cancelled, both the first time they are tried."""
    needs_slurm()
    directory = tmp_path_factory.mktemp("slurm")
    root = copy_repository(directory / "copy")
    with_fault(root, "frames_shard", "raise MemoryError", directory / "lacked_memory")
    with_fault(root, "organs_shard", "time.sleep(600)", directory / "slept")
    write_settings(directory, TWO)
    run = start(directory, "dataset", root=root)
    try:
        wait_for((directory / "slept").exists, run, seconds=600)
        (job,) = [job for job, work in queued(run_name(directory)).items() if "organs" in work]
        assert find_orphans(directory) == [run_name(directory)]
        assert find_orphans(root) == []
        subprocess.run(["scancel", job], check=True)
        finish(run, directory)
    finally:
        run.kill()
    return directory


@pytest.mark.slow
def test_a_run_with_faults_on_a_cluster_gives_the_same_bytes(faulty_run, workflow_run):
    assert pair_lines_of_any_code(faulty_run) == pair_lines_of_any_code(workflow_run)
    assert arrays(faulty_run) == arrays(workflow_run)


@pytest.mark.slow
def test_what_failed_was_tried_again_with_more(faulty_run):
    jobs = jobs_of(run_name(faulty_run))
    tries = {}
    for job in jobs:
        rule = job["comment"].split("_")[1]
        tries.setdefault(rule, []).append((job["state"].split()[0], int(job["reqmem"].rstrip("M"))))
    assert tries.pop("frames") == [("FAILED", 4000), ("COMPLETED", 8000)]
    assert tries.pop("organs-cpu") == [("CANCELLED", 4000), ("COMPLETED", 8000)]
    # one job a stage for both shards; all that gathers
    others = ("phantom", "cohort", "reports", "boxes-cpu", "anomaly-cpu", "anatomy-cpu", "masks", "tables")
    assert sorted((rule, *(state for state, _ in found)) for rule, found in tries.items()) == sorted(
        (rule, "COMPLETED") for rule in others
    )
    assert {job["partition"] for job in jobs} == {"cpu"}
    assert max(int(job["alloccpus"]) for job in jobs) == 2
    assert "out of memory: give the rule more" in (faulty_run / "run.log").read_text()
    assert "Traceback" not in (faulty_run / "run.log").read_text()


@pytest.mark.slow
def test_a_group_asks_for_the_time_of_all_and_the_memory_of_one(faulty_run):
    (job,) = [job for job in jobs_of(run_name(faulty_run)) if job["comment"].startswith("rule_masks")]
    assert (job["alloccpus"], job["reqmem"], job["timelimitraw"]) == ("1", "4000M", str(2 * 5))


@pytest.mark.slow
def test_why_a_group_was_refused_is_told(faulty_run, tmp_path):
    """Snakemake itself says nothing of it: the job has no number, and its log is empty."""
    done = Path(shutil.copytree(faulty_run, tmp_path / "copy", symlinks=True))
    for file in (done / "results/reports").glob("*"):
        file.unlink()
    write_settings(done, TWO)
    words = ["--set-resources", "reports_shard:mem_mb=100000000", "--retries", "0"]
    told = finish(start(done, "reports", *words, root=faulty_run / "copy"), done, check=False)
    assert re.search(r"Group reports: SLURM sbatch failed\. The error message was .*[Mm]emory", told), told[-3000:]


@pytest.mark.slow
def test_nothing_is_left_of_a_run_that_ended(faulty_run):
    assert find_orphans(faulty_run) == []  # where the run's own jobs were found while it went on
    assert not queued(run_name(faulty_run))


@pytest.mark.skipif("CXR_ILS_FAULTS" not in os.environ, reason="the demo's nets want no GPU: make test-faults")
def test_jobs_of_a_gpu_group_run_on_the_gpu_partition_and_share_one_gpu(tmp_path):
    needs_slurm()
    write_settings(tmp_path, {})
    limit = 'workflow.register_resource("serial", 1)'  # as snakemake_compat does
    scopes = re.search(r"^resource_scopes:\n.*\n", (ROOT / "Snakefile").read_text(), flags=re.M).group()
    (tmp_path / "Snakefile").write_text(
        f"{scopes}{limit}\n"
        "rule all:\n    input: expand('{n}.txt', n=range(3))\n"
        "rule organs_shard:\n    output: '{n}.txt'\n    group: 'organs-gpu'\n    threads: 2\n"
        "    resources: gpu=1, mem_mb=300, runtime=2\n    shell: 'echo $CUDA_VISIBLE_DEVICES > {output}'\n"
    )
    finish(start(tmp_path, "--snakefile", str(tmp_path / "Snakefile")), tmp_path)
    (job,) = jobs_of(run_name(tmp_path))
    assert (job["partition"], job["alloccpus"], job["reqmem"], job["timelimitraw"]) == ("gpu", "2", "300M", "6")
    assert {len((tmp_path / f"{number}.txt").read_text().split(",")) for number in range(3)} == {1}
    assert {(tmp_path / f"{number}.txt").read_text().strip() for number in range(3)} <= {"0", "1"}
