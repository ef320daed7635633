"""An installed package offers an engine by an entry point, without an edit of this repository."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from boxes_frames import write_frames
from conftest import ROOT, every, write_settings
from cxr.base.engines import with_installed_engines
from cxr.base.errors import UserError
from cxr.imaging.boxes.settings import BoxesSettings

ENGINE = '''"""The engine corner: one box in the upper left corner of each image."""

import numpy as np

from cxr.base.vocabulary import BOX_CLASSES
from cxr.imaging.boxes.engine import Detections

FILES = ("listing",)


class CornerEngine:
    class_names = BOX_CLASSES
    image_ids = None

    def __init__(self, side):
        self.side = side

    def detect(self, image, image_id, to_original):
        return Detections(np.array([[0.0, 0.0, self.side, self.side]]), np.array([0.9]), ["Nodule/Mass"])


def load(options, setup=None):
    assert set(setup.files) == {"listing"}
    return CornerEngine(options.corner.side)
'''
SETTINGS = '''"""Its settings."""

from cxr.base.settings import Section, key


class CornerSettings(Section):
    side: int = key(64, "Side of the box.", unit="pixels", ge=1)
    listing: str = key("", "A file of the user's.")
'''
POINTS = """[cxr_ils.engines]
boxes.corner = corner_boxes

[cxr_ils.settings]
boxes.corner = corner_boxes.settings:CornerSettings
"""
JOB = """
import json, sys
from types import SimpleNamespace
from cxr.base.jobs import run_job
from cxr.workflow.jobs import job
from cxr.workflow.plan import Plan

plan = Plan(json.loads(sys.argv[1]), [])
params = job("imaging.boxes.detect_boxes.run_shard", f"imaging.boxes.{plan.engines['boxes']}")
print(params["code"], plan.environments["boxes"], plan.gpus["boxes"])
run_job(SimpleNamespace(
    log=["job.log"], rule="boxes_shard", threads=1, resources={}, wildcards={"shard": "00"}, config={"compute": {}},
    input=plan.engine_files["boxes"] | {"frames": "frames.h5"},
    output={"output": "boxes.parquet", "excluded": "excluded.parquet"},
    params=params | {"options": plan.options["boxes"]},
))
"""


@pytest.fixture
def package(tmp_path) -> Path:
    """A folder with an installed package."""
    folder = tmp_path / "site"
    for name, text in {
        "corner_boxes/__init__.py": ENGINE,
        "corner_boxes/settings.py": SETTINGS,
        "corner_boxes-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: corner-boxes\nVersion: 1.2\n",
        "corner_boxes-1.2.dist-info/entry_points.txt": POINTS,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(package: Path, folder: Path, *words: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (package, ROOT / "scripts")))}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)


def boxes(**corner: object) -> dict:
    return {"boxes": {"engine": "corner", "corner": corner}}


def test_a_job_runs_the_engine_of_an_installed_package(package, tmp_path):
    write_frames(tmp_path / "frames.h5", 2)
    (tmp_path / "list.txt").touch()
    settings = json.dumps(boxes(side=32, listing="list.txt"))
    done = run(package, tmp_path, "-c", JOB, settings)
    assert done.returncode == 0, done.stderr
    code, environment, gpus = done.stdout.split()
    table = pl.read_parquet(tmp_path / "boxes.parquet")
    assert table["image_id"].to_list() == ["i0", "i1"]
    assert table.select("x1", "y1", "x2", "y2", "class_name").unique().rows() == [(0.0, 0.0, 32.0, 32.0, "Nodule/Mass")]
    assert (environment, gpus) == (str(package / "corner_boxes/environment.yaml"), "0")
    with open(package / "corner_boxes/settings.py", "a") as file:
        file.write("LARGEST = 512\n")
    assert run(package, tmp_path, "-c", JOB, settings).stdout.split()[0] != code


def test_an_environment_without_the_package_is_one_sentence():
    with pytest.raises(UserError, match=r"boxes\.engine is 'corner', which this environment lacks"):
        with_installed_engines(BoxesSettings, "boxes", "corner")


@pytest.mark.parametrize(
    ("settings", "words"),
    every(
        3,
        [
            (boxes(), ""),
            (boxes(side=0), "boxes.corner.side is 0"),
            (boxes(size=1), "boxes.corner.size is not a setting"),
            ({"boxes": {"engine": "cornr"}}, "boxes.engine is 'cornr', which is wrong: choose 'lite', 'table', "),
            ({"organs": {"engine": "corner"}}, "organs.engine is 'corner', which is wrong"),
        ],
    ),
)
def test_its_settings_are_checked_as_those_of_a_built_in_engine(package, tmp_path, settings, words):
    folder = write_settings(tmp_path / "run", settings)
    command = ["-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", "mine.yaml", "--cores", "1"]
    done = run(package, folder, *command, "-n", "--quiet", "--", "boxes")
    assert bool(done.returncode) == bool(words), done.stderr
    assert words in done.stderr
    if "cornr" in words:
        assert "'corner'" in done.stderr
