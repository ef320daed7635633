"""The recipe of LLaVA-OneVision's 7B model on a real SLURM: a job of two GPUs, two processes under ZeRO-3, all parts.

The model is small and the processes run on the CPU, in place of the two cards. With CXR_ILS_FAULTS=1 (`make
test-faults`), for it takes minutes.
"""

import os
import shutil

import pytest

from conftest import ROOT, SLICE, snakemake, write_settings
from cxr.base.tables import read_lines, read_table
from cxr.vlm.tuning.settings import OnevisionRecipe
from slurm_runs import finish, jobs_of, needs_slurm, run_name, start, with_fault
from whole_runs import copy_repository

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif("CXR_ILS_FAULTS" not in os.environ, reason="takes minutes: make test-faults"),
]
DEEPSPEED = ROOT / ".venv-deepspeed/bin/python"
SMALL = "results/vlm/radvlm/weights"
RUN, ANSWERS = "results/vlm/whole/weights", "results/vlm/whole/answers/radvlm_test.jsonl"
TWO_PROCESSES = f"""
import os, sys, types
from cxr.nets.fitting import launch
run = launch.TrainingJob.run
def as_many(device, asked):
    with open("asked.txt", "w") as file:
        file.write(str(asked))
    return asked
launch.count_gpus = as_many
def on_the_cpu(job, *rest):
    job.compute["device"] = "cpu"
    run(job, *rest)
launch.TrainingJob.run = on_the_cpu
launch.sys = types.SimpleNamespace(executable={str(DEEPSPEED)!r}, platform=sys.platform)
os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["PATH"] = {str(DEEPSPEED.parent)!r} + os.pathsep + os.environ["PATH"]
"""
"""As many processes as the job asked for GPUs, which the test cluster has by name alone."""


def test_the_whole_models_recipe_runs_on_slurm_on_two_gpus(workflow_run, tmp_path):
    needs_slurm()
    if not DEEPSPEED.is_file():
        pytest.skip("deepspeed is not installed here: `make test-deepspeed` installs it")
    directory = tmp_path / "run"
    shutil.copytree(workflow_run, directory, symlinks=True)
    tiny = {"updates": 2, "batch": 4, "micro_batch": 4}
    write_settings(directory, SLICE | {"vlm": {"tuning": {"onevision_tiny": tiny}}})
    snakemake(directory, SMALL)
    model = directory / SMALL / "model"
    recipe = {"batch": 16, "updates": 3}
    runs = {"whole": {"engine": "onevision", "model": str(model), "lines": "radvlm:all"}}
    own = {"onevision_tiny": tiny, "onevision": recipe, "runs": runs}
    answers = {"sets": {"radvlm_test": "radvlm:all/test"}, "max_new_tokens": 8}
    settings = SLICE | {"compute": {"gpus": 2}, "vlm": {"tuning": own, "answers": answers}}
    settings["radvlm"] = {"evaluation": {"runs": ["whole"]}}
    write_settings(directory, settings)
    root = copy_repository(tmp_path / "copy")
    with_fault(root, "vlm_tuning_run", "pass", tmp_path / "begun", always=TWO_PROCESSES)
    snakemake(directory, "radvlm_instructions", "--touch", root=root)  # the fault is code of every rule
    finish(start(directory, RUN, "--set-resources", "vlm_tuning_run:mem_mb=6000", root=root), directory)
    ended = [job for job in jobs_of(run_name(directory)) if "vlm_tuning_run" in job["comment"]]
    assert [job["state"] for job in ended] == ["COMPLETED"]
    updates = read_table((directory / RUN).with_name("updates.tsv"))
    assert updates["samples"].to_list() == [16] * 3
    assert updates["loss"].is_finite().all()
    assert (directory / "asked.txt").read_text() == "2"
    full = OnevisionRecipe()
    assert (full.runner, full.zero, full.method, full.dtype, full.micro_batch) == (
        "deepspeed",
        3,
        "full",
        "bfloat16",
        1,
    )
    compute = settings | {"compute": {"gpus": 0}}
    write_settings(directory, compute)
    snakemake(directory, "--rerun-triggers", "mtime", "--", ANSWERS)
    said = list(read_lines(directory / ANSWERS))
    asked = read_lines(directory / "results/radvlm/instructions/all/test.jsonl")
    assert {line["sample_id"] for line in said} == {line["sample_id"] for line in asked}
