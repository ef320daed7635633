"""Chat messages from a prompt and what goes into its slots; what goes in is data and stays in its slot."""

import re
from collections.abc import Mapping

_HARMLESS = str.maketrans("<>[]{}", "‹›()()")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

Messages = list[dict[str, str]]
"""Chat messages: ``role`` and ``content``."""


def harmless(text: str) -> str:
    """Return a text that cannot end its own turn: no bracket of a chat template survives, and no control character."""
    return _CONTROL.sub(" ", text).translate(_HARMLESS)


def filled(prompt: Mapping[str, str], **slots: str) -> Messages:
    """Return the messages of a prompt (``system``, ``user``), the user's with its slots ``{name}`` filled."""
    # one pass: a text that holds "{entity}" is not filled in turn
    user = re.sub(r"\{(\w+)\}", lambda match: slots.get(match.group(1), match.group()), prompt["user"])
    return [{"role": "system", "content": prompt["system"]}, {"role": "user", "content": user}]
