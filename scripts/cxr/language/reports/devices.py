"""Detection of medical devices in the sentences of a report, by word lists."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


def normalize_words(text: str) -> str:
    """Convert a text to lower-case words separated by single spaces, without punctuation."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def phrase_pattern(phrases: Iterable[str]) -> str:
    """Return a pattern that matches any of the phrases in the output of :func:`normalize_words`, the longest first."""
    return "|".join(
        re.escape(normalize_words(phrase)) for phrase in sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    )


@dataclass(frozen=True)
class Devices:
    """Patterns that find devices in a sentence. ``device`` matches a device that is not said to be removed, and
    ``denied`` a device whose absence is stated."""

    device: re.Pattern
    denied: re.Pattern

    def are_stated_in(self, sentences: Iterable[str]) -> bool:
        """Return whether any of the sentences names a device without denying it or stating its removal."""
        return any(self.device.search(self.denied.sub("", normalize_words(sentence))) for sentence in sentences)


def compile_devices(words: Mapping[str, Sequence[str]]) -> Devices:
    """Compile the patterns from word lists with the keys ``devices``, ``denied``, ``between`` and ``gone``. A device
    does not count if a phrase of ``gone`` ("removed") follows it directly. It does not count either if a phrase of
    ``denied`` ("no") precedes it and only words of ``between`` or other devices are between the two."""
    device = rf"(?:{phrase_pattern(words['devices'])})(?:s|es)?"
    return Devices(
        device=re.compile(rf"\b{device}\b(?! (?:{phrase_pattern(words['gone'])})\b)"),
        denied=re.compile(
            rf"\b(?:{phrase_pattern(words['denied'])})(?: (?:{phrase_pattern(words['between'])}|{device}))* {device}\b"
        ),
    )
