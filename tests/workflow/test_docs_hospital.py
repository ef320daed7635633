"""The page for a hospital's first afternoon: short, and its settings and files exist."""

import re

import yaml

from conftest import ROOT
from cxr.workflow.settings import document, read

PAGE = (ROOT / "docs/getting-started/your_hospital.md").read_text(encoding="utf-8")


def test_the_page_is_short():
    assert len(PAGE.split()) <= 900


def test_the_twelve_settings_exist():
    names = re.findall(r"^\| `([a-z_.]+)` \|", PAGE.partition("| setting |")[2], re.MULTILINE)
    assert len(names) == 12
    keys = [key for key, *_ in document.reference_rows()]
    assert [name for name in names if not any(key.startswith(name) for key in keys)] == []


def test_its_settings_file_is_accepted():
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    settings = read(yaml.safe_load(block))
    assert settings.semisyn.placement.most_per_image == 4


def test_a_rule_makes_each_of_its_files():
    rules = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "rules").rglob("*.smk"))
    names = re.findall(r"`results/(\S+)`", PAGE)
    assert len(names) > 4
    assert [name for name in names if f'"results/{name}"' not in rules] == []
