"""docs/explanation/architecture.md: its files exist, its walks are short and only go down, and it lists every room."""

import re
import tomllib

import pytest

from conftest import ROOT

PAGE = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
WALKS = re.findall(r"^## (The walk of .+?)\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
FLOORS = [re.split(r" [|:] ", layer) for layer in CONTRACTS[0]["layers"]]


def floor_of(path: str) -> int:
    """Return how deep a file lies: a rule above everything, a resource below."""
    if not path.startswith("scripts/cxr/"):
        return -1 if path.startswith("rules/") else len(FLOORS)
    room = path.split("/")[2]
    return next(depth for depth, rooms in enumerate(FLOORS) if room in rooms)


def test_there_are_four_walks():
    assert [name.removeprefix("The walk of ") for name, _ in WALKS] == [
        "one image", "one threshold", "one report word", "one instruction",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), WALKS)
def test_a_walk_has_six_files_at_most_and_climbs_nowhere(name, text):
    path = re.findall(r"^\d+\. `([^`]+)`", text, re.MULTILINE)
    depths = [floor_of(file) for file in path]
    assert 1 < len(path) <= 6, name
    assert depths == sorted(depths), name
    assert depths[0] == -1


def test_every_file_that_the_page_names_is_there():
    named = re.findall(r"`((?:scripts|rules|resources|tests|profiles|envs)/[^`<…*]+)`", PAGE)
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists() and "<" not in path] == []


def test_every_room_of_the_contract_is_on_the_page():
    drawn = PAGE.split("```")[1]
    assert {room for rooms in FLOORS for room in rooms if f"{room}/" not in drawn} == set()


def test_additions_have_a_place():
    rows = re.findall(r"^\| (an? [\w ]+) \|", PAGE.split("## Where do I put")[1], re.MULTILINE)
    assert rows == [
        "an engine", "a lesion type", "a table", "a dataset format", "a source of RadVLM", "a metric", "a language",
        "a stage", "a system", "a cluster", "a language model",
    ]  # fmt: skip
