"""A tokenizer for spaCy, and the replacement of shorthand and misspelt words by the intended words.

Reports and the phrases of the lexicon use the same tokenizer, so that they match. Positions refer to the original text.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from spacy.tokens import Doc

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+|_+|[^\w\s]")
_HYPHEN = re.compile(r"(?<=\w)[-‐‑–](?=\w)")
LONGEST_WORD = 60  # characters; longer words are truncated


def split_words(text: str) -> list[tuple[str, int, int]]:
    """Return (lower-case word, start, end) of each token. Hyphens inside words count as blanks."""
    hyphens = {match.start() for match in _HYPHEN.finditer(text)} if "-" in text or "–" in text or "‑" in text else ()
    return [
        (match.group()[:LONGEST_WORD].lower(), match.start(), match.end())
        for match in _TOKEN.finditer(text)
        if match.start() not in hyphens
    ]


class Tokenizer:
    """A spaCy tokenizer that uses :func:`split_words`."""

    def __init__(self, vocab):
        self.vocab = vocab

    def __call__(self, text: str) -> Doc:
        return Doc(self.vocab, words=[word for word, _, _ in split_words(text)] or [" "])

    def pipe(self, texts: Iterable[str], batch_size: int = 0) -> Iterator[Doc]:
        """Tokenize many texts; negspacy needs this method."""
        del batch_size
        yield from (self(text) for text in texts)


Token = tuple[str, int, int]
_NUMBER = "#"
_TWO_SLIPS = 10
"""Minimum length, in letters, of a word that is recognised even with two typing errors ("slips")."""


class Shorthand:
    """Replaces shorthand and misspelt words by the intended words. ``forms`` is {expansion: its short forms}.
    ``unless`` is {short form: adjacent words that prevent the expansion}. ``slips`` is {misspelt word: intended word}.
    ``words`` are recognised even with two typing errors if they are long. ``known_words`` are never corrected."""

    def __init__(
        self, forms: dict[str, list], unless: dict[str, list], slips: dict[str, str], words, known_words: set[str]
    ):
        self._by_first: dict[str, list[tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]]] = {}
        for expansion, written in forms.items():
            meant = _words(expansion)
            for form in written:
                key = _words(form)
                apart = frozenset(str(word) for word in unless.get(str(form), ()))
                self._by_first.setdefault(key[0], []).append((key, meant, apart))
        for rows in self._by_first.values():
            rows.sort(key=lambda row: -len(row[0]))
        self._slips = slips
        self._known = known_words
        self._long = _by_deletion([word for word in words if len(word) >= _TWO_SLIPS])
        self._right = lru_cache(maxsize=50_000)(self._read)

    def tokens(self, text: str) -> list[Token]:
        """Return (word, start, end) of each token. All words of an expansion have the position of the short form."""
        word_spans = split_words(text)
        words = [word for word, _, _ in word_spans]
        tokens: list[Token] = []
        at = 0
        while at < len(word_spans):
            form = self._form(words, at) if words[at] in self._by_first else None
            if form is None:
                word, start, end = word_spans[at]
                tokens.append((self._right(word), start, end))
                at += 1
                continue
            length, meant = form
            span = word_spans[at][1], word_spans[at + length - 1][2]
            tokens += [(word, *span) for word in meant]
            at += length
        return tokens

    def _form(self, words: list[str], at: int) -> tuple[int, tuple[str, ...]] | None:
        for key, meant, apart in self._by_first[words[at]]:
            end = at + len(key)
            if tuple(words[at:end]) != key:
                continue
            adjacent_words = {*words[max(0, at - 1) : at], *words[end : end + 1]}
            numbered = _NUMBER in apart and at > 0 and words[at - 1][:1].isdigit()
            if not numbered and apart.isdisjoint(adjacent_words):
                return len(key), meant
        return None

    def _read(self, word: str) -> str:
        """Return the intended word of a misspelt word, and any other word unchanged."""
        if word in self._slips:
            return self._slips[word]
        if len(word) < _TWO_SLIPS - 2 or word in self._known or not word.isascii():
            return word
        meant = {right for key in _deletions(word) for right in self._long.get(key, ())}
        near = [right for right in meant if _near(word, right)]
        return near[0] if len(near) == 1 else word


def _words(phrase: str) -> tuple[str, ...]:
    return tuple(word for word, _, _ in split_words(str(phrase)))


def _deletions(word: str) -> set[str]:
    """Return the word and all its variants with one or two letters removed."""
    once = {word[:i] + word[i + 1 :] for i in range(len(word))}
    return {word, *once, *(form[:i] + form[i + 1 :] for form in once for i in range(len(form)))}


def _by_deletion(words: list[str]) -> dict[str, list[str]]:
    words_by_deletion: dict[str, list[str]] = {}
    for word in words:
        for form in _deletions(word):
            words_by_deletion.setdefault(form, []).append(word)
    return words_by_deletion


def _near(word: str, right: str) -> bool:
    """Return whether ``word`` may be ``right`` with at most two typing errors. Both must start with the same letter,
    and both or neither must end in "s"."""
    if word[0] != right[0] or abs(len(word) - len(right)) > 2 or word.endswith("s") != right.endswith("s"):
        return False
    before, row = None, list(range(len(right) + 1))
    for i, letter in enumerate(word, start=1):
        older, before, row = before, row, [i]
        for j, right_letter in enumerate(right, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != right_letter))
            if older is not None and j > 1 and letter == right[j - 2] and word[i - 2] == right_letter:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1] <= 2
