"""Removing what a thinking model wrote before its answer."""

import re

_NAMES = r"think|thinking|thought|reasoning|reflection"
_MARKS = (
    (rf"<(?:{_NAMES})>", rf"</(?:{_NAMES})>"),
    (r"\[THINK\]", r"\[/THINK\]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi
    ("<unused94>", "<unused95>"),  # MedGemma
)
"""What opens and closes a block of reasoning, by family of models."""
_OPENING, _CLOSING = ("|".join(marks) for marks in zip(*_MARKS, strict=True))
_BLOCK = re.compile(rf"(?:{_OPENING})(?:(?!{_OPENING}).)*?(?:{_CLOSING})", re.DOTALL | re.IGNORECASE)
_BEFORE = re.compile(rf"\A(?:(?!{_OPENING}).)*(?:{_CLOSING})", re.DOTALL | re.IGNORECASE)


def without_reasoning(text: str) -> str:
    """Return an answer without its closed blocks of reasoning; one that never ends is left as it is.

    A mark that only closes ends a block that the prompt opened.
    """
    if not re.search(_CLOSING, text, re.IGNORECASE):
        return text
    return _BEFORE.sub("", _BLOCK.sub("", text)).strip()
