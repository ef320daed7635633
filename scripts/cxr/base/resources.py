"""Reading the YAML files of ``resources/``, and patterns of their phrases."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cxr.base.paths import RESOURCES


@cache
def load_resource(name: str) -> Any:
    """Return the content of a file of ``resources/``, such as "radvlm/labels.yaml"; it is not to be changed."""
    return yaml.safe_load((Path(RESOURCES) / name).read_text(encoding="utf-8"))


@cache
def load_texts(name: str) -> Any:
    """Return the same with every value as text: "no" is a word, not a truth value."""
    return yaml.load((Path(RESOURCES) / name).read_text(encoding="utf-8"), yaml.BaseLoader)


def phrase_pattern(phrases: Iterable[str], gap: str = r"\s+") -> str:
    """Return a pattern of any of the phrases, the longest first, with the pattern ``gap`` between their words."""
    ordered = sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    return "(?:" + "|".join(gap.join(map(re.escape, phrase.split())) for phrase in ordered) + ")"
