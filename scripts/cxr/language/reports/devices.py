"""Detection of devices that the sentences of a report mention, by word lists."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


def normalize_words(text: str) -> str:
    """Convert a text to lower-case words separated by single spaces."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def phrase_pattern(phrases: Iterable[str]) -> str:
    """Return a pattern that matches any of the phrases, normalised by :func:`normalize_words`, the longest first."""
    return "|".join(
        re.escape(normalize_words(phrase)) for phrase in sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    )


@dataclass(frozen=True)
class Devices:
    """Patterns of a device that is not stated to be removed (``device``) and of a denied device (``denied``)."""

    device: re.Pattern
    denied: re.Pattern

    def are_stated_in(self, sentences: Iterable[str]) -> bool:
        """True if a sentence names a device and neither denies it nor states that it was removed."""
        return any(self.device.search(self.denied.sub("", normalize_words(sentence))) for sentence in sentences)


def compile_devices(words: Mapping[str, Sequence[str]]) -> Devices:
    """Compile the patterns from word lists with the keys devices, denied, between and gone.

    A device counts unless a phrase of ``denied`` precedes it, with only words of ``between`` and other devices in
    between, or a phrase of ``gone`` follows it directly.
    """
    device = rf"(?:{phrase_pattern(words['devices'])})(?:s|es)?"
    return Devices(
        device=re.compile(rf"\b{device}\b(?! (?:{phrase_pattern(words['gone'])})\b)"),
        denied=re.compile(
            rf"\b(?:{phrase_pattern(words['denied'])})(?: (?:{phrase_pattern(words['between'])}|{device}))* {device}\b"
        ),
    )
