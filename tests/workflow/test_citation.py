"""Files that GitHub and the Snakemake workflow catalog read: they are valid, and say what the project says."""

import re
import tomllib

import yaml

from conftest import ROOT


def read_yaml(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version_and_of_the_four_papers():
    citation = read_yaml("CITATION.cff")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert str(citation["version"]) == project["version"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert len(citation["references"]) == 4
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    for paper in citation["references"]:
        assert {"type", "title", "authors", "year"} <= paper.keys()
        assert paper.get("url", paper["title"]) in readme


def test_every_package_that_the_workflow_installs_has_hashes():
    """So pip refuses a package that has none, or other bytes."""
    text = (ROOT / "requirements/run.txt").read_text(encoding="utf-8").replace("\\\n", "")
    packages = re.findall(r"^[\w.-]+==.*$", text, re.MULTILINE)
    assert len(packages) > 50
    assert [package for package in packages if "--hash=sha256:" not in package] == []


def test_the_catalog_finds_what_it_asks_for():
    usage = read_yaml(".snakemake-workflow-catalog.yml")["usage"]
    assert usage.keys() == {"mandatory-flags", "software-stack-deployment"}
    assert usage["software-stack-deployment"]["conda"] is True
    assert (ROOT / "Snakefile").is_file()
    assert (ROOT / "config/README.md").is_file()
