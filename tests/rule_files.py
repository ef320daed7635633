"""The rule files as texts: the rules that run something, their groups, and how many jobs of a group share one."""

import re

import yaml

from conftest import ROOT


def workflow_rules() -> dict[str, str]:
    """Return {rule: its text} of every rule with a script; of one made from another its own comes first."""
    found: dict[str, str] = {}
    rule = r"^(?:use rule (\w+) as|rule) (\w+)(?: with)?:\n(.*?)(?=^\w|\Z)"
    for path in sorted((ROOT / "rules").glob("*.smk")):
        for base, name, own in re.findall(rule, path.read_text(encoding="utf-8"), flags=re.M | re.S):
            found[name] = own + found.get(base, "")
    return {name: body for name, body in found.items() if "script:" in body}


def group_of(body: str) -> str:
    """Return the group of a rule as it is written, "" for none."""
    found = re.search(r"^    group:\n +(.*)$", body, flags=re.M)
    return found[1].strip('"') if found else ""


def stage_of(group: str) -> str:
    """Return the stage whose device names a group, "" for a group that has one name."""
    found = re.fullmatch(r'GROUPS\["(\w+)"\]', group)
    return found[1] if found else ""


def profile(name: str) -> dict:
    return yaml.safe_load((ROOT / f"profiles/{name}/config.yaml").read_text(encoding="utf-8"))


def group_sizes() -> dict[str, int]:
    return profile("slurm")["group-components"]
