"""Word lists for the detection of identifiers: common words, names of people, and ``identifiers.yaml``.

As in Philter (Norgeot et al. 2020, doi:10.1038/s41746-020-0258-y), words in a list of harmless words are kept. The
lists of harmless words and of names are from the package ``philter_ucsf``. Words that reports use are harmless, too.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from cxr.base.faults import Broken
from cxr.base.resources import load_texts, phrase_pattern
from cxr.language.reports import language, vocabulary

RESOURCE_FILES = ("privacy/identifiers.yaml",)
_PACKAGE = "philter_ucsf"
_LISTS = {
    "harmless": ("whitelists/whitelist_plus_fps_091718_nonames.json",),
    "names": ("blacklists/firstnames_minus_fps.json", "blacklists/lastnames_minus_fps.json"),
}
_HARMLESS = ("eponyms", "titles", "roles", "credentials", "id_labels", "phone_labels", "institutions", "streets")
"""Keys of ``identifiers.yaml`` whose words are not names."""


@dataclass(frozen=True)
class Rules:
    """Word lists for the detection of identifiers.

    ``phrases`` and ``words`` have the lists of ``identifiers.yaml`` by key, as patterns and as sets. ``surrogates`` are
    invented names that replace real ones. ``report_words`` are words of English reports. ``harmless`` and ``names`` are
    Philter's lists. ``chest`` has words that describe the chest, and ``foreign`` has words of other languages.
    """

    phrases: dict[str, str]
    surrogates: tuple[str, ...]
    words: dict[str, frozenset[str]]
    report_words: vocabulary.Vocabulary
    harmless: frozenset[str]
    names: frozenset[str]
    chest: vocabulary.Substance
    foreign: frozenset[str]

    def is_name(self, word: str) -> bool:
        """Return whether a lower-case word is in the lists of names and is not a common word."""
        return word in self.names and not self.is_common(word)

    def is_common(self, word: str) -> bool:
        """Return whether a lower-case word is in a list of words of reports, medicine or general language."""
        if word in self.words["surrogates"]:
            return False
        return (
            word in self.report_words.words
            or any(word in self.words[name] for name in _HARMLESS)
            or word in self.harmless
            or (word not in self.names and self.report_words.is_known(word))
        )


@cache
def load_rules() -> Rules:
    """Load the word lists. Raises Broken if the package of word lists is not installed."""
    texts = load_texts(RESOURCE_FILES[0])
    report_words = vocabulary.load_vocabulary(misspellings=False)
    lists = {name: frozenset().union(*map(_read_words, files)) for name, files in _LISTS.items()}
    return Rules(
        phrases={name: phrase_pattern(phrases) for name, phrases in texts.items()},
        surrogates=tuple(texts["surrogates"]),
        words={name: frozenset(word.lower() for word in phrases) for name, phrases in texts.items()},
        report_words=report_words,
        harmless=lists["harmless"],
        names=lists["names"] | frozenset(word.lower() for word in texts["surrogates"]),
        chest=vocabulary.load_substance(),
        foreign=language.all_foreign_words(language.load_languages(report_words)),
    )


def _read_words(name: str) -> frozenset[str]:
    package = find_spec(_PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise Broken(
            f"reports: this Python lacks the package {_PACKAGE}: run with the rule's environment, or install it"
        )
    path = Path(package.submodule_search_locations[0]) / "filters" / name
    return frozenset(json.loads(path.read_text(encoding="utf-8")))
