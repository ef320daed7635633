"""Filling the prompts in ``resources/prompts.yaml`` with texts of reports.

A report is data. Its text cannot end its own turn (brackets of chat templates are replaced) and cannot fill another
slot. A text that addresses the model is not sent at all.
"""

from functools import cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES
from cxr.language.reports.llm.answers import FIELDS
from cxr.llm import guards
from cxr.llm.guards import neutralize
from cxr.llm.messages import Messages, fill_prompt

RESOURCE_FILES = ("prompts.yaml",)


@cache
def _prompts() -> dict:
    return yaml.safe_load(Path(RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))


def addresses_the_model(text: str) -> bool:
    """True if a text gives orders to a language model, or contains marks of a chat template or an answer."""
    return guards.addresses_the_model(text, FIELDS)


def structuring_messages(sentences: list[str]) -> Messages:
    """Ask for the findings of a section's sentences, numbered from 1 (Figure 9)."""
    report = "\n".join(f"{number}. {neutralize(text)}" for number, text in enumerate(sentences, start=1))
    return fill_prompt(_prompts()["structuring"], report=report)


def category_messages(location: str | None, entity: str) -> Messages:
    """Ask for the category of a location (Figure 10, step 1)."""
    return fill_prompt(_prompts()["category"], location=_place(location), entity=neutralize(entity))


def zone_messages(location: str, entity: str) -> Messages:
    """Ask for the zone labels of a location in the lungs (Figure 10, step 2)."""
    return fill_prompt(_prompts()["zones"], location=_place(location), entity=neutralize(entity))


def _place(location: str | None) -> str:
    return _prompts()["no_location"] if location is None else neutralize(location)
