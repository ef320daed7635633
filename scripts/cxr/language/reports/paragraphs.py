"""Joining the wrapped lines of a report: a full line continues in the next one, a short line ends a statement."""

import re
from collections.abc import Set
from itertools import pairwise

_NARROWEST = 60
"""Line width below which a report does not count as wrapped, unless most of its lines are full."""
_FEWEST = 3
"""Number of lines from which full lines show that a text is wrapped."""
_LABEL = re.compile(r"\s*[A-Z][\w /&,-]{0,40}:(?:\s|$)")
_ITEM = re.compile(r"\(?\d{1,2}[.)]|[-*•·]\s")
_GOES_ON = re.compile(r"(?:[,/-]|\b(?:and|or|of|the|a|an|with|without|in|at|to|for|no|is|are|by|from|on))$", re.I)
_HYPHEN = re.compile(r"([^\W\d_]+)-$")


def line_width(text: str) -> int:
    """Return the column at which a text is wrapped."""
    lines = [line.rstrip() for line in text.split("\n")]
    longest = max(map(len, lines))
    pairs = [(line, after.split()[0]) for line, after in pairwise(lines) if line and after.strip()]
    full = sum(len(line) + 1 + len(word) > longest for line, word in pairs)
    return longest if len(pairs) >= _FEWEST and full >= 0.6 * len(pairs) else max(longest, _NARROWEST)


def paragraphs(text: str, width: int, hyphenated: Set[str]) -> str:
    """Return a text with single blanks and its wrapped lines joined.

    Statements on separate lines are separated by a blank line, so that each becomes a sentence. ``width``: see
    :func:`line_width`. ``hyphenated``: words that keep a hyphen at the end of a line ("left-" "sided"); other words are
    joined ("pneumo-" "thorax").
    """
    parts: list[str] = []
    joins = False
    lines = text.split("\n")
    small = text.lstrip()[:1].islower()  # in a text without capitals, a small letter does not show a continuation
    for number, raw in enumerate(lines):
        line = " ".join(raw.split())
        if not line:
            joins = False
            continue
        if joins and not _ITEM.match(line):
            parts[-1] = _joined(parts[-1], line, hyphenated)
        else:
            parts.append(line)
        joins = number + 1 < len(lines) and _wrapped(raw.rstrip(), lines[number + 1], width, small)
    return "\n\n".join(parts)


def _joined(before: str, line: str, hyphenated: Set[str]) -> str:
    head = _HYPHEN.search(before)
    if head is None or not line[0].islower():
        return f"{before} {line}"
    return (before if head[1].lower() in hyphenated else before[:-1]) + line


def _wrapped(line: str, following: str, width: int, small: bool) -> bool:
    """True if a line continues in the following one."""
    if not following.strip():
        return False
    if line[-1] in ".!?:;" or _GOES_ON.search(line) or (following.lstrip()[0].islower() and not small):
        return True
    if _LABEL.match(following):
        return False
    return len(line) + 1 + len(following.split()[0]) > width
