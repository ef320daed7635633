"""Containers: the environments resolve, the locks hold their pins, and Snakemake finds them in the image.

Apptainer is not needed but for the last test: where Snakemake calls it, a stand-in notes the call and runs the command.
What an edited environment runs again is tried with a stand-in for conda, which a dry run only asks who it is.
"""

import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake.deployment.conda as deployment
from snakemake.sourcecache import LocalSourceFile

import conftest
from conftest import ROOT, every, stand_in, write_settings
from cxr.base.source_files import write_states
from planner import Planner
from whole_runs import copy_repository

spec = importlib.util.spec_from_file_location("containers_make", ROOT / "containers" / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

NAMES = make.environments()
DEFINITION = ROOT / "containers" / "cxr-ils.def"


def normal(requirement: str) -> str:
    name, version = requirement.split("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def pins(text: str) -> set[str]:
    return {normal(found) for found in re.findall(r"^([\w.-]+==[^\s;\\]+)", text, re.M)}


def asked(name: str) -> set[str]:
    return {normal(requirement) for requirement in make.dependencies(name)[1]}


def folders() -> dict[str, str]:
    """Return {environment: folder} of the definition."""
    calls = re.findall(r"^    make_env (\S+) (\S+) python=3\.11 pip$", DEFINITION.read_text(), re.M)
    return {name: f"{make.PREFIX}/{digest}" for name, digest in calls}


def test_the_definition_and_the_locks_are_those_of_the_environments():
    assert DEFINITION.read_text() == make.definition(NAMES, "containers/cxr-ils.def"), "run `make containers`"
    assert {path.stem for path in DEFINITION.parent.glob("*.lock")} == set(NAMES) == folders().keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_holds_what_its_environment_pins(name):
    text = (ROOT / "containers" / f"{name}.lock").read_text()
    assert asked(name) <= pins(text), "run `make containers`"
    packages = re.split(r"\n(?=\w)", text)
    assert len(packages) == 1 + len(pins(text))  # a comment, then a package each
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", package) for package in packages[1:])


@pytest.mark.parametrize("name", NAMES)
def test_folders_are_where_snakemake_looks(name, monkeypatch):
    monkeypatch.setattr(deployment, "Conda", lambda **_: SimpleNamespace(platform="linux-64"))
    cache = SimpleNamespace(
        exists=lambda file: os.path.exists(file.get_path_or_uri(secret_free=True)),
        open=lambda file, _: io.BytesIO(Path(file.get_path_or_uri(secret_free=True)).read_bytes()),
    )
    workflow = SimpleNamespace(
        sourcecache=cache, deployment_settings=SimpleNamespace(apptainer_args=""), runtime_paths=[]
    )
    image = SimpleNamespace(is_containerized=True, url="cxr-ils.sif")
    env = deployment.Env(workflow, env_file=LocalSourceFile(str(make.ENVS / f"{name}.yaml")), container_img=image)
    assert env.address == folders()[name]


def test_an_environment_that_is_pinned_or_finished_by_a_script_has_another_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(make, "ENVS", tmp_path)
    digests = set()
    for ending in ("yaml", "linux-64.pin.txt", "post-deploy.sh"):
        (tmp_path / f"a.{ending}").write_text(ending)
        digests.add(make.content_hash("a"))
    assert len(digests) == 3


STAND_IN = """#!{python}
import json, os, re, subprocess, sys
from pathlib import Path

call = sys.argv[1:]
if call == ["--version"]:
    sys.exit(print("apptainer version 1.3.6"))
command, image = call[-1], call[-4]
print(json.dumps([image, command]), file=open({log!r}, "a"))
if command == "conda info --json":
    sys.exit(print(json.dumps({{"conda_prefix": "/opt/conda", "platform": "linux-64"}})))
if command == "type conda":
    sys.exit(print("conda is /opt/conda/bin/conda"))
if command == "conda --version":
    sys.exit(print("conda 25.3.0"))
if there := re.fullmatch(r"\\[ -d '(.*)' \\]", command):
    sys.exit(there[1] not in {folders!r})
activated = re.match(r"source /opt/conda/bin/activate '(.*?)'; ", command)
path = str(Path({python!r}).parent) + ":" + os.environ["PATH"]
sys.exit(subprocess.run(["bash", "-c", command[activated.end():]], env=os.environ | {{"PATH": path}}).returncode)
"""


@pytest.fixture
def calls(tmp_path, monkeypatch) -> Path:
    """Put a stand-in for apptainer on the path whose image holds the definition's folders; return the log of calls."""
    log, tool = tmp_path / "calls.jsonl", tmp_path / "bin" / "apptainer"
    stand_in(tool, STAND_IN.format(python=sys.executable, log=str(log), folders=sorted(folders().values())))
    tool.with_name("singularity").symlink_to(tool)  # as apptainer's own packages do; a dry run calls it by that name
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return log


def in_container(directory: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
    """Run the workflow with the environments of an image."""
    (directory / "cxr-ils.sif").touch()
    # without the base path Snakemake asks a conda outside the image for its own
    deployed = ("--sdm", "conda", "apptainer", "--conda-base-path", "/opt/conda")
    return conftest.snakemake(directory, *arguments, *deployed, check=check)


SETTINGS = {"phantom": {"subjects": 6, "studies": 9}, "compute": {"container": "cxr-ils.sif"}}


@pytest.mark.slow
def test_a_rule_runs_in_its_environment_in_the_image(tmp_path, calls):
    directory = write_settings(tmp_path / "run", SETTINGS)
    in_container(directory, "phantom")
    assert (directory / "results/phantom/manifest.csv").is_file()
    made = [json.loads(line) for line in calls.read_text().splitlines()]
    assert {image for image, _ in made} == {"cxr-ils.sif"}
    ran = [command for _, command in made if "activate" in command]
    assert len(ran) == 1
    assert f"activate '{folders()['phantom']}'" in ran[0]
    # on the second day, and in another folder, nothing is done again
    shutil.copytree(directory, moved := tmp_path / "moved", symlinks=True)
    for place in (directory, moved):
        assert "Nothing to be done" in in_container(place, "phantom", "--dry-run").stdout


@pytest.mark.slow
def test_an_image_of_other_environments_is_noticed(tmp_path, calls):
    tool = tmp_path / "bin" / "apptainer"
    tool.write_text(tool.read_text().replace(folders()["phantom"], "/conda-envs/of-another-day"))
    done = in_container(write_settings(tmp_path / "run", SETTINGS), "phantom", check=False)
    assert done.returncode != 0
    assert "Unable to find environment in container image" in done.stderr


def test_a_missing_image_is_one_sentence(tmp_path):
    directory = write_settings(tmp_path / "run", SETTINGS)
    done = conftest.snakemake(directory, "phantom", "--dry-run", check=False)
    assert "cxr-ils: compute.container: there is no file 'cxr-ils.sif': correct the path" in done.stderr


def test_without_an_image_no_rule_has_one(tmp_path):
    directory = write_settings(tmp_path / "run", SETTINGS | {"compute": {}})
    done = conftest.snakemake(directory, "phantom", "--dry-run", "--sdm", "apptainer")
    assert "singularity" not in (done.stdout + done.stderr).lower()


CONDA = """#!/bin/sh
case "$*" in
  "info --json") echo '{"conda_prefix": "/opt/conda", "platform": "linux-64"}' ;;
  "--version") echo "conda 25.3.0" ;;
  "config --get channel_priority --json") echo '{"get": {"channel_priority": "strict"}}' ;;
  *) exit 1 ;;
esac
"""
CHANGED = "Software environment definition has changed since last execution"


@pytest.mark.slow
def test_an_edited_environment_runs_its_rules_again(tmp_path, monkeypatch):
    """Of a run of empty files that `snakemake --touch` takes for results made with conda."""
    tool = tmp_path / "bin" / "conda"
    stand_in(tool, CONDA)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    directory = write_settings(tmp_path / "run", {"cohort": {"shards": 1}})
    targets = "--", "results/organs/excluded.parquet", "results/anomaly/excluded.parquet"
    conda = "--profile", "slurm"
    with Planner(copy_repository(tmp_path / "clone")) as planner:

        def again(place: Path, *deployed: str) -> dict[str, str]:
            """Return {rule: reason} of a dry run."""
            jobs = planner.jobs(place, place / "mine.yaml", *deployed, *targets)
            return {job.rule: job.reason.partition(":")[0] for job in jobs}

        jobs = planner.jobs(directory, directory / "mine.yaml", *conda, *targets)
        for path in (directory / name for job in jobs for name in job.output):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        for path in (directory / "results/cohort/files_read").rglob("*.parquet"):
            write_states(path, [])
        planner.run(directory, directory / "mine.yaml", *conda, "--touch", "--forceall", *targets)
        environment = planner.root / "envs/organs-lite.yaml"
        before = environment.read_bytes()
        environment.write_bytes(before + b"      - tomli==2.0.1\n")
        followers = dict.fromkeys(("exclusions", "anomaly_shard"), "Input files updated by another job")
        assert again(directory, *conda) == {"organs_shard": CHANGED} | followers
        environment.write_bytes(before)
        moved = directory.rename(tmp_path / "moved")
        assert again(moved, *conda) == {}
        # an environment in another place is another one, and so is none
        elsewhere = *conda, "--conda-prefix", str(tmp_path / "elsewhere")
        assert again(moved, *elsewhere).keys() == again(moved).keys() == {job.rule for job in jobs}
        assert len(jobs) == 7
    with Planner(copy_repository(tmp_path / "another")) as planner:
        assert again(Path(shutil.copytree(moved, tmp_path / "copy")), *conda) == {}


def pip_settings() -> tuple[list[str], dict[str, str]]:
    """Return uv's arguments and environment for the package index that pip uses here."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    # later lines are those of the environment, which win
    found = dict(re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed.stdout, re.M))
    arguments = []
    for key, option in {
        "index-url": "--default-index",
        "extra-index-url": "--index",
        "find-links": "--find-links",
    }.items():
        for value in found.get(key, "").split():
            arguments += [option, value]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("UV_")}
    return arguments, environment | ({"SSL_CERT_FILE": found["cert"]} if "cert" in found else {})


def resolved(requirements: list[str]) -> subprocess.CompletedProcess:
    """Resolve requirements for Linux with Python 3.11 against pip's index."""
    arguments, environment = pip_settings()
    command = [make.find_uv_bin(), "pip", "compile", "--quiet", "--no-config", "--no-header", *make.TARGET]
    command += ["--index-strategy", "unsafe-best-match", *arguments, "-"]
    return subprocess.run(
        command,
        input="\n".join(requirements),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def index() -> None:
    """Skip where the package index cannot be reached."""
    done = resolved(["packaging"])
    if done.returncode:
        pytest.skip(f"no package index: {done.stderr.splitlines()[-1].strip()}")


@pytest.mark.parametrize("name", every(8, NAMES))
def test_every_environment_resolves(name, index):
    done = resolved(make.dependencies(name)[1])
    assert done.returncode == 0, done.stderr
    # a build of a version (1.0+cpu) is that version
    assert asked(name) <= pins(re.sub(r"\+\w+", "", done.stdout))


def test_what_cannot_be_had_does_not_resolve(index):
    assert resolved(["numpy==2.4.6", "numpy<2"]).returncode != 0


@pytest.mark.skipif(not shutil.which("apptainer"), reason="no apptainer")
def test_an_image_is_built(tmp_path):
    (tmp_path / "small.def").write_text(make.definition(["gather"], "small.def"))
    image = tmp_path / "small.sif"
    subprocess.run(["apptainer", "build", str(image), str(tmp_path / "small.def")], cwd=ROOT, check=True)
    python = f"{folders()['gather']}/bin/python"
    subprocess.run(["apptainer", "exec", str(image), python, "-c", "import hdf5plugin, polars"], check=True)
