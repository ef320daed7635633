"""Detection of names of people and institutions in a report, by titles, roles, verbs, labels and lists of names."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from cxr.language.reports import sentences
from cxr.language.reports.privacy.rules import load_rules

NAME, ADDRESS = "name", "address"
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+|-[^\W\d_]+)*")
_CLOSE = re.compile(r"[ \t]{1,2}|\.[ \t]?|\.?-|[ \t]?[·/][ \t]?")
"""Text that may separate two parts of a name."""
_COMMA = re.compile(r",[ \t]{0,2}")
_LABEL_MARK = re.compile(r"[:#*]|name", re.I)
"""Pattern that every label of a name ("Name:", "Physician #") contains. A text without it has no labels."""
_AFTER_ROLE = re.compile(r"[ \t]{1,2}|[ \t]?[:(,][ \t]?|\.[ \t]?|[ \t][-–][ \t]")
_CONNECTORS = frozenset(
    ("van", "von", "der", "den", "de", "la", "le", "di", "da", "del", "el", "al", "bin", "ter", "ten", "zu", "dos")
)
_PREPOSITIONS = frozenset(("to", "with", "by", "for", "of", "from", "via"))
_PLACES = frozenset(("in", "from", "at", "near", "aus"))
_HELPERS = frozenset(("has", "have", "had", "was", "is", "were", "are", "been", "made", "now", "who", "office"))
_CUES = ("titles", "roles", "credentials", "acts")
"""Keys of ``identifiers.yaml`` whose words ("Dr.", "nurse", "MD", "notified") occur next to names."""
_SHOUTED, _FEW_LETTERS = 0.7, 8
"""A sentence is "shouted" if it has at least 8 letters and more than 70 % of them are capitals."""
_PLACEHOLDER = "XX"
"""Letters by which a word of a public report is recognised as a placeholder for a removed name ("XXXX")."""
_REACH = 6
"""Number of words after a phrase such as "discussed with" among which a name is searched."""
_LONGEST_NAME = 5
"""Maximum number of words of a name."""
_SHORTEST_ABBREVIATION = 4
"""An upper-case word in the lists of names counts as a name if it has at least this many letters."""
_SHORTEST_LOWER_CASE = 5
"""A lower-case word in the lists of names counts as a name if it has at least this many letters."""
_STOPS = frozenset(
    ("sex", "age", "dob", "mrn", "male", "female", "m", "f", "id", "born", "exam", "date", "and", "und", "or")
)


class _Spelling(NamedTuple):
    """Properties of a word that its spelling alone decides. ``text`` lacks a genitive ending. ``is_listed``: whether a
    list of names has the word. ``is_cue``: whether a list of ``_CUES`` has it."""

    text: str
    lower: str
    is_common: bool
    is_listed: bool
    is_report_word: bool
    is_cue: bool


@dataclass(slots=True)
class Word:
    """A word of the text with its position and properties. ``kind`` is "name", "address", or "" for any other word."""

    start: int
    end: int
    is_first: bool
    is_shouted: bool
    is_foreign: bool
    sentence: int
    text: str
    lower: str
    is_common: bool
    is_listed: bool
    is_report_word: bool
    is_cue: bool
    kind: str = ""

    @property
    def is_capital(self) -> bool:
        """Whether the word is capitalised and its sentence is not written in capitals."""
        return self.text[0].isupper() and not self.is_shouted

    @property
    def is_initial(self) -> bool:
        return len(self.text) == 1 and self.text.isupper()

    @property
    def is_surname(self) -> bool:
        """Whether the word is in a list of names or is not a common word."""
        return self.is_listed or not self.is_common


def find_names(text: str) -> list[tuple[int, int, str]]:
    """Return (start, end, kind) of each word that is part of a name or an address, in text order. A word has the
    characters [start, end), and ``kind`` is "name" or "address"."""
    words = list(_words(text))
    _Finder(text, words).mark()
    return [(word.start, word.end, word.kind) for word in words if word.kind]


def _words(text: str) -> Iterator[Word]:
    rules, number = load_rules(), 0
    for line in re.finditer(r"[^\n]+", text):
        for start, end in sentences.split_sentences(line[0]):
            number += 1
            part = line[0][start:end]
            letters = list(filter(str.isalpha, part))
            shouted = len(letters) >= _FEW_LETTERS and sum(map(str.isupper, letters)) > _SHOUTED * len(letters)
            matches = list(_WORD.finditer(part))
            foreign = not rules.foreign.isdisjoint(match[0].lower() for match in matches)
            previous_end = 0
            for match in matches:
                gap = part[previous_end : match.start()]
                is_first = not previous_end or ":" in gap or "•" in gap or "|" in gap
                spelling, word_start = _spelling(match[0]), line.start() + start + match.start()
                word_end = word_start + len(spelling.text)
                yield Word(word_start, word_end, is_first, shouted, foreign, number, *spelling)
                previous_end = match.end()


@lru_cache(maxsize=1 << 16)
def _spelling(written: str) -> _Spelling:
    rules = load_rules()
    text = re.sub(r"['’]s$", "", written)
    lower = text.lower()
    pieces = [piece for piece in re.split(r"[-'’]", lower) if piece]
    return _Spelling(
        text,
        lower,
        is_common=rules.is_common(lower) or (len(pieces) > 1 and all(map(rules.is_common, pieces))),
        is_listed=lower in rules.names or lower in rules.words["common_surnames"],
        is_report_word=lower in rules.report_words.words,
        is_cue=lower == "w" or any(lower in rules.words[name] for name in _CUES),
    )


@cache
def _patterns() -> dict[str, re.Pattern]:
    phrases = load_rules().phrases
    label = rf"({phrases['name_labels']})[ \t]*"
    line_start = r"(?:^|[|;·•\t]|[ ]{2}|[.!?][ ])[ \t*]*"
    helpers = rf"(?:\W+(?:{'|'.join(_HELPERS)})\b)*"
    return {
        "marked_label": re.compile(rf"{line_start}{label}\.?[ \t]*[:#*]+[ \t*]*", re.I | re.M),
        "label": re.compile(rf"\b{label}:[ \t]*", re.I),
        "institution": re.compile(rf"\b{phrases['institutions']}\b", re.I),
        "reaction": re.compile(rf"(?:/\w+)?{helpers}\W+(?:{phrases['reactions']}\b|an?\W+\d)", re.I),
    }


class _Finder:
    """A detector that marks the names and addresses among the words of one text (``Word.kind``)."""

    def __init__(self, text: str, words: list[Word]):
        self.text, self.words, self.rules = text, words, load_rules()
        self.certain: set[str] = set()
        later_words = (word.text for word in words if not word.is_first and len(word.text) > 1)
        self.is_lower_case = not any(text[0].isupper() for text in later_words)

    def mark(self) -> None:
        for index, word in enumerate(self.words):
            may_be_name = word.text[0].isupper() and word.is_surname
            if word.is_cue:
                self._title(index, word)
                self._role(index, word)
                self._credential(index, word)
            if may_be_name:
                self._last_first(index, word)
            if word.is_cue:
                self._act(index, word)
            if may_be_name:
                self._reaction(word)
        self._labels()
        self._institutions()
        for word in self.words:
            if not word.kind and not word.is_common and self._is_strange(word):
                word.kind = NAME
        self._places()
        if any(word.kind for word in self.words):
            self._extend()
            self._repeats()

    def _gap(self, index: int) -> str:
        """Return the text between a word and the next word, or a line break for the last word."""
        return self.text[self.words[index].end : self.words[index + 1].start] if index + 1 < len(self.words) else "\n"

    def _has(self, name: str, word: str) -> bool:
        return word in self.rules.words[name]

    def _set(self, word: Word, kind: str = NAME) -> None:
        if _PLACEHOLDER not in word.text:
            word.kind = word.kind or kind
            self.certain.add(word.lower)

    def _run(self, index: int, first_is_name: bool, pattern: re.Pattern = _CLOSE) -> None:
        """Mark the name that follows the word ``index``. If ``first_is_name``, its first word may be a common word
        ("Dr. Heart"). ``pattern`` matches the text between the word and the name."""
        number, gap, connected = 0, pattern, False
        while number < _LONGEST_NAME and index + 1 < len(self.words) and gap.fullmatch(self._gap(index)):
            word = self.words[index + 1]
            index += 1
            if not number and self._has("titles", word.lower):
                gap = _CLOSE
                continue
            if word.lower in _CONNECTORS and index + 1 < len(self.words) and self.words[index + 1].text[0].isalpha():
                following = self.words[index + 1]
                if following.text[0].isupper() or following.lower in _CONNECTORS:
                    gap, connected = _CLOSE, True
                    continue
            titled = not number and first_is_name
            is_name = connected or word.is_initial or word.is_surname
            is_name |= titled and not (word.is_shouted and word.is_report_word)
            looks_named = word.text[0].isupper() and is_name
            lower_case = titled and word.text.islower() and not word.is_common
            if not (looks_named or lower_case):
                return
            self._set(word)
            number, gap, connected = number + 1, _CLOSE, False

    def _title(self, index: int, word: Word) -> None:
        is_size = word.lower == "fr" and re.search(r"\d[ -]?$", self.text[max(0, word.start - 3) : word.start])
        if self._has("titles", word.lower) and not is_size:  # "8 Fr" is the size of a catheter
            self._run(index, first_is_name=True)

    def _role(self, index: int, word: Word) -> None:
        if self._has("roles", word.lower) and index + 1 < len(self.words):
            following = self.words[index + 1]
            is_like_a_name = following.is_capital or self.rules.is_name(following.lower)
            if following.is_initial or (following.is_surname and is_like_a_name):
                self._run(index, first_is_name=False, pattern=_AFTER_ROLE)

    def _credential(self, index: int, word: Word) -> None:
        is_written_so = word.text.isupper() or "-" in word.text or word.text in ("PhD", "Ph")
        if not is_written_so or not self._has("credentials", word.lower):
            return
        for back in range(index - 1, max(-1, index - 4), -1):
            gap = self._gap(back)
            previous = self.words[back]
            if not (_CLOSE.fullmatch(gap) or _COMMA.fullmatch(gap) or gap in (".,", "., ")):
                return
            if not previous.text[0].isupper() or not (previous.is_initial or previous.is_surname):
                return
            if not self._has("credentials", previous.lower):
                self._set(previous)

    def _last_first(self, index: int, word: Word) -> None:
        if index + 1 >= len(self.words) or not _COMMA.fullmatch(self._gap(index)):
            return
        following = self.words[index + 1]
        pair = (word, following)
        if not (following.text[0].isupper() and following.is_surname):
            return
        has_known_name = any(self.rules.is_name(part.lower) for part in pair) or all(
            part.is_listed and not part.is_report_word for part in pair
        )
        strangers = not (word.is_common or following.is_common) and (word.is_first or not word.is_shouted)
        if has_known_name or strangers:
            self._set(word)
            self._run(index, first_is_name=False, pattern=_COMMA)

    def _act(self, index: int, word: Word) -> None:
        """Mark a name after a phrase such as "discussed with" or "called to"."""
        is_short_form = word.lower == "w" and self.text[word.start - 2 : word.start].lower() == "d/"
        if not (is_short_form or self._has("acts", word.lower)):
            return
        for ahead in range(index, min(index + _REACH, len(self.words) - 1)):
            following = self.words[ahead + 1]
            if following.sentence != word.sentence:
                return
            close = ahead == index or self.words[ahead].lower in _PREPOSITIONS
            is_listed, is_report_word = following.is_listed, following.is_report_word
            is_name = following.is_capital and not following.is_first and following.is_surname
            is_name &= is_listed or not following.text.isupper()
            if is_name and (not is_report_word or (close and is_listed)):
                self._run(ahead, first_is_name=False, pattern=re.compile(r"[^\n]{1,6}"))
                return
            is_stranger = not following.is_common and (following.text.islower() or following.is_shouted)
            if close and (is_stranger or (following.is_shouted and is_listed and not is_report_word)):
                self._set(following)
                return

    def _reaction(self, word: Word) -> None:
        """Mark a name before a phrase such as "was notified" or "is aware"."""
        if len(word.text) < 2:
            return
        if not word.is_listed and (word.is_report_word or (word.text.isupper() and not word.is_shouted)):
            return
        following_text = re.sub(r"^['’]s\b", "", self.text[word.end : word.end + 60])
        if _patterns()["reaction"].match(following_text):
            self._set(word)

    def _labels(self) -> None:
        """Mark the names after labels such as "Name:" or "Referring physician:"."""
        if not _LABEL_MARK.search(self.text):
            return
        for label in _patterns()["marked_label"].finditer(self.text):
            self._value(label.end())
        for label in re.finditer(r"^\W*(?:patient(?:'s)?[ \t]+name|name)[ \t]+", self.text, re.I | re.M):
            self._value(label.end())
        for label in _patterns()["label"].finditer(self.text):
            self._value(label.end())

    def _value(self, position: int) -> None:
        index = next((number for number, word in enumerate(self.words) if word.start >= position), None)
        if index is None or self.text[position : self.words[index].start].strip(" \t("):
            return
        for number in range(index, min(index + _LONGEST_NAME, len(self.words))):
            word = self.words[number]
            if word.lower in _STOPS or not (word.text[0].isupper() or word.lower in _CONNECTORS):
                return
            is_title = self._has("titles", word.lower) or self._has("credentials", word.lower)
            if word.lower not in _CONNECTORS and not is_title:
                is_label = re.match(r"[ \t]*[:#]", self.text[word.end : word.end + 3])
                if is_label or (word.is_report_word and not word.is_listed and not word.is_initial):
                    return
                self._set(word)
            if not re.fullmatch(r"[ \t]|[.,]{1,2}[ \t]{0,2}|\.?-", self._gap(number)):
                return

    def _institutions(self) -> None:
        """Mark the names of hospitals. They are capitalised words before "Hospital" or after "Klinik"."""
        for match in _patterns()["institution"].finditer(self.text):
            before = [index for index, word in enumerate(self.words) if word.end <= match.start()][-4:]
            for index in reversed(before):
                word = self.words[index]
                ahead = self.text[word.end : self.words[index + 1].start] if index + 1 < len(self.words) else " "
                if not re.fullmatch(r"['’]?s?\.?[ \t-]+", ahead) or not word.text[0].isupper() or word.is_shouted:
                    break
                if word.lower == "st" or (word.is_surname and not word.is_report_word):
                    self._set(word, ADDRESS)
            following = next((word for word in self.words if word.start >= match.end()), None)
            if following is None or not match[0][0].isupper() or match[0].lower() in ("hospital", "clinic"):
                continue
            is_adjacent = not self.text[match.end() : following.start].strip(" \t")
            is_unlisted = following.is_report_word and not following.is_listed
            if is_adjacent and following.is_capital and not is_unlisted and not self._has("titles", following.lower):
                self._set(following, ADDRESS)

    def _is_strange(self, word: Word) -> bool:
        """Return whether an uncommon word is probably a name (in a list of names, or capitalised inside a sentence)."""
        if len(word.text) < 2 or _PLACEHOLDER in word.text or word.lower in self.rules.foreign:
            return False
        if word.lower in self.rules.names:
            if word.text.islower():
                return self.is_lower_case and not word.is_foreign and len(word.text) >= _SHORTEST_LOWER_CASE
            shortest = 3 if word.is_shouted else _SHORTEST_ABBREVIATION
            return not word.text.isupper() or len(word.text) >= shortest
        if not word.is_capital or word.is_first or word.is_foreign or word.text.isupper():
            return False
        return not any(map(str.isupper, word.text[1:])) or "-" in word.text

    def _places(self) -> None:
        """Mark a capitalised word after "in" or "from" that is not a known word of reports."""
        for previous, word in zip(self.words, self.words[1:], strict=False):
            if previous.lower not in _PLACES or word.kind or not word.is_capital or len(word.text) < 3:
                continue
            is_known = self.rules.report_words.is_known(word.lower) or self._has("eponyms", word.lower)
            if word.sentence == previous.sentence and not word.text.isupper() and not is_known:
                self._set(word, ADDRESS)

    def _extend(self) -> None:
        """Mark the words next to a name that belong to it, such as first names, initials and "van der"."""
        for step in (1, -1):
            order = range(len(self.words) - 1) if step == 1 else range(len(self.words) - 1, 0, -1)
            for index in order:
                word, neighbour = self.words[index], self.words[index + step]
                if not word.kind or neighbour.kind:
                    continue
                gap = self._gap(index if step == 1 else index - 1)
                if not _CLOSE.fullmatch(gap) or neighbour.is_shouted != word.is_shouted:
                    continue
                if step == 1 and "." in gap and not word.is_initial:
                    continue  # the end of a sentence
                if neighbour.is_initial and not neighbour.is_first | (step == 1 and neighbour.text in ("I", "A")):
                    neighbour.kind = word.kind
                elif neighbour.text[0].isupper() and len(neighbour.text) > 1:
                    after_initial = word.is_initial and step == 1 and not neighbour.text.isupper()
                    is_name = neighbour.is_listed and (after_initial or not neighbour.is_report_word)
                    if (is_name or not neighbour.is_common) and not self._has("titles", neighbour.lower):
                        neighbour.kind = word.kind

    def _repeats(self) -> None:
        """Mark all repetitions of a name. A common word is marked only if it is capitalised inside a sentence."""
        for word in self.words:
            if word.kind or word.lower not in self.certain or len(word.text) < 2:
                continue
            if not word.is_common or (word.is_capital and not word.is_first and not word.text.isupper()):
                word.kind = NAME
