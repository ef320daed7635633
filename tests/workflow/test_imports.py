"""Arrows only point down and go round in no circle; the contract of pyproject.toml says so where one does not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from conftest import ROOT


def circles(graph: grimp.ImportGraph) -> list[str]:
    """Return the modules that import one another, round and round: a package is its ``__init__``."""
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while free := {module for module, others in left.items() if not others & left.keys()}:
        left = {module: others for module, others in left.items() if module not in free}
    while free := {module for module in left if not any(module in others for others in left.values())}:
        left = {module: others for module, others in left.items() if module not in free}
    return sorted(left)


def test_no_module_imports_itself_by_way_of_others():
    """To the module, where the contract looks at siblings: a package and a part of it can be a circle too."""
    assert circles(grimp.build_graph("cxr", cache_dir=None)) == []


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ({}, "0 broken"),
        ({"base/errors.py": "import cxr.geometry.boxes"}, "cxr.base is not allowed to import cxr.geometry"),
        ({"imaging/organs/quality.py": "import cxr.imaging.boxes"}, "not allowed to import cxr.imaging.boxes"),
        ({"newroom/__init__.py": ""}, "cxr.newroom"),
        (
            {"metrics/matching.py": "import cxr.metrics.masks", "metrics/masks.py": "import cxr.metrics.matching"},
            "No circles BROKEN",
        ),
        (
            {"ils/masks/algorithm.py": "import cxr.ils.masks.deep.inner", "ils/masks/deep/__init__.py": "",
             "ils/masks/deep/inner.py": "import cxr.ils.masks.algorithm"},
            "No circles BROKEN",
        ),
    ],
    ids=["as it is", "up a floor", "stage to stage", "a room with no place", "two modules", "a module and a part"],
)  # fmt: skip
def test_the_contract_says_what_leans_the_wrong_way(tmp_path, edits, said):
    shutil.copytree(ROOT / "scripts/cxr", tmp_path / "cxr", ignore=shutil.ignore_patterns("__pycache__"))
    for name, line in edits.items():
        path = tmp_path / "cxr" / name
        path.parent.mkdir(exist_ok=True)
        with open(path, "a") as file:
            file.write(f"\n{line}\n")
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run(
        [lint, "--config", ROOT / "pyproject.toml", "--no-cache"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert bool(done.returncode) == bool(edits), done.stdout
    assert said in done.stdout


def test_a_package_and_its_part_are_a_circle_too(tmp_path, monkeypatch):
    """What the contract does not see, and the first test here does."""
    (tmp_path / "roundabout/part").mkdir(parents=True)
    (tmp_path / "roundabout/__init__.py").write_text("import roundabout.part.inner\n")
    (tmp_path / "roundabout/part/__init__.py").touch()
    (tmp_path / "roundabout/part/inner.py").write_text("from roundabout import part\nimport roundabout\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert circles(grimp.build_graph("roundabout", cache_dir=None)) == ["roundabout", "roundabout.part.inner"]
