"""From healthy X-rays to the dataset, with Snakemake: any number of shards, a killed run, the cohort of its images."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import ROOT, snakemake, write_settings
from cxr.base.tables import read_table
from declared_tables import differing, path_of

SMALL = {
    "phantom": {"subjects": 6, "studies": 9, "healthy": 4},
    "semisyn": {"dataset": {"per_finding": 2, "sizes": [7, 14]}, "placement": {"most_per_image": 3}},
}
"""Settings of a small system: four films more that are without a finding; the pool keeps one of them."""


def files(run: Path, folder: str = "dataset") -> dict[str, bytes]:
    """{path: bytes} of a folder of the system's results."""
    root = run / "results/semisyn" / folder
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """One finished run, three shards. Tests must not write in it."""
    folder = write_settings(tmp_path_factory.mktemp("semisyn") / "run", SMALL)
    snakemake(folder, "semisyn")
    return folder


@pytest.mark.slow
def test_the_chain_makes_what_was_asked_for(run):
    results = run / "results/semisyn"
    rows = {row["finding"]: row for row in read_table(results / "dataset/conservation.tsv").to_dicts()}
    assert rows["all"]["exported"] == 14
    assert {row["balanced"] for row in rows.values()} == {"yes"}
    assert {path.name for path in (results / "dataset/source").iterdir()} == {"7", "14"}
    assert len(list((results / "dataset/source/14/yolo").rglob("*.png"))) == 14
    for path in results.rglob("*"):
        if path.suffix in (".tsv", ".parquet") and "source" not in path.relative_to(results).parts:
            declared = path_of(path.relative_to(run).as_posix())
            assert declared, path
            assert not differing(path, declared)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 7])
def test_any_number_of_shards_gives_the_same_bytes(run, tmp_path, shards):
    other = write_settings(tmp_path, SMALL | {"cohort": {"shards": shards}})
    snakemake(other, "semisyn", cores=1)
    assert files(other) == files(run)


@pytest.mark.slow
def test_a_killed_run_is_resumed_to_the_same_bytes(run, tmp_path):
    write_settings(tmp_path, SMALL)
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(tmp_path)]
    command += ["--configfile", str(tmp_path / "mine.yaml"), "--cores", "2", "--rerun-incomplete", "semisyn"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    waited = (
        "cohort/images.parquet",
        "organs/00.h5",
        "semisyn/placement/plan.parquet",
        "semisyn/dataset/images.parquet",
    )
    for name in waited:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **quiet)
        while not (tmp_path / "results" / name).exists() and process.poll() is None:
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert (tmp_path / "results" / name).exists(), name
        snakemake(tmp_path, "--unlock", check=False)
    snakemake(tmp_path, "--rerun-incomplete", "semisyn")
    assert files(tmp_path) == files(run)


@pytest.mark.slow
def test_the_cohort_of_edited_films_goes_through_ils(run, tmp_path):
    """Organs, boxes, maps and masks on films with a known truth."""
    snakemake(run, "semisyn_cohort")
    folder = run / "results/semisyn/dataset/cohort"
    mine = {
        "cohort": {"source": "manifest", "manifest": str(folder / "manifest.csv"), "shards": 2},
        "agreement": {"references": {"semisyn": {"format": "coco", "path": str(folder / "truth.json")}}},
    }
    write_settings(tmp_path, mine)
    snakemake(tmp_path, "agreement")
    scores = read_table(tmp_path / "results/agreement/scores.tsv")
    assert {"boxes", "anomaly map"} <= set(scores["output"])
