"""Reading the YAML files in ``resources/``, and building regular expressions from their phrases."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cxr.base.paths import RESOURCES

SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's safe loader, in the version that uses libyaml and is ten times as fast, if PyYAML was built with libyaml."""
_TEXT_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


@cache
def load_resource(name: str) -> Any:
    """Return the content of a file in ``resources/``, such as "radvlm/labels.yaml". Do not modify it: it is cached."""
    return yaml.load((Path(RESOURCES) / name).read_text(encoding="utf-8"), SAFE_LOADER)


@cache
def load_texts(name: str) -> Any:
    """Return the content of a file in ``resources/`` with all values as text, so that "no" is not read as False."""
    return yaml.load((Path(RESOURCES) / name).read_text(encoding="utf-8"), _TEXT_LOADER)


def phrase_pattern(phrases: Iterable[str], gap: str = r"\s+") -> str:
    """Return a regular expression for any of the phrases, longest first. ``gap``: pattern between two words."""
    ordered = sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    return "(?:" + "|".join(gap.join(map(re.escape, phrase.split())) for phrase in ordered) + ")"
