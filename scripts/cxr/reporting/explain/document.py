"""Build a document block by block, both as text for a terminal and as one HTML page that needs no network."""

import io
import re
import textwrap
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from matplotlib.figure import Figure

from cxr.base.paths import RESOURCES
from cxr.plotting.encoding import data_url
from cxr.plotting.plots import BLUE, GREEN, GREY, ORANGE

RESOURCE_FILES = ("explain/page.css",)

WIDTH = 110
"""Maximum width of the text, in characters."""
COLOURS = {"positive": BLUE, "tentative": ORANGE, "negative": GREEN, "outside": GREY}
"""Colours of findings marked in a report, {kind: colour}. ``outside``: findings of none of the seven lesion types."""


class Mark(NamedTuple):
    """A marked range [start, end) of a text. ``kind`` is a key of :data:`COLOURS`; ``note`` is shown at the range."""

    start: int
    end: int
    kind: str
    note: str


def merge_marks(marks: Sequence[Mark]) -> list[Mark]:
    """Return the marks sorted by start. Overlapping marks become one mark with the first mark's kind and all notes."""
    merged_marks: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: (mark.start, mark.end)):
        if merged_marks and mark.start < merged_marks[-1].end:
            last = merged_marks.pop()
            mark = Mark(last.start, max(last.end, mark.end), last.kind, f"{last.note}, {mark.note}")
        merged_marks.append(mark)
    return merged_marks


class Document:
    """A document as text and as HTML page. ``add_`` methods add a block to both. ``dpi``: resolution of the figures."""

    def __init__(self, dpi: int = 110):
        self._dpi = dpi
        self._lines: list[str] = []
        self._elements: list[str] = []

    def add_heading(self, text: str, level: int = 2) -> None:
        self._lines += ["", text, *(sign * len(text) for sign in {1: "=", 2: "-"}.get(level, ""))]
        self._elements.append(f"<h{level}>{escape(text)}</h{level}>")

    def add_paragraph(self, text: str) -> None:
        self._lines += textwrap.wrap(text, WIDTH) or [""]
        self._elements.append(f"<p>{escape(text)}</p>")

    def add_table(self, head: Sequence[str], rows: Sequence[Sequence[str]], label: str) -> None:
        """Add a table with the headings ``head``. Screen readers read ``label`` as its description."""
        widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
        padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in (head, *rows))
        self._lines += [("  " + "  ".join(row)).rstrip() for row in padded]
        top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
        below = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        table = f'<table aria-label="{escape(label)}"><tr>{top}</tr>\n{below}</table>'
        self._elements.append(f'<div class="wide">{table}</div>')

    def add_marked_text(self, text: str, marks: Sequence[Mark]) -> None:
        """Add a text with marks. For the terminal, each marked range is written as [range | note]."""
        words, elements, at = "", "", 0
        for start, end, kind, note in merge_marks(marks):
            before, inside = text[at:start], text[start:end]
            words += f"{before}[{inside} | {note}]"
            elements += f'{escape(before)}<mark style="border-color: {COLOURS[kind]}">{escape(inside)}</mark>'
            elements += f"<sup>{escape(note)}</sup>"
            at = end
        words, elements = " ".join((words + text[at:]).split()), (elements + escape(text[at:])).replace("\n", "<br>\n")
        self._lines += textwrap.wrap(words, WIDTH, initial_indent="  ", subsequent_indent="  ")
        self._elements.append(f"<blockquote>{elements}</blockquote>")

    def add_figure(self, figure: Figure, alt: str, *, small: bool = False) -> None:
        """Add a figure to the page only. ``small`` figures are placed side by side if there is room."""
        png = io.BytesIO()
        figure.savefig(png, dpi=self._dpi, format="png", metadata={"Software": None})  # without Matplotlib's version
        kind = ' class="small"' if small else ""
        self._elements.append(f'<img{kind} alt="{escape(alt)}" src="{data_url("image/png", png.getvalue())}">')

    def to_text(self) -> str:
        """Return the text, in which U+FFFD replaces characters that could control a terminal."""
        text = "\n".join(self._lines).strip() + "\n"
        return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", text)

    def to_html(self, title: str) -> str:
        """Return the HTML page, which needs no network."""
        style = (RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8")
        body = "\n".join(self._elements)
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(title)}</title><style>\n{style}</style></head>\n<body>\n{body}\n</body></html>\n"
        )
