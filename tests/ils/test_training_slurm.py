"""A training on a real SLURM: at its time limit, and with a process that hangs, it is tried again and resumes.

With CXR_ILS_FAULTS=1 (`make test-faults`), for it takes minutes.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from conftest import ROOT, SLICE, every, snakemake, write_settings
from cxr.workflow.jobs import warning_options
from slurm_runs import finish, jobs_of, needs_slurm, run_name, start, wait_for, with_fault
from training_runs import RESULTS, SIZES
from whole_runs import copy_repository

slow = pytest.mark.skipif("CXR_ILS_FAULTS" not in os.environ, reason="takes minutes: make test-faults")
MODEL = "results/training/default/model"
RECIPE = {"init": "random", "sizes": SIZES, "epochs": 2, "batch": 4, "micro_batch": 4, "warmup": 2}
DEEPSPEED = ROOT / ".venv-deepspeed/bin/python"
WAITS = """
from cxr.ils.training import fit
original = fit.Fit._update
def waiting(self, number, *rest):
    while number == 4 and not self.should_stop():
        time.sleep(0.1)
    return original(self, number, *rest)
fit.Fit._update = waiting
"""
"""The fifth update takes until the training is told to stop, however long SLURM lets it wait for that."""
TWO_PROCESSES = f"""
import os, sys, types
from cxr.ils.training import train as stage
from cxr.nets.fitting import launch
snakemake.params.options["lite"]["runner"] = "deepspeed"
launch.count_gpus = lambda device, num_requested: 2
launch.sys = types.SimpleNamespace(executable={str(DEEPSPEED)!r}, platform=sys.platform)
os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["PATH"] = {str(DEEPSPEED.parent)!r} + os.pathsep + os.environ["PATH"]
"""
"""The rule's own training by DeepSpeed on the CPU, where it is installed."""
HANGS = f"""
stage.WORKER = "faulty_worker"
os.environ["PYTHONPATH"], os.environ["FAULT"] = {str(ROOT / "tests/support")!r}, "hang 2 1"
"""


def prepared(directory: Path, workflow_run: Path, compute: dict) -> Path:
    """Return a copy of the slice's run with settings of a small training."""
    shutil.copytree(workflow_run, directory, symlinks=True)
    write_settings(directory, SLICE | {"training": {"lite": RECIPE}, "compute": compute})
    return directory


def written(directory: Path) -> dict[str, bytes]:
    return {name: ((directory / MODEL).parent / name).read_bytes() for name in RESULTS}


def tries(directory: Path) -> list[tuple[str, str]]:
    """Return how each of a run's jobs ended and the minutes it was granted, once the accounting knows of the last."""

    def ended() -> list[dict[str, str]]:
        jobs = jobs_of(run_name(directory))
        return jobs if all(job["state"] not in ("RUNNING", "COMPLETING") for job in jobs) else []

    return [(job["state"], job["timelimitraw"]) for job in wait_for(ended)]


@pytest.mark.parametrize(
    ("defaults", "asked"),
    every(
        2,
        [
            ([], "--signal=URG@600"),
            (["mem_mb=100"], "--signal=URG@600"),
            (["slurm_extra='--exclude=n1 --nice'"], "--exclude=n1 --nice --signal=URG@600"),
            (["slurm_extra=--exclude=n1"], "--exclude=n1 --signal=URG@600"),
        ],
    ),
)
def test_a_training_asks_for_a_warning_beside_what_the_profile_asks_for(tmp_path, defaults, asked):
    """As Snakemake shows it: of its own rule's slurm_extra, and of the default-resources that this would replace."""
    (tmp_path / "Snakefile").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'scripts')!r})\nfrom cxr.workflow.jobs import warning_options\n"
        "rule one:\n    output: 'one'\n"
        "    resources: slurm_extra=warning_options(workflow.resource_settings.default_resources, 600)\n"
        "    shell: 'touch {output}'\n"
    )
    write_settings(tmp_path, {})
    more = ["--default-resources", *defaults] if defaults else []
    shown = snakemake(tmp_path, "--dry-run", *more, root=tmp_path)
    (found,) = re.findall(r"^ +resources: .*?slurm_extra=(.*?)(?:, \w+=|$)", shown.stdout + shown.stderr, flags=re.M)
    assert found == asked


def test_the_warning_is_in_the_setting_s_seconds():
    assert warning_options(None, 90) == "--signal=URG@90"


@slow
@pytest.mark.slow
@pytest.mark.xdist_group("slurm")
def test_a_training_out_of_time_is_warned_and_goes_on_where_it_was(workflow_run, tmp_path):
    needs_slurm()
    expected = prepared(tmp_path / "expected", workflow_run, {})
    snakemake(expected, MODEL)
    copy = prepared(tmp_path / "run", workflow_run, {"time_to_stop": 30})
    root = copy_repository(tmp_path / "copy")
    with_fault(root, "training_run", WAITS, tmp_path / "waited")
    snakemake(copy, "dataset", "--touch", root=root)  # the fault is in job.py, which is code of every rule
    words = finish(start(copy, MODEL, "--set-resources", "training_run:runtime=2*attempt", root=root), copy)
    assert tries(copy) == [("FAILED", "2"), ("COMPLETED", "4")]  # none ran into its limit
    total = len((copy / MODEL).with_name("updates.tsv").read_text().splitlines()) - 1
    # nothing else than the warning makes it write: compute.checkpoint_every is 100
    assert f"step 5 of {total} is saved, rerun to resume there" in words
    assert f"training resumes at step 5 of {total}" in (copy / "logs/training/default.log").read_text()
    assert "Traceback" not in words
    assert written(copy) == written(expected)


@slow
@pytest.mark.slow
@pytest.mark.xdist_group("slurm")
def test_a_training_with_a_process_that_hangs_is_ended_and_goes_on(workflow_run, tmp_path):
    needs_slurm()
    if not DEEPSPEED.is_file():
        pytest.skip("deepspeed is not installed here: `make test-deepspeed` installs it")
    root, marker = copy_repository(tmp_path / "copy"), tmp_path / "hung"
    with_fault(root, "training_run", HANGS, marker, always=TWO_PROCESSES)
    marker.touch()
    compute = {"checkpoint_every": 1, "time_to_answer": 20, "time_to_stop": 30}
    expected = prepared(tmp_path / "expected", workflow_run, compute)
    snakemake(expected, MODEL, root=root)
    marker.unlink()
    copy = prepared(tmp_path / "run", workflow_run, compute)
    snakemake(copy, "dataset", "--touch", root=root)
    words = finish(start(copy, MODEL, root=root), copy)
    assert [state for state, _ in tries(copy)] == ["FAILED", "COMPLETED"]
    assert "training: one of its 2 processes no longer answers (" in words
    assert "it resumes from the last checkpoint" in words
    assert "training resumes at step 2 of" in (copy / "logs/training/default.log").read_text()
    assert written(copy) == written(expected)
