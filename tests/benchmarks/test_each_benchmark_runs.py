"""Every benchmark runs on its smallest input and writes its table; what it measures is judged nowhere here."""

import subprocess
import sys

import pytest

from conftest import ROOT, SHARED

TABLE = "{folder}/table.tsv"
RUNS = {
    "autoencoder": ["--device", "cpu", "--images", "1", "--tiny", "--output", TABLE],
    "calls": ["--run", "{run}"],
    "detection": [],
    "engines": [
        "--device", "cpu", "--engines", "hybridgnet", "--images", "1", "--batch", "1", "--tiny", "--output", TABLE,
    ],
    "frames": ["--images", "1", "--threads", "1", "--output", TABLE],
    "masks": ["--images", "2", "--brute", "1", "--rounds", "1", "--output", TABLE],
    "medground": ["--npz-mb", "13", "--output", TABLE],
    "mimic": ["{folder}/cohort", "--images", "200"],
    "mixes": ["--images", "20"],
    "needed_edits": ["runs", "{run}/results", "{run}/results"],
    "pairs": ["--results", "{run}/results", "--studies", "20", "--shards", "2"],
    "reports_accuracy": ["{shared}/fixtures/openi_reports.jsonl", "--rounds", "2", "--folds", "1"],
    "rosalia": [
        "--results", "{run}/results", "--device", "cpu", "--batches", "1", "--images", "4", "--steps", "1", "--updates",
        "150", "--rounds", "1", "--max-new-tokens", "16", "--output", TABLE,
    ],
    "rosalia_memory": ["--results", "{run}/results", "--device", "cpu", "--batch", "1", "--output", TABLE],
    "scale": [],
    "semisyn": ["--jobs", "2", "--scalar", "1", "--output", TABLE],
    "semisyn_editing": ["--jobs", "1", "--output", TABLE],
    "semisyn_editing_speed": [
        "--device", "cpu", "--edits", "4", "--batch", "4", "--steps", "1", "--tiny", "--output", TABLE,
    ],
    "storage": ["--studies", "6", "--images", "2", "--output", TABLE],
    "vlm": ["--run", "{run}", "--output", TABLE],
    "whole": ["--studies", "6", "--output", TABLE],
}  # fmt: skip
"""{benchmark: arguments of its smallest input}; run: the folder of a finished run."""
ELSEWHERE = {
    "engines_run": "a part of engines",
    "gpu": "tests/workflow/test_benchmarks_gpu.py runs its pieces",
    "language_model_speed": "needs vLLM: tests/language/test_reports_vllm.py",
    "mimic_plan": "plans only at the size of MIMIC-CXR: `make -f experiments/Makefile mimic-plan`",
    "openi_stand_in": "needs `make openi`: tests/imaging/test_openi_stand_in.py",
}
"""{benchmark: why it is not run here}."""


def test_no_benchmark_is_forgotten():
    programs = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()}
    assert programs == RUNS.keys() | ELSEWHERE.keys()
    assert not RUNS.keys() & ELSEWHERE.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_benchmark_runs_on_its_smallest_input(name, workflow_run, tmp_path):
    if any("{shared}" in word for word in RUNS[name]) and not SHARED.is_dir():
        pytest.skip(f"no real data: CXR_ILS_SHARED is {SHARED}")
    words = [word.format(folder=tmp_path, run=workflow_run, shared=SHARED) for word in RUNS[name]]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *words],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
    if TABLE in RUNS[name]:
        header, *rows = (tmp_path / "table.tsv").read_text().splitlines()
        assert rows
        assert all(row.count("\t") == header.count("\t") for row in rows)
