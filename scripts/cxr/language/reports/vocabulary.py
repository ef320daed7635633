"""Detection of unknown words (neither in the lexicon nor common English) and of reports that do not describe the chest.

A sentence with an unknown word may state a finding that the rules engine does not understand.
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from cxr.base.paths import RESOURCES
from cxr.base.resources import load_texts, phrase_pattern

RESOURCE_FILES = ("reading", "lexicon")
WORD = re.compile(r"[^\W\d_]+")
LONGEST_WORD = 40  # characters; longer words are truncated
_ENDINGS = (
    ("s", ("",)), ("es", ("", "e")), ("ies", ("y",)), ("ed", ("", "e")), ("ied", ("y",)), ("ing", ("", "e")),
    ("ly", ("", "le")), ("ally", ("",)), ("er", ("", "e")), ("est", ("", "e")), ("al", ("",)), ("able", ("", "e")),
    ("less", ("",)), ("like", ("",)), ("ness", ("",)),
)  # fmt: skip
_BEGINNINGS = ("un", "non", "re", "pre", "post", "sub", "mid", "infra", "supra", "inter", "intra", "extra", "peri",
               "para")  # fmt: skip
_SHORTEST_STEM, _SHORTEST_REST = 3, 4  # minimum letters without an ending, and without a prefix
_NAMED = frozenset(("dr", "drs", "doctor", "mr", "mrs", "ms", "prof"))
"""Titles. The capitalised words after a title are names."""


@dataclass(frozen=True)
class Vocabulary:
    """Known words in lower case. A sentence with a word of ``talk`` is about the report, not about a finding."""

    words: frozenset[str]
    talk: frozenset[str]

    def is_known(self, word: str) -> bool:
        """Return whether a lower-case word is known or is a regular form of a known word, such as its plural."""
        return word in self.words or _is_derived(self, word)

    def unknown(self, sentences: list[str]) -> list[dict]:
        """Return a dict of word, sentence_index and finding for each unknown word, in text order. ``sentence_index`` is
        the number of its first sentence, from 1. ``finding``: whether a sentence with the word could state a finding.
        Single letters, numbers, placeholders ("___") and names after a title are ignored."""
        row_by_word: dict[str, dict] = {}
        for number, sentence in enumerate(sentences, start=1):
            words = [match[0] for match in WORD.finditer(sentence)]
            unknown_words = [w for w in _without_names(words) if len(w) > 1 and not self.is_known(w.lower())]
            holds = bool(unknown_words) and self.talk.isdisjoint(word.lower() for word in words)
            for word in unknown_words:
                name = word.lower()[:LONGEST_WORD]
                row = row_by_word.setdefault(name, {"word": name, "sentence_index": number, "finding": False})
                row["finding"] = row["finding"] or holds
        return list(row_by_word.values())

    def share(self, sentences: list[str], unknown: list[dict]) -> float:
        """Return the fraction (0–1) of a section's distinct words that are unknown and could be part of a finding.
        ``unknown``: the result of :meth:`unknown`."""
        section_words = {word.lower() for sentence in sentences for word in WORD.findall(sentence) if len(word) > 1}
        return round(sum(row["finding"] for row in unknown) / max(1, len(section_words)), 4)


def _without_names(words: list[str]) -> list[str]:
    """Return the words without titles and without up to two capitalised words after each ("Dr. Anna Kowalczyk")."""
    remaining_words, names = [], 0
    for word in words:
        if word.lower() in _NAMED:
            names = 2
        elif names and word[0].isupper():
            names -= 1
        else:
            names = 0
            remaining_words.append(word)
    return remaining_words


@lru_cache(maxsize=1 << 17)
def _is_derived(vocabulary: Vocabulary, word: str) -> bool:
    stems = [word, *(word[len(start) :] for start in _BEGINNINGS if word.startswith(start))]
    return any(
        base in vocabulary.words
        for stem in stems
        if stem is word or len(stem) >= _SHORTEST_REST
        for base in (stem, *_bases(stem))
    )


def _bases(word: str) -> list[str]:
    bases = []
    for end, additions in _ENDINGS:
        stem = word[: -len(end)]
        if word.endswith(end) and len(stem) >= _SHORTEST_STEM:
            bases += [stem + addition for addition in additions]
            if end in ("ed", "ing", "er", "est") and stem[-1] == stem[-2]:
                bases.append(stem[:-1])
    return bases


@cache
def load_vocabulary(misspellings: bool = True) -> Vocabulary:
    """Read the known words of ``resources/reading/english.yaml`` and of the folder ``resources/lexicon``.
    ``misspellings``: whether to add the misspelt words that the rules engine corrects, which loads spaCy (seconds)."""
    english = load_texts("reading/english.yaml")
    talk = frozenset(english["talk"])
    trees = [{key: tree for key, tree in english.items() if key != "talk"}]
    trees += [load_texts(f"lexicon/{path.name}") for path in sorted((RESOURCES / "lexicon").glob("*.yaml"))]
    words = {word for tree in trees for text in _texts(tree) for word in WORD.findall(text.lower())}
    if misspellings:
        from cxr.language.reports.rules.lexicon import load_lexicon

        words.update(load_lexicon().spelling)
    return Vocabulary(frozenset(words | talk), talk)


def _texts(tree: object) -> list[str]:
    if isinstance(tree, dict):
        return [text for pair in tree.items() for part in pair for text in _texts(part)]
    if isinstance(tree, list):
        return [text for part in tree for text in _texts(part)]
    return [str(tree)]


@dataclass(frozen=True)
class Substance:
    """Words that tell whether a report describes the chest. A sentence that ``phrases`` matches ("see above") is about
    the report itself. ``says`` has words that describe the chest."""

    phrases: re.Pattern
    says: frozenset[str]

    def lacks(self, sentences: list[str]) -> bool:
        """Return whether no sentence describes the chest."""
        chest_sentences = (sentence.lower() for sentence in sentences if not self.phrases.search(sentence))
        return all(self.says.isdisjoint(WORD.findall(sentence)) for sentence in chest_sentences)


@cache
def load_substance() -> Substance:
    """Read ``resources/reading/no_report.yaml``."""
    data = load_texts("reading/no_report.yaml")
    return Substance(re.compile(rf"\b{phrase_pattern(data['phrases'])}\b", re.I), frozenset(data["says"]))
