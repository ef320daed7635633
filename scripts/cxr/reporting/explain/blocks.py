"""A small document that can be rendered as text for a terminal and as one HTML page without a network."""

import html
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cxr.base.paths import RESOURCES
from cxr.plotting.encoding import data_url
from cxr.plotting.plots import BLUE, GREEN, GREY, ORANGE

RESOURCE_FILES = ("explain/page.css",)

WIDTH = 110
"""Width of the text in columns."""
COLOURS = {"positive": BLUE, "tentative": ORANGE, "negative": GREEN, "outside": GREY}
"""Colours of the marks in a report."""


@dataclass(frozen=True)
class Heading:
    """A heading of level 1 to 3."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """One paragraph."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table of texts; ``label`` describes it to screen readers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    label: str


@dataclass(frozen=True)
class Mark:
    """A marked range [start, end) of a text: ``kind`` is a key of :data:`COLOURS`, ``note`` its remark."""

    start: int
    end: int
    kind: str
    note: str


@dataclass(frozen=True)
class MarkedText:
    """A text with marks, which must not overlap (:func:`merge_marks`)."""

    text: str
    marks: Sequence[Mark]


@dataclass(frozen=True)
class Picture:
    """A PNG with its alternative text; ``small`` ones are placed side by side if there is room."""

    png: bytes
    alt: str
    small: bool = False


Block = Heading | Paragraph | Table | MarkedText | Picture


def merge_marks(marks: Sequence[Mark]) -> list[Mark]:
    """Merge overlapping marks; a merged mark has the kind of the first and the notes of all."""
    merged_marks: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: (mark.start, mark.end)):
        if merged_marks and mark.start < merged_marks[-1].end:
            last = merged_marks.pop()
            mark = Mark(last.start, max(last.end, mark.end), last.kind, f"{last.note}, {mark.note}")
        merged_marks.append(mark)
    return merged_marks


def render_text(blocks: Sequence[Block]) -> str:
    """Render as text for a terminal: without images, with marks and their notes in square brackets.

    Control characters of terminals are replaced by U+FFFD.
    """
    text = "\n".join(line for block in blocks for line in _text_lines(block)).strip() + "\n"
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", text)


def _text_lines(block: Block) -> list[str]:
    if isinstance(block, Heading):
        under = {1: "=", 2: "-"}.get(block.level)
        return ["", block.text] + ([under * len(block.text)] if under else [])
    if isinstance(block, Paragraph):
        return textwrap.wrap(block.text, WIDTH) or [""]
    if isinstance(block, MarkedText):
        words = _join_marks(block, str, lambda text, mark: f"[{text} | {mark.note}]").split()
        return textwrap.wrap(" ".join(words), WIDTH, initial_indent="  ", subsequent_indent="  ")
    if isinstance(block, Table):
        rows = [block.head, *block.rows]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
        return [("  " + "  ".join(row)).rstrip() for row in padded]
    return []


def _join_marks(block: MarkedText, plain: Callable[[str], str], marked: Callable[[str, Mark], str]) -> str:
    """Return a text of which the parts outside and inside marks are each formatted by a function."""
    parts, at = [], 0
    for mark in block.marks:
        parts += [plain(block.text[at : mark.start]), marked(block.text[mark.start : mark.end], mark)]
        at = mark.end
    return "".join([*parts, plain(block.text[at:])])


def render_html(title: str, blocks: Sequence[Block]) -> str:
    """Render as one HTML page that needs no network."""
    body = "\n".join(_html_block(block) for block in blocks)
    style = (RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>\n{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _html_block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p>{html.escape(block.text)}</p>"
    if isinstance(block, Picture):
        kind = ' class="small"' if block.small else ""
        return f'<img{kind} alt="{html.escape(block.alt)}" src="{data_url("image/png", block.png)}">'
    if isinstance(block, MarkedText):
        text = _join_marks(block, html.escape, _html_mark).replace("\n", "<br>\n")
        return f"<blockquote>{text}</blockquote>"
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in block.head)
    rows = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in block.rows)
    label = html.escape(block.label)
    return f'<div class="wide"><table aria-label="{label}"><tr>{head}</tr>\n{rows}</table></div>'


def _html_mark(text: str, mark: Mark) -> str:
    inside, note = html.escape(text), html.escape(mark.note)
    return f'<mark style="border-color: {COLOURS[mark.kind]}">{inside}</mark><sup>{note}</sup>'
