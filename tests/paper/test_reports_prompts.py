"""The prompts of the language models equal the paper's figures in the specification, letter by letter."""

import re
from pathlib import Path

import pytest
import yaml

from cxr.base.vocabulary import CATEGORIES, ZONE_LABELS
from cxr.workflow.settings import Settings

ROOT = Path(__file__).parents[2]
OURS = re.compile(r"The (?:report is|terms are) data: ")
"""Where a prompt's own words begin: that what is read is data, and the format of the answer."""
CORRECTED = {'cardiomediastinum (spelt "cardiomeastinum")': "cardiomediastinum"}
"""The figure's slips, which resources/prompts.yaml puts right and says so."""
NOTES = (" (15 labels)", "**Output format**: return only the mapped category name or None.")
"""What is no part of a prompt: a note of the transcription, and the format that ours takes the place of."""


def words(text: str) -> list[str]:
    """The words of a text: without bold type and line ends."""
    return text.replace("**", "").split()


def figures(specification: str) -> dict[str, str]:
    """{prompt: its text} as the specification has Figures 9 and 10; its tables as "name: examples" lines."""
    parts = {
        part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in re.split(r"^## ", specification, flags=re.M)[1:]
    }
    nine, one, two = (next(part for head, part in parts.items() if key in head) for key in ("9", "step 1", "step 2"))
    opening = one.strip().split("\n\n")[0]
    found = {
        "structuring": nine.split("*Not in the figure")[0],
        "category": re.sub(r"^\| (.+?) \| (.+?) \|$", r"\1: \2", _without_head(one), flags=re.M),
        "zones": two.replace("Same opening paragraph as step 1.", opening).replace("categories**:", "categories**"),
    }
    for name, text in found.items():
        for note in NOTES:
            text = text.replace(note, "")
        for spelt, right in CORRECTED.items():
            text = text.replace(spelt, right)
        found[name] = text
    return found


def _without_head(part: str) -> str:
    return re.sub(r"^\| category \|.*\n\|---\|---\|\n", "", part, flags=re.M)


@pytest.fixture(scope="module")
def system_prompts() -> dict[str, str]:
    """{prompt: what the model is told as its system}."""
    held = yaml.safe_load((ROOT / "resources/prompts.yaml").read_text(encoding="utf-8"))
    return {name: held[name]["system"] for name in ("structuring", "category", "zones")}


@pytest.mark.parametrize("name", ["structuring", "category", "zones"])
def test_a_prompt_is_the_figure_s_letter(name, system_prompts, shared):
    figure = figures((shared / "spec/ils_prompts.md").read_text(encoding="utf-8"))[name]
    own = OURS.search(system_prompts[name])
    assert own
    assert words(system_prompts[name][: own.start()]) == words(figure)


def test_the_prompts_name_every_category_and_label(system_prompts):
    assert [name for name in CATEGORIES if f"\n{name}: " not in system_prompts["category"]] == []
    labels = next(line for line in system_prompts["zones"].splitlines() if line.startswith("right upper zone lung, "))
    assert sorted(labels.split(", ")) == sorted(ZONE_LABELS)


def test_every_departure_from_the_figures_is_told_in_the_file():
    told = (ROOT / "resources/prompts.yaml").read_text(encoding="utf-8").split("\nstructuring:")[0]
    for what in ("cardiomeastinum", "Output format: return only", "JSON", "None", "bold", "slots"):
        assert what in told


def test_the_edit_s_prompt_is_the_paper_s():
    assert Settings().anomaly.radedit.prompt == "No acute cardiopulmonary process"
