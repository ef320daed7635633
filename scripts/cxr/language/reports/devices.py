"""Whether a report's sentence says that a device is there, by lists of words."""

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
    """Patterns of a device that is not said to be removed, and of one that is denied."""

    device: re.Pattern
    denied: re.Pattern

    def told_in(self, sentences: Iterable[str]) -> bool:
        """Tell whether a sentence names a device that it neither denies nor says to be removed."""
        return any(self.device.search(self.denied.sub("", normalize_words(sentence))) for sentence in sentences)


def compile_devices(words: Mapping[str, Sequence[str]]) -> Devices:
    """Return the patterns of ``words``: devices, denied, between, gone.

    A device counts unless a phrase of ``denied`` stands before it, with nothing but words of ``between`` and other
    devices between them, or one of ``gone`` right after it.
    """
    device = rf"(?:{phrase_pattern(words['devices'])})(?:s|es)?"
    return Devices(
        device=re.compile(rf"\b{device}\b(?! (?:{phrase_pattern(words['gone'])})\b)"),
        denied=re.compile(
            rf"\b(?:{phrase_pattern(words['denied'])})(?: (?:{phrase_pattern(words['between'])}|{device}))* {device}\b"
        ),
    )
