"""Splitting of reports with any layout into sections, by tolerant detection of headings (not from the paper).

A heading is a phrase of ``resources/reading/headings.yaml`` at one of two positions:

* At the start of a line, after blanks, a number, a bullet or Markdown signs. It must end the line, or a colon, a dash,
  a tab or several blanks must follow, or it must be in capitals before a text that is not in capitals.
* Inside a line, before a colon. It must follow the end of a sentence or be in capitals.

Other text that looks like a heading ("LINES AND TUBES:") stays in its section. A text without headings is one section,
the findings. :mod:`cxr.language.reports.sections` has the official rules of MIMIC-CXR.
"""

import re
import unicodedata
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from cxr.base.resources import load_texts, phrase_pattern
from cxr.language.reports.decoding import normalize_text

RESOURCE_FILES = ("reading/headings.yaml",)
_NARROWEST = 60
"""Minimum line width, in characters, that :func:`line_width` returns for a text that is not visibly wrapped."""
_FEWEST = 3
"""Minimum number of pairs of consecutive lines with which :func:`line_width` regards a text as wrapped."""
_LABEL = re.compile(r"\s*[A-Z][\w /&,-]{0,40}:(?:\s|$)")
_ITEM = re.compile(r"\(?\d{1,2}[.)]|[-*•·]\s")
_GOES_ON = re.compile(r"(?:[,/-]|\b(?:and|or|of|the|a|an|with|without|in|at|to|for|no|is|are|by|from|on))$", re.I)
_HYPHEN = re.compile(r"([^\W\d_]+)-$")


def line_width(text: str) -> int:
    """Return the line width, in characters, at which a text is wrapped. It is the length of the longest line if the
    next line's first word would exceed this length on at least 60 % of the lines, and else at least ``_NARROWEST``."""
    lines = [line.rstrip() for line in text.split("\n")]
    longest = max(map(len, lines))
    pairs = [(line, after.split()[0]) for line, after in pairwise(lines) if line and after.strip()]
    full = sum(len(line) + 1 + len(word) > longest for line, word in pairs)
    return longest if len(pairs) >= _FEWEST and full >= 0.6 * len(pairs) else max(longest, _NARROWEST)


def paragraphs(text: str, width: int, hyphenated: Set[str]) -> str:
    """Return a text in which wrapped lines are joined, and several blanks become one.

    A blank line is put between statements on separate lines, so that each becomes a sentence. ``width`` is the result
    of :func:`line_width`. ``hyphenated`` are words that keep a hyphen at the end of a line ("left-" "sided"). Other
    words lose the hyphen ("pneumo-" "thorax").
    """
    parts: list[str] = []
    joins = False
    lines = text.split("\n")
    small = text.lstrip()[:1].islower()  # if the text starts in lower case, a lower-case line is not a continuation
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
    """Return whether a line continues on the following line. ``small``: whether the report begins in lower case."""
    if not following.strip():
        return False
    if line[-1] in ".!?:;" or _GOES_ON.search(line) or (following.lstrip()[0].islower() and not small):
        return True
    if _LABEL.match(following):
        return False
    return len(line) + 1 + len(following.split()[0]) > width


UNUSED = frozenset(
    ("indication", "history", "technique", "comparison", "examination", "patient", "recommendation", "notification")
)
"""Sections from which findings are read only if findings and impression are missing (:func:`_assign_loose_text`)."""
_NEVER_LAST = frozenset(("patient", "recommendation", "notification"))  # their last paragraph is not read either
_ONE_SENTENCE = frozenset(("comparison", "technique", "examination"))
"""Sections that should have only one sentence. Text after this sentence may be findings whose heading is missing."""
_SHORTEST_IN_CAPITALS = 4  # letters of a heading recognised by its capitals
_BEHIND_A_SENTENCE = frozenset(".!?;)]")
_DECORATION = r"(?:(?:\(?\d{1,2}[.):]|\(?[a-z][.)]|\(?[ivx]{2,4}[.)]|[-•·*>#=]+)[ \t]*)*"
_EMPHASIS = re.compile(r"\*\*+|(?<![\w*])\*(?=\w)|(?<=[\w:.])\*(?![\w*])|(?<![\w_])__(?=[^\W_])|(?<=[^\W_])__(?![\w_])"
                       r"|(?<=:)__(?!_)")  # fmt: skip
_RULE = re.compile(r"^[ \t]*[-=_*~#.]{3,}[ \t]*$", re.MULTILINE)
_SENTENCE = re.compile(r"[^.]*(?:\.(?=\d)[^.]*)*(?:\.\s*|$)")
_BARE = {"ø": "o", "æ": "a", "ł": "l", "ß": "s", "ı": "i", "đ": "d"}
"""{letter: plain letter} for letters that Unicode does not decompose into a letter and an accent."""
_WORD = re.compile(r"[^\W_]+(?:[/-][^\W_]+)*")
_NOTHING = re.compile(r"\W*(?:none|nil|n/?a|not applicable|not given|not provided|_+)?\W*", re.I)
_COLON = re.compile(r"[:：](?!\d)")
_MORE = re.compile(r"[ \t]*\([^()\n]{0,60}\)[ \t]*$")
_PROSE = re.compile(r"[^\W\d_]{2,}(?:\W+[^\W\d_]+)+[.;](?:\s|$)")
_MOST_WORDS = 6
"""Maximum number of words of a heading inside a line."""
_LETTERS = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Headings:
    """Contents of ``headings.yaml``. ``names`` is {heading: section}. ``titles`` such as "report" begin the findings if
    no other heading does. ``plain`` are headings even without capitals. A phrase after a word of ``prose`` is no
    heading. Words of ``hyphenated`` keep a hyphen at a line's end. ``at_start`` matches a phrase at a line's start."""

    names: dict[str, str]
    titles: frozenset[str]
    plain: frozenset[str]
    prose: frozenset[str]
    hyphenated: frozenset[str]
    at_start: re.Pattern


class _Heading(NamedTuple):
    """A heading: the name of its section, and the positions of its first character and of the section's text."""

    section: str
    start: int
    end: int


@cache
def load_headings() -> Headings:
    """Read ``headings.yaml``."""
    data = load_texts(RESOURCE_FILES[0])
    names = {phrase: section for section, phrases in data["sections"].items() for phrase in phrases}
    every = phrase_pattern({*names, *data["parts"]}, r"[ \t]+")
    more = r"(?:[ \t]*\([^()\n]{0,60}\))?"
    end = r"(?P<end>[ \t]*[:：]|[ \t]+[-–—]+(?=[ \t])|[ \t]*$|[ \t]*\t|[ ]{2,}|[ ](?=\S))"
    at_start = re.compile(rf"^[ \t]*{_DECORATION}(?P<name>{every})\b{more}{end}", re.MULTILINE)
    sets = {name: frozenset(data[name]) for name in ("titles", "plain", "prose", "hyphenated")}
    return Headings(names=names, at_start=at_start, **sets)


def split_layout(text: str, column: str = "") -> dict[str, str]:
    """Return {section name: text} of a report. Texts of sections with the same name are joined. ``column`` is the
    manifest's column ("findings" or "impression") that the text is from. Text before the first heading belongs to the
    section of this name. For a report file, ``column`` is empty, and text before a heading may be a letterhead."""
    headings = load_headings()
    text = _RULE.sub("", _EMPHASIS.sub("", normalize_text(text)))
    found_headings = list(_headings(text, headings))
    width = line_width(text)
    if not found_headings:
        return {column or "findings": paragraphs(text, width, headings.hyphenated)}
    preamble = paragraphs(text[: found_headings[0].start], width, headings.hyphenated)
    pieces: dict[str, list[str]] = {"preamble": [preamble]}
    ends = [*(heading.start for heading in found_headings[1:]), len(text)]
    for heading, end in zip(found_headings, ends, strict=True):
        piece = paragraphs(text[heading.end : end], width, headings.hyphenated)
        section_texts = pieces.setdefault(heading.section, [])
        if piece and piece not in section_texts and not _NOTHING.fullmatch(piece):
            section_texts.append(piece)
    order = [heading.section for heading in found_headings]
    if column:
        first = pieces.pop("preamble") + pieces.get(column, [])
        pieces = {"preamble": [""]} | pieces | {column: [piece for piece in first if piece]}
    short = _ONE_SENTENCE | ({"indication", "history"} if column else set())
    return _assign_loose_text({name: "\n\n".join(texts) for name, texts in pieces.items()}, order, short)


def remaining_text(section_texts: dict[str, str], section_name: str) -> str:
    """Return the text of all sections except ``section_name``, findings, impression, addendum and those of ``UNUSED``.
    The text after the first sentence of each section of ``_ONE_SENTENCE`` is added."""
    read_names = {section_name, "findings", "impression", "addendum"}
    texts = [text for name, text in section_texts.items() if name not in read_names | UNUSED]
    texts += [_SENTENCE.sub("", section_texts.get(name, ""), 1) for name in sorted(_ONE_SENTENCE)]
    return "\n\n".join(filter(str.strip, texts))


def _assign_loose_text(sections: dict[str, str], order: list[str], short: Set[str]) -> dict[str, str]:
    """Fill empty findings with the text under a title, else with prose before the first heading. If findings and
    impression are empty, add "last_paragraph". It is the comment, else the last section after its first paragraph, else
    a section of ``short`` after its first sentence. ``order``: section names in text order."""
    title = sections.pop("title", "")
    if not sections.get("findings") and title:
        sections["findings"] = title
    # full sentences without a label before the first heading are prose, not a letterhead
    if not sections.get("findings") and ":" not in sections["preamble"] and _PROSE.search(sections["preamble"]):
        sections["findings"] = sections["preamble"]
    if sections.get("findings") or sections.get("impression"):
        return sections
    usable_names = [name for name in reversed(order) if name not in _NEVER_LAST]
    trailing_texts = [sections[name].partition("\n\n")[2] for name in usable_names[:1]]
    trailing_texts += [_SENTENCE.sub("", sections[name], 1) for name in usable_names if name in short]
    return sections | {"last_paragraph": next(filter(None, [sections.get("comment"), *trailing_texts]), "")}


def _headings(text: str, headings: Headings) -> Iterator[_Heading]:
    plain = fold_case(text)
    letters = _LETTERS.findall(text[:5000])
    shouted = sum(letter.isupper() for letter in letters) > 0.8 * len(letters)
    taken, candidates = 0, []
    for match in headings.at_start.finditer(plain):
        kind = _kind(match["name"], headings)
        if _is_heading_of_line(text, plain, match, kind, headings, shouted):
            candidates.append((match.start("name"), match.end("end"), kind, match.start()))
    starts = {start for start, *_ in candidates}
    for colon in _COLON.finditer(plain):
        start = _heading_before_colon(text, plain, colon.start(), headings, shouted)
        if start is not None and start not in starts:
            kind = _kind(_MORE.sub("", plain[start : colon.start()]), headings)
            candidates.append((start, colon.end(), kind, start))
    inside = "preamble"
    for start, end, kind, line in sorted(candidates):
        if start < taken:
            continue
        if kind == "part":
            if inside in UNUSED or inside == "preamble":
                inside = "findings"
                yield _Heading("findings", line, start)  # the text includes the name of the part
            continue
        inside, taken = kind, end
        yield _Heading(kind, line, end)


def _kind(name: str, headings: Headings) -> str:
    phrase = " ".join(name.split())
    if phrase in headings.titles:
        return "title"
    return headings.names.get(phrase, "part")


def _is_heading_of_line(text: str, plain: str, match: re.Match, kind: str, headings: Headings, shouted: bool) -> bool:
    """Return whether the phrase ``match`` at a line's start is a heading. ``plain``: ``text`` in lower case without
    accents. ``kind``: section that the phrase opens, "title" ("report") or "part" (a part of the findings, "lungs").
    ``shouted``: whether ``text`` is in capitals."""
    name, end = text[match.start("name") : match.end("name")], match["end"]
    if end.strip() in (":", "："):
        return not (kind == "part" and name.islower() and not _is_after_break(text, match.start()))
    capitals = name.isupper() and len(name) >= _SHORTEST_IN_CAPITALS
    is_plain = " ".join(match["name"].split()) in headings.plain
    decorated = "#" in plain[match.start() : match.start("name")]
    alone = not end.strip() and plain[match.end("end") : match.end("end") + 1] in ("", "\n")
    if alone:
        return capitals or decorated or ((name[:1].isupper() or is_plain) and _is_after_break(text, match.start()))
    if kind == "part":
        return False
    if end.strip():  # a dash
        return capitals or (is_plain and name[:1].isupper())
    if "\t" in end or len(end) > 1:
        return (capitals and not shouted) or (is_plain and _is_after_break(text, match.start()))
    following_text = text[match.end("end") :].split("\n", 1)[0]
    if len(match["name"].split()) > 1 and kind == "notification":
        return name[:1].isupper() and following_text[:1].isupper()  # "Electronically signed by A. Smith"
    first = following_text.split()[0]
    if not is_plain or shouted or not first[0].isupper() or (first.isupper() and len(first) > 1):
        return False
    return capitals or (name[:1].isupper() and _is_after_break(text, match.start()))


def _is_after_break(text: str, position: int) -> bool:
    """Return whether the line before ``position`` is blank, missing, or ends a sentence or a heading."""
    before = text[:position].rstrip(" \t")
    if not before.strip() or before.endswith("\n\n"):
        return True
    lines = before.rstrip("\n").rsplit("\n", 1)
    return not lines[-1].strip() or lines[-1].rstrip()[-1] in ".!?:;"


def _heading_before_colon(text: str, plain: str, colon: int, headings: Headings, shouted: bool) -> int | None:
    """Return the start of the heading that ends at a colon inside a line, or None if there is no heading. The arguments
    ``plain`` and ``shouted`` are those of :func:`_is_heading_of_line`. ``colon``: position of the colon."""
    line = max(plain.rfind("\n", 0, colon) + 1, colon - 120)
    before = _MORE.sub("", plain[line:colon])
    words = list(_WORD.finditer(before))
    if not words or before[words[-1].end() :].strip():
        return None
    for word in words[-_MOST_WORDS:]:
        phrase = " ".join(before[word.start() :].split())
        if phrase in headings.names and before[: word.start()].strip():  # line starts: see at_start
            start = line + word.start()
            name = text[start : line + words[-1].end()]
            is_heading = _is_heading_in_line(name, phrase, before[: word.start()], headings, shouted)
            return start if is_heading else None
    return None


def _is_heading_in_line(name: str, phrase: str, before: str, headings: Headings, shouted: bool) -> bool:
    """Return whether ``phrase`` before a colon is a heading. ``name``: its text. ``before``: the text before it."""
    capitals = name.isupper() and not shouted and len(name) >= _SHORTEST_IN_CAPITALS
    is_plain = phrase in headings.plain
    end = before.rstrip()[-1]
    if end in _BEHIND_A_SENTENCE or before.endswith(("  ", "\t")):
        return capitals or is_plain
    if before.split()[-1].strip("\"'(,") in headings.prose or end in ",(/-":
        return False
    return capitals or (is_plain and name[:1].isupper())


def fold_case(text: str) -> str:
    """Return a text in lower case and without accents. It has the same length as the original."""
    if text.isascii():
        return text.lower()
    return "".join(map(_fold, text))


@cache
def _fold(letter: str) -> str:
    base = unicodedata.normalize("NFD", letter)[0].lower()
    return _BARE.get(base, base if len(base) == 1 else letter)
