"""Every command in README and docs works: Snakemake's are planned, the options of others exist."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from conftest import MAKEFILE, ROOT, write_settings
from cxr.imaging.weights.catalogue import list_placed_files
from doc_commands import Command, commands
from openi_tree import write_image, write_projections, write_report
from planner import Planner

COMMANDS = commands()
STUDY = "<study_id>"
NAMED = {
    "thresholds": {"grid": {"general": {"ano": [0.05, 0.10], "conf": [], "signal": [0.1, 0.2]}}},
    "training": {
        "runs": {
            "default": {},
            "half": {"thresholds": "half"},
            "rosalia7b": {"weights": "rosalia", "trained": False},
            "lisa7b": {"weights": "lisa", "trained": False},
        }
    },
}
"""Settings of the sets and runs that the pages ask for by name."""
SKETCHES = re.compile(r"[…]|\b(?:RULE|TARGET)\b|\.\.\.")
"""Marks of a command that stands for several."""


def of(*programs: str) -> list[Command]:
    return [command for command in COMMANDS if command.words[0] in programs]


def test_the_pages_hold_commands():
    assert len(of("snakemake")) > 30
    assert len(of("make")) > 10
    assert len(of("python", ".venv/bin/python")) > 10
    assert "review_merge" in {word for command in COMMANDS for word in command.words}


def test_every_target_of_make_exists():
    rules = re.findall(r"^([\w.-]+):(?!=)", MAKEFILE, re.MULTILINE)
    for command in of("make"):
        targets = [word for word in command.words[1:] if "=" not in word and word not in ("-f", "experiments/Makefile")]
        assert {*targets} <= set(rules), command


@pytest.mark.parametrize("command", [each for each in of("make") if any("=" in word for word in each.words)], ids=str)
def test_make_takes_the_variables_that_the_docs_give(command):
    done = subprocess.run(
        ["make", "--dry-run", *command.words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_script_exists():
    for command in of("python", ".venv/bin/python"):
        assert command.words[1] == "-m" or (ROOT / command.words[1]).is_file(), command


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted({command.words[1] for command in of("python", ".venv/bin/python")}))
def test_a_script_knows_the_options_that_the_docs_name(script):
    if script == "-m":
        return
    done = subprocess.run([sys.executable, script, "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command in of("python", ".venv/bin/python"):
        if command.words[1] == script:
            for option in (word.partition("=")[0] for word in command.words[2:] if word.startswith("--")):
                assert option in done.stdout, command


@pytest.fixture(scope="module")
def place(tmp_path_factory, workflow_run):
    """A finished run on the slice, and what the commands name beside it."""
    folder = tmp_path_factory.mktemp("place") / "run"
    shutil.copytree(workflow_run, folder, symlinks=True)
    (folder / "sheet.csv").touch()  # review_merge is for who has some
    slice_ = json.loads((folder / "mine.yaml").read_text()) | {"review": {"sheets": [str(folder / "sheet.csv")]}}
    sheet = str(folder / "sheet.csv")  # also people's boxes, a detector's and readers' sheets
    semisyn = {
        "references": {"people": {"format": "nih", "path": sheet}},
        "detection": {"predictions": {"real": {"people": [sheet]}}},
        "readers": {"reference": "people", "sheets": [sheet]},
    }
    for name in ("mine.yaml", "paper.yaml", "more.yaml", "card24.yaml"):
        (folder / name).write_text(json.dumps(slice_))
    for name in ("named.yaml", "published.yaml"):
        (folder / name).write_text(json.dumps(slice_ | NAMED | {"semisyn": semisyn}))
    for name in (one for names in list_placed_files("weights").values() for one in names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    table = folder / "results/ablation/points.tsv"  # `snakemake ablation` comes before its report
    table.parent.mkdir(exist_ok=True)
    for name in ("points.tsv", "curves.png", "map.png"):
        (table.parent / name).touch()
    for name in ("real", "my-cohort"):
        write_settings(folder / name, {})
    write_report(folder / "openi", 1, ["CXR1_1_IM-0001-3001"])
    write_image(folder / "openi", "CXR1_1_IM-0001-3001.png")
    write_projections(folder / "openi", [("1_IM-0001-3001.dcm.png", "Frontal")])
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copy(next(folder.glob("results/phantom/**/*.dcm")), folder / "chest.dcm")
    return folder


@pytest.fixture(scope="module")
def planner():
    with Planner(ROOT) as started:
        yield started


@pytest.mark.slow
def test_snakemake_plans_every_command(place, planner):
    """A target behind ``--configfile mine.yaml`` would be taken for a second settings file."""
    study = re.search(r'"study_id": ?"([^"]+)"', min(place.glob("results/reports/*.jsonl")).read_text())[1]
    plans = {}
    for command in of("snakemake"):
        words = tuple(word.replace(STUDY, study) for word in command.words[1:])
        if not any(SKETCHES.search(word) for word in words):
            plans.setdefault(words, command)
    failed = {}
    for words, command in plans.items():
        status, text = planner.ask(
            ["--snakefile", str(ROOT / "Snakefile"), *_here(words, place), "--dry-run", "--quiet", "all"]
        )
        if status:
            failed[str(command)] = text[-600:]
    assert not failed, "\n".join(f"{name}\n    {text}" for name, text in failed.items())
    assert len(plans) > 20


def _here(words: tuple[str, ...], place) -> list[str]:
    """Return the words with the paths of settings files below the place, and the working directory there."""
    found = [str(place / word) if word.endswith(".yaml") else word for word in words]
    if "--sdm" in found:  # conda is not wanted here: which jobs there are does not depend on it
        where = found.index("--sdm")
        found = found[:where] + found[where + 2 :]
    found = [word for word in found if word != "apptainer"]
    if "--profile" in found:
        found += ["--sdm", "env-modules"]
    if "--configfile" not in found:
        found += ["--configfile", str(place / "named.yaml")]
    if "--directory" in found:
        where = found.index("--directory") + 1
        found[where] = str(place / found[where])
    else:
        found += ["--directory", str(place)]
    return found if "--cores" in found or "--profile" in found else [*found, "--cores", "2"]
