"""Whether a section is English: small words and words of reports of other languages, letters of other scripts.

The rules engine reads English alone: to it the denial "Sin edema" is an edema.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from cxr.language.reports.layouts import folded
from cxr.language.reports.vocabulary import WORD, Vocabulary

_CLEAR = 2
"""Words of another language that make a sentence of an English section one of that language."""
_LATIN_LETTERS = 0.7
_UNKNOWN, _ENOUGH_WORDS = 0.7, 8
"""Share of unknown words from which a section of so many words is of a language that has no table."""


@dataclass(frozen=True)
class Language:
    """``words`` that no English report uses, and ``loose`` ones that count only beside them."""

    name: str
    words: frozenset[str]
    loose: frozenset[str]


@cache
def read(path: str, vocabulary: Vocabulary) -> tuple[Language, ...]:
    """Read ``resources/reading/languages.yaml``; of a language's words those that are English too are loose."""
    data = yaml.load(Path(path).read_text(encoding="utf-8"), yaml.BaseLoader)
    tables = ((name, set(table["words"]), set(table["loose"])) for name, table in data.items())
    return tuple(
        Language(
            name, frozenset(word for word in words - loose if not vocabulary.known(word)), frozenset(words | loose)
        )
        for name, words, loose in tables
    )


def foreign(sentences: list[str], languages: tuple[Language, ...], vocabulary: Vocabulary) -> str | None:
    """Return the language of a section that is not, or not wholly, English; None for English.

    A section is foreign if it has more words of another language than English ones, or a sentence with two of these
    and at most half as many English ones.
    """
    text = " ".join(sentences)
    if script := _script(text):
        return script
    told = [[word.lower() for word in WORD.findall(folded(sentence))] for sentence in sentences]
    whole = [word for words in told for word in words]
    any_of = _every(languages)
    for words in [] if any_of.isdisjoint(whole) else [whole, *told]:
        own, english, name = _best(words, languages, vocabulary)
        if own > english if words is whole else own >= _CLEAR * max(1, english):
            return name
    strange = sum(len(word) > 1 and not vocabulary.known(word) for word in set(whole))
    return "unknown" if len(set(whole)) >= _ENOUGH_WORDS and strange > _UNKNOWN * len(set(whole)) else None


@cache
def _every(languages: tuple[Language, ...]) -> frozenset[str]:
    """Return the words that tell one of the languages: most English sections hold none of them."""
    return frozenset().union(*(language.words for language in languages))


def _best(words: list[str], languages: tuple[Language, ...], vocabulary: Vocabulary) -> tuple[int, int, str]:
    """Return words of the likeliest other language, English words beside them, and its name."""
    counts = [
        (sum(word in language.words for word in words), sum(word in language.loose for word in words), language)
        for language in languages
    ]
    own, _, language = max(counts, key=lambda count: count[:2])
    english = sum(len(word) > 1 and word not in language.loose and vocabulary.known(word) for word in words)
    return own, english, language.name


def _script(text: str) -> str | None:
    """Return the script of a text that is mostly not in Latin letters."""
    if text.isascii():
        return None
    letters = re.findall(r"[^\W\d_]", text)
    strange = [letter for letter in letters if not unicodedata.name(letter, "").startswith("LATIN")]
    if len(strange) <= (1 - _LATIN_LETTERS) * len(letters):
        return None
    return f"{unicodedata.name(strange[0], 'another').split()[0].capitalize()} script"
