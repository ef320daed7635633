"""Detecting devices that a report's sentences state, by lists of words."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


def normalize_words(text: str) -> str:
    """Return a text as lower-case words with one space between them."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def phrase_pattern(phrases: Iterable[str]) -> str:
    """Return a pattern of phrases in the form of :func:`normalize_words`, the longest first."""
    return "|".join(
        re.escape(normalize_words(phrase)) for phrase in sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    )


@dataclass(frozen=True)
class Devices:
    """Patterns of a device that is not stated to be removed, and of a denied device."""

    device: re.Pattern
    denied: re.Pattern

    def are_stated_in(self, sentences: Iterable[str]) -> bool:
        """True if a sentence names a device and neither denies it nor states that it was removed."""
        return any(self.device.search(self.denied.sub("", normalize_words(sentence))) for sentence in sentences)


def compile_devices(words: Mapping[str, Sequence[str]]) -> Devices:
    """Return the patterns of ``words``: devices, denied, between, gone.

    A device counts unless a phrase of ``denied`` precedes it, with only words of ``between`` and other devices in
    between, or one of ``gone`` follows it directly.
    """
    device = rf"(?:{phrase_pattern(words['devices'])})(?:s|es)?"
    return Devices(
        device=re.compile(rf"\b{device}\b(?! (?:{phrase_pattern(words['gone'])})\b)"),
        denied=re.compile(
            rf"\b(?:{phrase_pattern(words['denied'])})(?: (?:{phrase_pattern(words['between'])}|{device}))* {device}\b"
        ),
    )
