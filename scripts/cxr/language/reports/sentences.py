"""Splitting of a report section into sentences, with regard to abbreviations, list numbers and wrapped lines."""

import re
from functools import lru_cache

_END = re.compile(r"[.!?]+[\"')\]]*(?=\s|$|[A-Z])|\n[ \t]*\n|\n(?=[ \t]*(?:\d{1,2}[.)]|[-*•])[ \t])")
_ENUMERATOR = re.compile(r"(?:\(?\d{1,2}[.)]+|[-*•]+)(?=\s|[A-Z]|$)")
_ABBREVIATION = re.compile(
    r"(?:\b(?:dr|drs|mr|mrs|ms|vs|rt|lt|approx|e\.g|i\.e|etc|st|ca|cf|fig|resp)|\b[ap]\.m|\b[a-z])$", re.I
)
_WORD = re.compile(r"\w")


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Return the characters [start, end) of each sentence in ``text``. A full stop inside a number, after an
    abbreviation or after a list number does not end a sentence. A blank line or a new list item ends it. List numbers
    are not part of a sentence. A piece without a letter or digit is no sentence."""
    return list(_split(text))


@lru_cache(maxsize=1 << 12)  # the same text is split several times while a report is read
def _split(text: str) -> tuple[tuple[int, int], ...]:
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _END.finditer(text):
        start = _skip(text, start, match.end())
        if match.end() <= start or _sentence_continues(text, start, match):
            continue
        _add_span(spans, text, start, match.end())
        start = match.end()
    _add_span(spans, text, _skip(text, start, len(text)), len(text))
    return tuple(spans)


def _skip(text: str, start: int, end: int) -> int:
    """Return the position after the blanks and the list number or bullet, if any, with which text[start:end] begins."""
    while start < end and text[start].isspace():
        start += 1
    enumerator = _ENUMERATOR.match(text, start, end)
    if enumerator is None:
        return start
    start = enumerator.end()
    while start < end and text[start].isspace():
        start += 1
    return start


def _sentence_continues(text: str, start: int, match: re.Match) -> bool:
    """Return whether the sentence that begins at ``start`` continues after the punctuation mark ``match``."""
    if match.group()[0] == "\n":
        return False
    before = text[max(start, match.start() - 8) : match.start()]
    if match.group() == "." and _ABBREVIATION.search(before):
        tail = text[match.end() : match.end() + 2].lstrip()
        initial = len(before) >= 2 and before[-2:-1].isspace() and before[-1:].isupper()
        return not tail[:1].isupper() or before.lower().endswith(("dr", "drs", "mr", "mrs")) or initial
    if match.group()[0] == "?" and (match.start() == start or text[match.start() - 1] in " \t("):
        return bool(text[match.end() : match.end() + 2].strip())  # "opacity ?PNA"
    return match.group()[0] == "?" and text[match.end() : match.end() + 2].lstrip()[:1].islower()


def _add_span(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    while end > start and text[end - 1].isspace():
        end -= 1
    if _WORD.search(text, start, end):
        spans.append((start, end))
