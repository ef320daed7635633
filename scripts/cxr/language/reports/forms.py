"""Conversion of forms (escaped text, JSON, tables, label-value lines, tick boxes) to sentences that an engine can read.

A line is converted only if it consists of one known finding and one value. "Consolidation: No" becomes "No
consolidation.". An unticked box is ignored. All other lines stay unchanged. A form that is recognised but cannot be
read completely makes the report unusable.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import NamedTuple, Protocol

from cxr.base.resources import load_texts

RESOURCE_FILES = ("reading/forms.yaml",)
PROSE, LINES, TICKS, TABLE, JSON, ESCAPED, DICTATED = (
    "prose", "label-value lines", "tick list", "table", "JSON", "escaped text", "dictation",
)  # fmt: skip
_LINE_END = re.compile(r"\\r\\n|\\n|\\r|%0D%0A|%0A|\^M\n?|&#(?:10|13|x0?[aAdD]);|¶")
_MOST_LINE_ENDS = 1
"""Escaped line ends ("\\n") are resolved only in a text with at most this many real line ends."""
_BOX = re.compile(r"\[[ _]*(?P<a>[xX✓✔]?)[ _]*\]|\([ _]*(?P<b>[xX✓✔]?)[ _]*\)|(?P<c>[☐☑☒□■✓✔])")
_TICKED = frozenset("xX✓✔☑☒■")
_SEPARATOR = re.compile(r"\s*(?::|=|;(?=\S)|,(?=\d$)|\t+| {2,}|\s[-–—]+(?=\s|$)|\.{4,})\s*")
_STATEMENT_END = re.compile(
    r"\.\s+(?=[A-Z])|(?:[;,.]\s+|\s*\|\s*|\s{2,}(?=\w[\w ]*[:=]))(?=[^,;.]*(?::|=|\s[-–]\s|\s(?:no|yes|neg|pos)\b))"
)
_LEADERS = re.compile(r"[ \t]*\.{4,}[ \t]*")
_QUESTION = re.compile(r"\bQ\d*\s*[:.)]\s*([^\n?:]+)\?*\s*\bA\d*\s*[:.)]\s*")
_HEADING = r"(?:yes|y|present|pos(?:itive)?|no|n|absent|neg(?:ative)?)"
_MARKED_COLUMNS = re.compile(rf"(?im)^[^.\n]*\b{_HEADING}[ \t|]+{_HEADING}\b(?:[ \t|]+\S+)?[ \t|]*$")
_LONE_MARK = re.compile(r"(?m)\w(?:[ \t]{2,}|\t)(?:[xX*•✓✔]|\[[xX]\])(?:[ \t]{2,}\[ ?\])?[ \t]*$")
_BULLET = re.compile(r"^\s*(?:[-*•·]|\(?\d{1,2}[.)])\s+(?=\S)")
_SENTENCE_END = re.compile(r"\b(?:is|are|was|were) \w+$|(?<!not) (?:seen|identified|detected)$", re.IGNORECASE)
"""Pattern of the end of a line that is a sentence ("A left effusion is present"), not a finding followed by a value."""
_FEWEST_ROWS = 2  # minimum number of table rows, XML elements or unread lines in a form
_LONGEST_LABEL = 40  # characters
_MOST_WORDS = 5
"""Maximum number of words of a value. A longer text after a colon is prose."""
_QUESTION_WORDS = re.compile(r"^(?:(?:is|are) there (?:an?y? )?|any |(?:evidence|presence|signs?) of )+", re.IGNORECASE)
_VALUE_FIRST = re.compile(r"^(?:[\[(](yes|no|[yn+-])[\])]|([YN])|(yes|no)\s*[-–:])\s+(?=\w)", re.IGNORECASE)
_ANSWER_BELOW = re.compile(r"(?m)^([^\n:?.]{3,60})[?:][ \t]*\n+[ \t]*([^\n]{1,20})$")
_FIELD_MARK = re.compile(
    r"[=→←|{}]|[-=]>|<-|</|/>|\"[^\"]*\"[;,:]|: *\[|\w\[|\b[A-Z]{1,3}-[PNX+]\b"
    r"|\b0 *[:-]? *(?:no|none|normal|absent|neg\w*)\b"
)
"""Pattern of signs next to a finding, such as "=", that occur only in a form or its legend, never in prose."""
_VALUE_BEHIND = re.compile(r"[ .:]*(?:(?:neg|pos|nil)\b|\d+ ?%|[1-4]\+|0(?![.\d]))", re.IGNORECASE)
_LEVELS = re.compile(r"^\s*\d{1,2}(?:\.\d{1,2})+\.?\s+(?=[A-Z])")
_PRIOR_HEADING = re.compile(r"(?:previous|prior|last|old)\b[^.\n:]{0,30}:?\s*(?:\([^)]*\))?:?", re.IGNORECASE)
_SIDE = frozenset(("right", "left", "r", "l", "rt", "lt"))
_NEGATED_LABEL = re.compile(r"^(?:no|not|without|free of|absence of)\s", re.IGNORECASE)
_LONG_WORD = re.compile(r"[^\W\d_]{2,}")
_ELEMENT = re.compile(r"<([a-zA-Z]\w*)>([^<>\n]*)</\1>")
_UNMARKED = re.compile(
    r"(?P<label>[^:]*?)[\s:.(\[]*\b(?:y(?:es)?\s*/\s*no?|pos(?:itive)?\s*/\s*neg(?:ative)?|present\s*/\s*absent)[)\]]?[\s:._]*",
    re.IGNORECASE,
)
"""A printed choice of which neither word is marked: "Effusion: yes / no"."""
_CHOICES = re.compile(r"[(\[](?:y(?:es)?\s*/\s*n(?:o)?|\+\s*/\s*-|present\s*/\s*absent)[)\]]", re.IGNORECASE)


class UnreadForm(Exception):
    """Raised for a form that is recognised but not completely read. The message quotes no text of the form."""


class Words(NamedTuple):
    """Contents of ``forms.yaml``, which explains the word lists."""

    absent: frozenset[str]
    present: frozenset[str]
    uncertain: frozenset[str]
    unassessed: frozenset[str]
    details: frozenset[str]
    organs: frozenset[str]
    organ_states: frozenset[str]
    columns: dict[str, str]
    head: re.Pattern
    spoken: re.Pattern
    punctuation: dict[str, str]


@cache
def load_words() -> Words:
    """Read ``forms.yaml``."""
    data = load_texts(RESOURCE_FILES[0])
    page, label = data["page_line"], data["patient_label"]
    value = r"\s*(?:[:#]\s*[\w/.,'-]*(?:\s[\w/.,'-]+)?|\s\S*\d\S*)\s*"
    spoken = sorted(data["spoken"], key=len, reverse=True)
    names = ("absent", "present", "uncertain", "unassessed", "details", "organs", "organ_states")
    return Words(
        **{name: frozenset(data[name]) for name in names},
        columns={name: kind for kind, names in data["columns"].items() for name in names},
        head=re.compile(
            rf"\s*(?:(?:{label}{value})+(?:{page})?|[\w ]{{0,40}}?\s*{page}|\d{{1,3}}\s*/\s*\d{{1,3}})\s*",
            re.IGNORECASE,
        ),
        spoken=re.compile(r"\s*\b(" + "|".join(spoken) + r")\b", re.IGNORECASE),
        punctuation=data["spoken"],
    )


@dataclass
class Form:
    """The text of a report, in which form lines become sentences, and the kinds of form in it, such as "table"."""

    text: str
    kinds: set[str] = field(default_factory=set)


def unfold(text: str, words: Words) -> Form:
    """Return a text as plain lines. JSON, simple XML elements, escaped line ends ("\\n") and spoken punctuation
    ("period") are resolved. Raises UnreadForm for invalid JSON."""
    form = Form(text)
    stripped = text.strip()
    if stripped.startswith(("{", "[{")) and '"' in stripped:
        try:
            lines = list(_json_lines(json.loads(stripped, strict=False)))
        except (ValueError, RecursionError):
            raise UnreadForm("the report looks like JSON but cannot be parsed") from None
        form.text, stripped = "\n".join(lines), "\n".join(lines).strip()
        form.kinds.add(JSON)
    if len(_ELEMENT.findall(form.text)) >= _FEWEST_ROWS:
        form.text = _ELEMENT.sub(lambda element: f"{element[1].replace('_', ' ')}: {element[2]}\n", form.text)
        form.kinds.add(ESCAPED)
    if stripped.count("\n") <= _MOST_LINE_ENDS and _LINE_END.search(stripped):
        form.text = _LINE_END.sub("\n", form.text).replace("\\t", "\t")
        form.kinds.add(ESCAPED)
    if not re.search(r"[.;]", form.text) and len(words.spoken.findall(form.text)) > 1:
        form.text = words.spoken.sub(lambda match: words.punctuation[match[1].lower()], form.text)
        form.kinds.add(DICTATED)
    return form


def _json_lines(value: object, name: str = "") -> Iterator[str]:
    """Yield a line "name: value" for each value in JSON. An object with a name and one Boolean gives a single line:
    {"finding": "edema", "present": false} gives "edema: no"."""
    if isinstance(value, dict):
        labels = [value[key] for key in ("name", "finding", "label", "type") if isinstance(value.get(key), str)]
        label, truths = next(iter(labels), ""), [item for item in value.values() if isinstance(item, bool)]
        if label and len(truths) == 1:
            details = [item for item in value.values() if isinstance(item, str) and item != label]
            yield f"{label}: {', '.join(['yes', *details]) if truths[0] else 'no'}"
            return
        for key, item in value.items():
            yield from _json_lines(item, str(key).replace("_", " "))
    elif isinstance(value, list):
        for item in value:
            yield from _json_lines(item, name)
    elif isinstance(value, bool):
        yield f"{name}: {'yes' if value else 'no'}"
    elif isinstance(value, str):
        yield f"{name}:\n{value}" if "\n" in value or "\\n" in value or len(value) > 60 else f"{name}: {value}"
    elif value is not None:
        yield f"{name}: {value}"


def drop_page_heads(text: str, words: Words) -> str:
    """Remove page heads, which are lines that only name a page or the patient. Sentences continue across them."""
    lines = text.split("\n")
    has_head = [bool(line.strip()) and words.head.fullmatch(line) is not None for line in lines]
    parts: list[str] = []
    for number, line in enumerate(lines):
        inside = any(part.strip() for part in parts)
        if has_head[number] and inside:
            while parts and not parts[-1].strip():
                parts.pop()
            continue
        behind_head = number and inside and any(has_head[max(0, number - 3) : number])
        if behind_head and not line.strip() and parts[-1].rstrip()[-1:] not in ".!?:;":
            continue
        parts.append(line)
    return "\n".join(parts)


class Phrases(Protocol):
    """The interface by which the form reader recognises findings and locations."""

    def is_finding(self, phrase: str) -> bool:
        """Return whether a phrase is one known finding."""

    def is_place(self, phrase: str) -> bool:
        """Return whether a phrase consists only of location words."""

    def find_ends(self, text: str) -> list[int]:
        """Return, for each finding in a text, the position of the character after it."""


def read_lines(form: Form, words: Words, phrases: Phrases) -> Form:
    """Return a form in which each line with a finding and a value is a sentence ("Edema: no" becomes "No edema."). A
    text that is no form stays unchanged. Raises UnreadForm if a line has a finding, but a value that is unclear."""
    if _MARKED_COLUMNS.search(form.text) and _LONE_MARK.search(form.text):
        raise UnreadForm("the form states a value only by the column in which a mark stands")
    reader = _LineReader(words, phrases, form.kinds)
    values = words.absent | words.present
    text = _ANSWER_BELOW.sub(
        lambda line: f"{line[1]}: {line[2]}" if line[2].strip(" .").lower() in values else line[0],
        _QUESTION.sub(r"\1: ", form.text),
    )
    lines = list(reader.join_values(_LEADERS.sub(": ", text).split("\n")))
    parts: list[str] = []
    for is_row, group in groupby(lines, key=lambda line: len(_cells(line)) > 1):
        block = list(group)
        parts += reader.read_table(block) if is_row and len(block) >= _FEWEST_ROWS else map(reader.read_line, block)
    if not (form.kinds & {LINES, TICKS, TABLE} or reader.is_form or reader.unread >= _FEWEST_ROWS):
        return form
    if reader.unread:
        raise UnreadForm(f"{reader.unread} lines of the form have a finding and an unknown value")
    form.text = re.sub(r"\n{3,}", "\n\n", "\n".join(parts))
    return form


def _cells(line: str) -> list[str]:
    mark = "|" if "|" in line else "\t"
    return [cell.strip() for cell in line.strip().strip("|").split(mark)] if mark in line.strip() else [line]


@dataclass
class _LineReader:
    words: Words
    phrases: Phrases
    kinds: set[str]
    unread: int = 0  # Number of lines with a finding and an unknown value
    is_form: bool = False  # Whether one of the counted lines cannot be prose
    is_of_heading: bool = False  # Whether the line is below a heading that is a location or an earlier image

    def __post_init__(self) -> None:
        self.is_finding, self.is_place = self.phrases.is_finding, self.phrases.is_place

    def join_values(self, lines: Sequence[str]) -> Iterator[str]:
        """Yield the lines. A line with only a finding's name is joined to a value on the next line ("Edema: no")."""
        pending = ""
        for line in lines:
            value = line.strip(" .").lower()
            is_value = value in self.words.absent | self.words.present | self.words.unassessed
            if pending and (is_value or (line[:1].isspace() and value)):
                yield f"{pending.strip()}: {line.strip()}"
                pending = ""
                continue
            if pending:
                yield pending
            is_label = line[:1].isalpha() and len(line) <= _LONGEST_LABEL and self.is_finding(value)
            pending = line if is_label else ""
            if not is_label:
                yield line
        if pending:
            yield pending

    def read_line(self, line: str) -> str:
        """Return a sentence for a line with a finding and a value, and "" for a line that states nothing, such as an
        unticked box. Any other line stays unchanged."""
        choice = _UNMARKED.fullmatch(_BULLET.sub("", line))
        if choice and self.is_finding(choice["label"].strip().lower()):
            self.kinds.add(LINES)
            return ""
        boxes = list(_BOX.finditer(line))
        is_ticked = any(_TICKED & set(box.group()) for box in boxes)
        if boxes and (is_ticked or "[ ]" in line or re.search(r"[☐□]|\[ *_*\]|\( +\)", line)):
            return self._read_boxes(line, boxes)
        return self._read_statements(line)

    def _read_statements(self, line: str) -> str:
        """Return the sentences for a line of "finding: value" statements. A line without them stays unchanged."""
        text = _LEVELS.sub("", _BULLET.sub("", line)).strip().rstrip(".")
        is_heading = _PRIOR_HEADING.fullmatch(text) is not None or self.is_place(text.strip(" :").lower())
        self.is_of_heading = is_heading or (self.is_of_heading and bool(text))
        if (first := _VALUE_FIRST.match(text)) and self.is_finding(text[first.end() :].lower()):
            text = f"{text[first.end() :]}: {next(filter(None, first.groups()))}"
        pieces = _STATEMENT_END.split(text)
        sentences = [self._read_value(*_parted(piece)) for piece in pieces]
        unread_pieces = [piece for sentence, piece in zip(sentences, pieces, strict=True) if not sentence]
        if any(map(self._has_marked_finding, unread_pieces)) or (self.is_of_heading and any(sentences)):
            self.unread += 1
            self.is_form = True
        if not any(sentences):
            self.unread += self._is_broken_off(text)
            return line
        self.kinds.add(LINES)
        return _as_paragraphs(sentence or f"{piece}." for sentence, piece in zip(sentences, pieces, strict=True))

    def _read_value(self, label: str, value: str, is_parted: bool = True, side: str = "") -> str | None:
        """Return a sentence for a form's "label: value", or None if the two do not form a statement. ``is_parted``:
        whether a separator such as a colon is between the two. ``side``: side that a table's column gives. An unknown
        value that could mean yes or no is counted in ``unread``."""
        if is_parted and (statement := self._read_list(label.lower().removesuffix(" findings"), value)):
            return statement
        bare_value = value.strip(" .()").lower()
        if not is_parted and (not self._is_bare(bare_value) or _SENTENCE_END.search(f"{label} {bare_value}")):
            return None  # prose, as most lines are
        name = _QUESTION_WORDS.sub("", _CHOICES.sub("", label).strip(" ?:")).lower()
        is_bare = is_parted and self._is_bare(bare_value)
        is_side = not _SIDE.isdisjoint(name.split()) and self.is_place(name)
        if is_bare and (is_side or _NEGATED_LABEL.match(name)):  # "Right: yes", "No effusion: false"
            self.unread += 1
            self.is_form = True
        if not name or not value or not self.is_finding(f"{side} {name}".strip()):
            return None
        value = value.strip().lower().rstrip(".").strip("[]<>{}▼▾ ")
        subject = f"{side} {name}".strip()
        if value in self.words.absent or value.strip("()") in self.words.absent:
            return f"No {subject}."
        plain = value.partition("(")[0].strip() or value
        if plain in self.words.unassessed:
            return f"{subject.capitalize()} cannot be assessed."
        if plain in self.words.uncertain:
            return f"{subject.capitalize()} is {plain}."
        head, details = self._split_present(value)
        if not head and is_parted and self._is_detail(value):
            head, details = value, value
        if head:
            return f"{subject.capitalize()}{', ' + details if details else ''}."
        num_words = len(_LONG_WORD.findall(value))
        self.unread += is_parted and num_words <= _MOST_WORDS
        self.is_form |= is_parted and num_words == 0  # "Effusion: 2" is not prose
        return None

    def _has_marked_finding(self, line: str) -> bool:
        """Return whether a line contains a finding and a sign or value that only forms use, such as "=" or "2+"."""
        if not (_FIELD_MARK.search(line) or _VALUE_BEHIND.search(line)):
            return False
        ends = self.phrases.find_ends(line)
        return bool(ends and _FIELD_MARK.search(line)) or any(_VALUE_BEHIND.match(line, end) for end in ends)

    def _is_broken_off(self, text: str) -> bool:
        """Return whether a short line is a finding without a readable value ("Effusion:", "Effusion Yes No")."""
        words = text.strip(" :").split()
        if text.endswith(".") or not 1 <= len(words) <= _MOST_WORDS:
            return False
        if text.endswith(":"):
            return self.is_finding(" ".join(words).lower())
        ends = [end for end in range(len(words) - 1, 0, -1) if self.is_finding(" ".join(words[:end]).lower())]
        remainder = " ".join(words[ends[0] :]).lower() if ends and not self.is_finding(text.lower()) else ""
        values = set(remainder.split())
        is_choice = len(values) > 1 and values <= self.words.absent | self.words.present  # "Effusion Yes No"
        return is_choice or bool(re.search(r"\d|[*+/<>=?_✓✔✗✘×-]|^[a-z]$", remainder))

    def _read_list(self, label: str, value: str) -> str | None:
        """Return a sentence for a list of findings after a label such as "Absent" ("Absent: consolidation, edema").
        Return None for any other label or value."""
        names = [name.strip() for name in re.split(r"[,;/]|\band\b", value.lower())]
        if not self._is_bare(label) or not all(map(self.is_finding, names)):
            return None
        subjects = ", no ".join(names) if label in self.words.absent else ", ".join(names)
        return f"No {subjects}." if label in self.words.absent else f"{subjects.capitalize()}."

    def _split_present(self, value: str) -> tuple[str, str]:
        """Return (affirming word, details) of an affirming value ("yes, small"), or ("", "") for any other value."""
        for word in sorted(self.words.present, key=len, reverse=True):
            remainder = value.removeprefix(word)
            if remainder != value and not remainder[:1].isalnum():
                details = remainder.strip(" ,;:()-")
                is_bare = not remainder.strip(" ,;:()")  # "+ -" holds two values
                return (word, details) if is_bare or (details and self._is_detail(details)) else ("", "")
        return "", ""

    def _is_detail(self, value: str) -> bool:
        words = re.findall(r"[\w/]+", value)
        is_known = bool(words) and all(word in self.words.details or self.is_place(word) for word in words)
        return is_known or self.is_place(value)

    def _read_boxes(self, line: str, boxes: Sequence[re.Match]) -> str:
        """Return the ticked boxes of a line as sentences, or "" if no box is ticked."""
        self.kinds.add(TICKS)
        label = _BULLET.sub("", line[: boxes[0].start()]).strip(" \t:-–")
        ends = [*(box.start() for box in boxes[1:]), len(line)]
        texts = [line[box.end() : end].strip(" \t,;") for box, end in zip(boxes, ends, strict=True)]
        ticked = [bool(_TICKED & set(box.group())) for box in boxes]
        if label and not texts[-1]:  # "Consolidation [ ]  Effusion [x]": each label precedes its box
            texts, label = [label, *texts[:-1]], ""
            # "Effusion: right [ ] left [x]", or marks in columns
            self.unread += not all(text and not self.is_place(text.lower()) for text in texts) or ":" in texts[0]
        chosen_texts = [text for text, is_ticked in zip(texts, ticked, strict=True) if is_ticked]
        if not label:
            return _as_paragraphs(re.sub(r"\s[-–—]+\s", ", ", text).rstrip(".") + "." for text in chosen_texts)
        if not chosen_texts:
            return ""
        is_list = all(map(self._is_detail, map(str.lower, chosen_texts)))
        sentence = self._read_value(label, ", ".join(chosen_texts)) if is_list or len(chosen_texts) == 1 else None
        is_state = len(chosen_texts) == 1 and chosen_texts[0].lower() in self.words.organ_states
        if is_state and label.lower() in self.words.organs:
            sentence = f"{label} {chosen_texts[0]}."
        self.unread += sentence is None
        return f"\n{sentence}\n"

    def read_table(self, block: list[str]) -> Iterator[str]:
        """Yield the sentences of a table with the lines ``block``. If the first line has no column name of
        ``forms.yaml``, each line is read alone. Rows of findings that cannot be read are counted in ``unread``."""
        rows = [_cells(line) for line in block if re.search(r"\w", line)]
        kinds = [self.words.columns.get(name.lower()) for name in rows[0][1:]] if rows else []
        kinds = [] if kinds in (["yes"], ["no"]) else kinds  # "Effusion | no" is not a heading
        if not any(kinds):
            findings = sum(len(row) > 2 and self.is_finding(row[0].lower()) for row in rows)
            self.unread += findings
            self.kinds.update([TABLE] if findings else [])
            yield from map(self.read_line, block)
            return
        self.kinds.add(TABLE)
        for row in rows[1:]:
            cells = list(zip(kinds, row[1:], strict=False))
            place = " ".join("bilateral" if cell.lower() == "both" else cell for kind, cell in cells if kind == "place")
            for kind, cell in cells:
                if kind in ("unused", "place") or not cell.strip("- "):
                    continue
                side = kind if kind in ("right", "left") else ""
                value = kind if kind in ("yes", "no") and cell in _TICKED else cell
                value = "yes" if kind == "value" and cell in _TICKED else value
                placed_value = f"{value}, {place}" if place and value.lower() not in self.words.absent else value
                sentence = self._read_value(row[0], placed_value, side=side)
                self.unread += sentence is None and (kind != "value" or self._is_bare(value))
                yield f"\n{sentence or f'{row[0]}: {value}.'}\n"

    def _is_bare(self, value: str) -> bool:
        return value.lower() in self.words.absent | self.words.present


def _parted(piece: str) -> tuple[str, str, bool]:
    """Return (label, value, whether a separator is between the two) of a form's statement. Without a separator, the
    value is the text in final brackets or the last word."""
    parts = _SEPARATOR.split(piece, 1)
    if len(parts) == 2:
        return parts[0], parts[1], True
    label, bracket, value = piece.partition("(")
    if bracket and value.rstrip().endswith(")"):
        return label, value.rstrip()[:-1], False
    label, _, value = piece.rstrip().rpartition(" ")
    return label, value, False


def _as_paragraphs(sentences: Iterable[str]) -> str:
    """Join sentences with blank lines, so that no line is read as the continuation of another."""
    return "\n" + "\n\n".join(sentences) + "\n"
