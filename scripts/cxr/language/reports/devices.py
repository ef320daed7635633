"""Detection of medical devices in the sentences of a report, by word lists."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


def normalize_words(text: str) -> str:
    """Convert a text to lower-case words separated by single spaces."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def phrase_pattern(phrases: Iterable[str]) -> str:
    """Return a pattern that matches any of the phrases, the longest first, in a text of :func:`normalize_words`."""
    return "|".join(
        re.escape(normalize_words(phrase)) for phrase in sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    )


@dataclass(frozen=True)
class Devices:
    """Two patterns. ``device`` matches a device without a statement of its removal, ``denied`` a denied device."""

    device: re.Pattern
    denied: re.Pattern

    def are_stated_in(self, sentences: Iterable[str]) -> bool:
        """Return whether a sentence names a device and neither denies it nor states its removal."""
        return any(self.device.search(self.denied.sub("", normalize_words(sentence))) for sentence in sentences)


def compile_devices(words: Mapping[str, Sequence[str]]) -> Devices:
    """Compile the patterns from word lists with the keys devices, denied, between and gone.

    A device does not count if a phrase of ``gone`` follows it directly. It does not count either if a phrase of
    ``denied`` precedes it and only words of ``between`` or other devices are between the two.
    """
    device = rf"(?:{phrase_pattern(words['devices'])})(?:s|es)?"
    return Devices(
        device=re.compile(rf"\b{device}\b(?! (?:{phrase_pattern(words['gone'])})\b)"),
        denied=re.compile(
            rf"\b(?:{phrase_pattern(words['denied'])})(?: (?:{phrase_pattern(words['between'])}|{device}))* {device}\b"
        ),
    )
