"""Guards against prompt injection: a foreign text fills only its slot, cannot end its turn and gives no orders.

A stage asks about a text only if :func:`addresses_the_model` is false, and fills its slot with :func:`harmless` text.
"""

import re
from functools import cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("llm/orders.yaml",)
INJECTION = "the text speaks to the model"
"""The problem of a text that is not sent because it addresses the model."""

_HARMLESS = str.maketrans("<>[]{}", "‹›()()")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def harmless(text: str) -> str:
    """Return a text that cannot end its own turn: without chat template brackets and control characters."""
    return _CONTROL.sub(" ", text).translate(_HARMLESS)


def in_slots(template: str, **slots: str) -> str:
    """Return a template with its slots ``{name}`` filled; a slot without a value stays."""
    # one pass: a slot inside a filled text, such as "{entity}", is not filled
    return re.sub(r"\{(\w+)\}", lambda match: slots.get(match.group(1), match.group()), template)


def addresses_the_model(text: str, fields: tuple[str, ...] = ()) -> bool:
    """Tell whether a text gives orders to a language model or holds the marks of a chat template or of an answer.

    ``fields``: names of the answer's fields, which no human text holds in quotes before a colon.
    """
    return _orders(fields).search(text) is not None


@cache
def _orders(fields: tuple[str, ...]) -> re.Pattern:
    patterns = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    if fields:
        patterns = [*patterns, rf"[\"'](?:{'|'.join(map(re.escape, fields))})[\"']\W*:"]
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)
