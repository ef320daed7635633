"""What keeps a text of others data: it fills its slot and no other, cannot end its turn, and gives the model no orders.

A stage asks a text only where :func:`addresses_the_model` says no, and puts it :func:`harmless` into its slot.
"""

import re
from functools import cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("llm/orders.yaml",)
INJECTION = "the text speaks to the model"
"""The problem of a text that is not asked."""

_HARMLESS = str.maketrans("<>[]{}", "‹›()()")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def harmless(text: str) -> str:
    """Return a text that cannot end its own turn: no bracket of a chat template survives, and no control character."""
    return _CONTROL.sub(" ", text).translate(_HARMLESS)


def in_slots(template: str, **slots: str) -> str:
    """Return a template with its slots ``{name}`` filled; a slot that nothing is given for stays."""
    # one pass: a text that holds "{entity}" is not filled in turn
    return re.sub(r"\{(\w+)\}", lambda match: slots.get(match.group(1), match.group()), template)


def addresses_the_model(text: str, fields: tuple[str, ...] = ()) -> bool:
    """Tell whether a text gives orders to a language model or holds the marks of a chat template or of an answer.

    ``fields``: names of the answer's fields, which no text of a person holds in quotes before a colon.
    """
    return _orders(fields).search(text) is not None


@cache
def _orders(fields: tuple[str, ...]) -> re.Pattern:
    patterns = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    if fields:
        patterns = [*patterns, rf"[\"'](?:{'|'.join(map(re.escape, fields))})[\"']\W*:"]
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)
