"""The generated table of stages names the targets of the workflow, and the README is short enough."""

import re

import parsed
from conftest import ROOT
from cxr.workflow.stages import STAGES


def test_the_table_of_stages_is_the_targets_in_order():
    rules = parsed.rules()
    targets = {name for name, rule in rules.items() if rule.target} - {"all"}
    assert {stage.name for stage in STAGES} == targets | {"weights"}
    for stage in STAGES:
        assert rules[stage.name].file.startswith(f"rules/{stage.wing}/"), stage


def test_the_wings_stand_in_the_order_of_the_snakefile():
    included = re.findall(r'^include: "rules/(\w+)/', (ROOT / "Snakefile").read_text(), re.MULTILINE)
    assert list(dict.fromkeys(stage.wing for stage in STAGES)) == list(dict.fromkeys(included))


def test_the_readme_has_at_most_700_words():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700
