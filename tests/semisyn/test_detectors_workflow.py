"""The whole system with Snakemake, detectors included: trained, scored, and killed at random moments of all stages."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest

from annotation_files import write_coco
from conftest import ROOT, snakemake, write_settings
from cxr.annotations.regions import Annotation, Annotations
from cxr.base.tables import read_table
from declared_tables import differing, path_of

TARGETS = ("semisyn_detectors", "semisyn_detection")
WHOLE = (*TARGETS, "semisyn", "semisyn_selection")
KILLS = 10


def people(folder: Path, name: str, count: int) -> str:
    """Write pictures with a bright box, and people's boxes of them; return the file."""
    random, regions, seen = np.random.default_rng(len(name)), [], set()
    (folder / name).mkdir(parents=True)
    for number in range(count):
        picture = random.integers(60, 120, (400, 360)).astype(np.uint8)
        x, y = random.integers(20, 200, 2).tolist()
        picture[y : y + 120, x : x + 90] += 100
        seen.add(f"{name}{number}.png")
        cv2.imwrite(str(folder / name / f"{name}{number}.png"), picture)
        if number % 3:
            box = (x, y, x + 90.0, y + 120.0)
            regions.append(Annotation(f"{name}{number}.png", "Lung Opacity", box, size=(400, 360)))
    write_coco(folder / f"{name}.json", Annotations(regions, seen))
    return str(folder / f"{name}.json")


def settings(folder: Path) -> dict:
    told = {name: {"format": "coco", "path": people(folder, name, 9), "role": role, "images": str(folder / name)}
            for name, role in (("learnt", "train"), ("tested", "test"))}  # fmt: skip
    runs = {"real": {"real": ["learnt"]}, "real+7": {"real": ["learnt"], "synthetic": 7}}
    runs |= {"shuffled": {"extra": ["shuffled"]}}
    lite = {"size": 64}
    return {
        "replicates": 100,
        "compute": {"checkpoint_every": 5},
        "phantom": {"subjects": 6, "studies": 9, "healthy": 4},
        "semisyn": {
            "dataset": {"per_finding": 2, "sizes": [7]}, "placement": {"most_per_image": 20},
            "references": told,
            "detectors": {"runs": runs, "seeds": 2, "updates": 60, "lite": lite},
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """One finished run. Tests must not write in it."""
    folder = tmp_path_factory.mktemp("detectors")
    write_settings(folder / "run", settings(folder))
    snakemake(folder / "run", *WHOLE)
    return folder / "run"


def made(folder: Path) -> dict[str, bytes]:
    """{path: bytes} of all that the system has made."""
    root = folder / "results/semisyn"
    paths = sorted(root.rglob("*"))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths if path.is_file()}


@pytest.mark.slow
def test_detectors_are_trained_and_scored(run):
    root = run / "results/semisyn"
    scores = read_table(root / "detection/scores.tsv").filter(reference="tested", source="ours")
    assert set(scores["run"]) == {"real", "real+7", "shuffled"}
    assert set(scores["seed"].drop_nulls()) == {0, 1}
    assert set(read_table(root / "detection/differences.tsv")["run"]) == {"real+7", "shuffled"}
    assert set(read_table(root / "detection/table1.tsv").filter(source="ours").select("run", "synthetic").rows()) == {
        ("real", 0), ("real+7", 7), ("shuffled", 0),
    }  # fmt: skip
    roles = {row["set"]: row for row in read_table(root / "detectors/roles.tsv").to_dicts()}
    assert (roles["learnt"]["images"], roles["learnt"]["boxes"], roles["learnt"]["role"]) == (9, 6, "train")
    pools = {row["pool"]: row for row in read_table(root / "detectors/real+7.s1/pools.tsv").to_dicts()}
    assert (pools["real"]["images"], pools["synthetic"]["images"]) == (9, 7)
    for path in root.rglob("*"):
        ours = path.relative_to(root).parts[0] in ("detectors", "detection", "references")
        if ours and path.suffix in (".tsv", ".parquet"):
            declared = path_of(path.relative_to(run).as_posix())
            assert declared, path
            assert not differing(path, declared)


def started(folder: Path, *targets: str) -> subprocess.Popen:
    """Start Snakemake in a session of its own, so that it can be killed with all its jobs."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder),
               "--configfile", str(folder / "mine.yaml"), "--cores", "1", "--rerun-incomplete", *targets]  # fmt: skip
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **quiet)


def killed(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_ten_kills_at_random_moments_change_no_byte(run, tmp_path):
    """Each kill comes when so many files are there as were drawn, and a moment later; it hits whatever then runs."""
    write_settings(tmp_path / "run", settings(tmp_path))
    results = tmp_path / "run/results"
    whole = sum(path.is_file() for path in (run / "results").rglob("*"))
    draw, hit, at = random.Random(20), 0, []
    for least in sorted(draw.sample(range(whole * 9 // 10), KILLS)):
        process = started(tmp_path / "run", *WHOLE)
        while process.poll() is None and sum(path.is_file() for path in results.rglob("*")) < least:
            time.sleep(0.02)
        time.sleep(draw.random() / 2)
        if process.poll() is None:
            hit += 1
            at.append(sum(path.is_file() for path in results.rglob("*")))
            killed(process)
        snakemake(tmp_path / "run", "--unlock", check=False)
    assert hit == KILLS, at
    snakemake(tmp_path / "run", "--rerun-incomplete", *WHOLE)
    mine, plain = made(tmp_path / "run"), made(run)
    assert mine.keys() == plain.keys()
    # paths of the pictures differ between the two folders
    differ = {name for name in plain if mine[name] != plain[name]}
    assert differ <= {f"references/{name}/images.parquet" for name in ("learnt", "tested")}


@pytest.mark.slow
def test_a_killed_training_gives_the_same_bytes(run, tmp_path):
    write_settings(tmp_path / "run", settings(tmp_path))
    process = started(tmp_path / "run", *TARGETS)
    root = tmp_path / "run/results/semisyn/detectors"
    while not list(root.glob("*/unfinished")) and process.poll() is None:
        time.sleep(0.02)
    unfinished = list(root.glob("*/unfinished"))
    killed(process)
    assert unfinished, "it was killed during a training"
    snakemake(tmp_path / "run", "--unlock", check=False)
    snakemake(tmp_path / "run", "--rerun-incomplete", *TARGETS)
    assert not list(root.glob("*/unfinished"))
    parts = ("detectors/", "detection/", "references/")
    mine, whole = ({name: held for name, held in made(folder).items() if name.startswith(parts)}
                   for folder in (tmp_path / "run", run))  # fmt: skip
    assert mine.keys() == whole.keys()
    # paths of the pictures differ between the two folders, and so do the settings that frames tell
    differ = {name for name in whole if mine[name] != whole[name]}
    assert differ <= {f"references/{name}/images.parquet" for name in ("learnt", "tested")}
