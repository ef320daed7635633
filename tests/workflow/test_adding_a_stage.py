"""A stage is added in at most six places: one is added here to a copy of the repository, checked, and run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, snakemake, write_settings
from whole_runs import copy_repository

RULE = """# Tally: how often a person has asked.


rule tally_count:
    output:
        counted="results/tally/count.txt",
    log:
        "logs/tally/count.log",
    benchmark:
        "results/benchmarks/tally/count.tsv"
    conda:
        "../../envs/gather.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(500),
        runtime=minutes(5),
    params:
        **job("reporting.tally.count"),
        options=PLAN.settings.tally.as_dict(),
    message:
        "Tally"
    script:
        "../../scripts/job.py"


rule tally:
    input:
        "results/tally/count.txt",
"""
CODE = '''"""The stage tally: writes a number."""

from pathlib import Path

from cxr.base.settings import Section, key


class TallySettings(Section):
    """A number."""

    most: int = key(3, "The number.", ge=1)


def count(counted: str, options: TallySettings) -> None:
    """Write the number to ``counted``."""
    Path(counted).write_text(str(options.most))
'''
SETTINGS = "scripts/cxr/workflow/settings"
NEW = {"rules/reporting/tally.smk": RULE, "scripts/cxr/reporting/tally.py": CODE}
"""Files that the stage brings."""
CHANGED = {
    f"{SETTINGS}/__init__.py": (
        '    review: ReviewSettings = key(',
        '    tally: TallySettings = key(TallySettings, "A number.")\n    review: ReviewSettings = key(',
    ),
    "resources/stages.yaml": (
        "\ncohort:\n",
        "\ntally:\n  wing: reporting\n  text: Writes a number.\ncohort:\n",
    ),
    "Snakefile": (
        'include: "rules/reporting/release.smk"\n',
        'include: "rules/reporting/release.smk"\ninclude: "rules/reporting/tally.smk"\n',
    ),
    "pyproject.toml": ("review | release", "review | release | tally"),
}  # fmt: skip
"""Files that it changes: what stands there, and what shall."""


def places() -> set[str]:
    """Return the places: the settings of a stage are one, whatever files they take."""
    return {SETTINGS if name.startswith(SETTINGS) else name for name in (*NEW, *CHANGED)}


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A copy of the repository with one stage more."""
    clone = copy_repository(tmp_path_factory.mktemp("stage") / "clone")
    (clone / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    for name, text in NEW.items():
        (clone / name).write_text(text)
    for name, (old, new) in CHANGED.items():
        text = (clone / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, (name, old)
        (clone / name).write_text(text.replace(old, new), encoding="utf-8")
    path = clone / SETTINGS / "__init__.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("\nclass Settings(", "\nfrom cxr.reporting.tally import TallySettings\n\n\nclass Settings(")
    )
    return clone


@pytest.mark.slow
def test_the_stage_runs_with_its_settings(clone, tmp_path):
    run = write_settings(tmp_path, {"tally": {"most": 7}})
    snakemake(run, "tally", root=clone)
    assert (run / "results/tally/count.txt").read_text() == "7"
    write_settings(tmp_path, {"tally": {"most": 0}})
    done = snakemake(run, "tally", root=clone, check=False)
    assert "tally.most is 0, which is wrong" in done.stderr


def test_the_contract_knows_its_room(clone):
    command = [Path(sys.executable).parent / "lint-imports", "--config", clone / "pyproject.toml", "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(clone / "scripts")}
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_these_are_the_places_that_the_docs_list():
    page = (ROOT / "docs/how-to/development.md").read_text(encoding="utf-8")
    section = page.partition("## Adding a stage\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\d\. `(.+?)`", section, flags=re.M)
    wildcards = {"rules/reporting/tally.smk": "rules/<wing>/<stage>.smk", SETTINGS: f"{SETTINGS}/"}
    wildcards |= {"scripts/cxr/reporting/tally.py": "scripts/cxr/<wing>/<stage>/"}
    assert sorted(listed) == sorted(wildcards.get(place, place) for place in places())
    assert len(listed) <= 6
