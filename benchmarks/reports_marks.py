"""One text of the error browser: its pieces with their decisions, and the rows of its tuples."""

import heapq
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from spacy.tokens import Doc

from cxr.language.reports import sentences
from cxr.language.reports.rules import lexicon
from cxr.language.reports.rules.tokens import split_words

DECISIONS = {
    "definite": ("A", "affirmed, definite"),
    "strong": ("S", "affirmed, strong hedge"),
    "weak": ("W", "affirmed, weak hedge: dropped where labels are scored"),
    "denied": ("N", "denied"),
    "no_new": ("O", "“no new”: denies nothing old"),
    "explains": ("E", "explains the finding beside it: a candidate, no tuple of its own"),
}
"""{decision: (letter, meaning)}; the template has a colour and a line style for each."""
_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}
"""{control character: its visible symbol}. HTML allows no control characters, and replacing them preserves the
spans."""


class Mark(NamedTuple):
    """A span [start, end) of a text: its decision, a note, and the numbers of its tuples ("" for none)."""

    start: int
    end: int
    decision: str
    note: str
    number: str = ""


class Piece(NamedTuple):
    """A piece of text with its mark, or with None. ``first``: whether the mark starts here."""

    text: str
    mark: Mark | None
    first: bool


def decision_of(item: dict) -> str:
    """Return the decision of a tuple, a key of ``DECISIONS``."""
    if item["presence"] == "positive":
        return item["hedge"]
    return "denied" if item["denies"] else "no_new"


def note_of(item: dict) -> str:
    """Return the content of a tuple, one part per line, for the tooltip."""
    parts = {
        "entity": item["entity"],
        "lesion type": item["lesion_type"],
        "decision": DECISIONS[decision_of(item)][1],
        "certainty": item["certainty"],
        "may stand for": _candidates(item),
        "category": item["category"],
        "labels": ", ".join(item["labels"]),
        "without labels, blocks": ", ".join(item["block"]),
    }
    return "\n".join(f"{name}: {value}" for name, value in parts.items() if value)


def _candidates(item: dict) -> str:
    return f"{', '.join(item['candidates'])} ({item['predicted_hedge']})" if item["candidates"] else ""


def row_of(number: int, item: dict) -> tuple:
    """Return the cells of a tuple: number, decision, entity, lesion type, candidates, place, labels, category."""
    place = ", ".join(item["location"] or [])
    labels = ", ".join(item["labels"])
    cells = (item["entity"], item["lesion_type"], _candidates(item), place, labels, item["category"])
    return number, decision_of(item), *(cell or "" for cell in cells)


def marks_of(text: str, tuples: list[dict]) -> list[Mark]:
    """Return the marks of a text: one for each span of ``tuples`` (in characters of ``text``), and one for each
    candidate.

    A tuple only names its candidates. Their spans in its sentence are found with the lexicon of the rules.
    """
    spans: dict[tuple[int, int], list[int]] = {}
    for number, item in enumerate(tuples):
        spans.setdefault((item["span"][0], item["span"][1]), []).append(number)
    marks = []
    for (start, end), numbers in spans.items():
        note = "\n\n".join(note_of(tuples[number]) for number in numbers)
        told = " ".join(str(number + 1) for number in numbers)
        marks.append(Mark(start, end, decision_of(tuples[numbers[0]]), note, told))
    taken = {character for start, end in spans for character in range(start, end)}
    candidates: dict[int, set[str]] = {}
    for item in tuples:
        candidates.setdefault(item["sentence_index"], set()).update(item["candidates"])
    for index, (start, end) in enumerate(sentences.split_sentences(text), start=1):
        for a, b, name in _wordings(text[start:end], candidates.get(index)):
            if taken.isdisjoint(range(start + a, start + b)):
                taken.update(range(start + a, start + b))
                marks.append(Mark(start + a, start + b, "explains", f"{name}: {DECISIONS['explains'][1]}"))
    return sorted(marks)


def _wordings(sentence: str, wanted: set[str] | None) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, name) of the words in a sentence that name the findings ``wanted``, longest first."""
    if not wanted:
        return
    words = split_words(sentence)
    rules = lexicon.load_lexicon()
    hits = rules.match(Doc(rules.nlp.vocab, words=[word for word, _, _ in words]))
    for tag, entity, first, last in sorted(hits, key=lambda hit: hit[2] - hit[3]):
        if tag == "entity" and {entity.name, entity.lesion} & wanted:
            yield words[first][1], words[last - 1][2], entity.lesion or entity.name


def pieces_of(text: str, marks: list[Mark]) -> list[Piece]:
    """Split a text where marks start and end. A piece under several marks gets the shortest mark. The joined pieces are
    the text, with control characters replaced."""
    cuts = sorted({0, len(text), *(c for mark in marks for c in mark[:2] if 0 < c < len(text))})
    pieces, waiting, live = [], sorted(marks, reverse=True), []
    for start, end in pairwise(cuts):
        while waiting and waiting[-1].start <= start:
            mark = waiting.pop()
            heapq.heappush(live, (mark.end - mark.start, mark))
        live = [pair for pair in live if pair[1].end > start]
        heapq.heapify(live)
        mark = live[0][1] if live else None
        shown = text[start:end].translate(_CONTROLS)
        pieces.append(Piece(shown, mark, mark is not None and mark.start == start))
    return pieces
