"""The generated table of stages names the targets of the workflow, and the README is short enough."""

import re

import parsed
from conftest import ROOT
from cxr.base.resources import load_resource

WING_OF = {name: stage["wing"] for name, stage in load_resource("stages.yaml").items()}


def test_the_table_of_stages_is_the_targets_in_order():
    rules = parsed.rules()
    targets = {name for name, rule in rules.items() if rule.target} - {"all"}
    assert WING_OF.keys() == targets | {"weights"}
    for stage, wing in WING_OF.items():
        assert rules[stage].file.startswith(f"rules/{wing}/"), stage


def test_the_wings_stand_in_the_order_of_the_snakefile():
    included = re.findall(r'^include: "rules/(\w+)/', (ROOT / "Snakefile").read_text(), re.MULTILINE)
    assert list(dict.fromkeys(WING_OF.values())) == list(dict.fromkeys(included))


def test_the_readme_has_at_most_700_words():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700
