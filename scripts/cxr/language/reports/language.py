"""Detection of sections that are not in English, by common words of other languages and letters of other scripts.

The rules engine reads only English. It would read the Spanish denial "Sin edema" as an edema.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

from cxr.base.resources import load_texts
from cxr.language.reports.layouts import fold_case
from cxr.language.reports.vocabulary import WORD, Vocabulary

_CLEAR = 2
"""A sentence is foreign if it has at least this many foreign words, and at least this many per English word."""
_FUNCTION_WORDS = frozenset(
    ("the", "of", "is", "are", "was", "were", "and", "with", "without", "there", "which", "has", "have", "been", "be",
     "from", "or", "this", "that", "to", "by", "at", "not")
)  # fmt: skip
"""Words that nearly every English sentence has and that no language of ``languages.yaml`` uses in reports."""
_LATIN_LETTERS = 0.7  # minimum fraction of Latin letters
_UNKNOWN, _ENOUGH_WORDS = 0.7, 8
"""A section of at least ``_ENOUGH_WORDS`` distinct words is in an unlisted language if more than this fraction of them
is unknown."""


@dataclass(frozen=True)
class Language:
    """A foreign language. ``words`` are its words that never occur in English reports. ``loose`` has all its words in
    ``languages.yaml``."""

    name: str
    words: frozenset[str]
    loose: frozenset[str]


@cache
def load_languages(vocabulary: Vocabulary) -> tuple[Language, ...]:
    """Read ``resources/reading/languages.yaml``. Words that are also English are only in ``Language.loose``."""
    languages = []
    for name, table in load_texts("reading/languages.yaml").items():
        words, loose = set(table["words"]), set(table["loose"])
        foreign_words = frozenset(word for word in words - loose if not vocabulary.is_known(word))
        languages.append(Language(name, foreign_words, frozenset(words | loose)))
    return tuple(languages)


def detect_foreign(sentences: list[str], languages: tuple[Language, ...], vocabulary: Vocabulary) -> str | None:
    """Return the language or script of a section that is not entirely English, or None for an English section.

    A section is foreign if it has more foreign than English words, or a sentence with at least two foreign words and at
    most half as many English words. It is also foreign if it has a foreign word but no English function word, because
    names of findings are the same in several languages ("Nessuna pneumonia"). Mostly unknown words give "unknown".
    """
    text = " ".join(sentences)
    if script := _foreign_script(text):
        return script
    words_by_sentence = [[word.lower() for word in WORD.findall(fold_case(sentence))] for sentence in sentences]
    all_words = [word for words in words_by_sentence for word in words]
    foreign_words = all_foreign_words(languages)
    for words in [] if foreign_words.isdisjoint(all_words) else [all_words, *words_by_sentence]:
        num_foreign, num_english, name = _likeliest_language(words, languages, vocabulary)
        if words is all_words and _FUNCTION_WORDS.isdisjoint(words) and _has_plain_word(sentences, foreign_words):
            return name
        if num_foreign > num_english if words is all_words else num_foreign >= _CLEAR * max(1, num_english):
            return name
    num_unknown = sum(len(word) > 1 and not vocabulary.is_known(word) for word in set(all_words))
    return "unknown" if len(set(all_words)) >= _ENOUGH_WORDS and num_unknown > _UNKNOWN * len(set(all_words)) else None


def _has_plain_word(sentences: list[str], foreign_words: frozenset[str]) -> bool:
    """Return whether the sentences have one of ``foreign_words`` that is probably not a name. The word must be in lower
    case or first in its sentence, and must not follow a hyphen."""
    return any(
        fold_case(word) in foreign_words and (number == 0 or word.islower()) and f"-{word}" not in sentence
        for sentence in sentences
        for number, word in enumerate(WORD.findall(sentence))
    )


@cache
def all_foreign_words(languages: tuple[Language, ...]) -> frozenset[str]:
    """Return the foreign words (``Language.words``) of all languages."""
    return frozenset().union(*(language.words for language in languages))


def _likeliest_language(words: list[str], languages: tuple, vocabulary: Vocabulary) -> tuple[int, int, str]:
    """Return (number of foreign words, number of English words, name) for the language that has most of ``words``."""

    def count(language: Language) -> tuple[int, int]:
        return sum(word in language.words for word in words), sum(word in language.loose for word in words)

    language = max(languages, key=count)
    num_foreign = count(language)[0]
    num_english = sum(len(word) > 1 and word not in language.loose and vocabulary.is_known(word) for word in words)
    return num_foreign, num_english, language.name


def _foreign_script(text: str) -> str | None:
    """Return the name of a text's first non-Latin script, or None if at least 70 % of the letters are Latin."""
    if text.isascii():
        return None
    letters = re.findall(r"[^\W\d_]", text)
    foreign_letters = [letter for letter in letters if not unicodedata.name(letter, "").startswith("LATIN")]
    if len(foreign_letters) <= (1 - _LATIN_LETTERS) * len(letters):
        return None
    return f"{unicodedata.name(foreign_letters[0], 'another').split()[0].capitalize()} script"
