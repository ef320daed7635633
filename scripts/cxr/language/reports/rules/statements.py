"""Properties of a whole section: the lesion types that it leaves open, and its statements about the lungs."""

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple

from cxr.base.resources import phrase_pattern
from cxr.base.vocabulary import LESIONS
from cxr.language.reports.rules import structure
from cxr.language.reports.rules.lexicon import load_lexicon

_LUNG = ("lung", "pleura")


def find_asked_lesions(sentences: list[str], tuples: list[dict]) -> list[str]:
    """Return the lesion types that a section leaves open ("rule out pneumonia", "heart size cannot be assessed").

    Although the section does not affirm an open type, the dataset must not deny it. A definitively denied type is not
    open, except if it is denied at one location and another is not assessed ("none on the left; right not assessed"). A
    type is also open if an affirmed finding may hide it, as an obscured diaphragm may hide an effusion.
    """
    words = list(map(_find_words, sentences))
    hearts = any(kinds.not_assessed and kinds.heart_words for kinds in words)
    request_sentences = [text for text, kinds in zip(sentences, words, strict=True) if kinds.requests]
    denied_lesions = {
        item["lesion_type"] for item in tuples if item["presence"] == "negative" and item["certainty"] == "definitive"
    }
    unclear = {number for number, kinds in enumerate(words, start=1) if kinds.not_assessed}
    partly = {
        item["lesion_type"]
        for item in tuples
        if item["presence"] == "negative" and item["location"] and item["sentence_index"] in unclear
    }
    affirmed = {item["entity"] for item in tuples if item["presence"] == "positive"}
    entities = load_lexicon().entities
    open_lesions = {lesion for name in affirmed & entities.keys() for lesion in entities[name].leaves_open}
    open_lesions |= structure.undecided_lesions(request_sentences) if request_sentences else set()
    open_lesions |= {"cardiomegaly"} if hearts else set()
    return sort_lesions((open_lesions - denied_lesions) | partly)


def sort_lesions(lesions: Iterable[str]) -> list[str]:
    """Return the distinct lesion types in the order of ``LESIONS``."""
    return [lesion for lesion in LESIONS if lesion in set(lesions)]


class _Words(NamedTuple):
    """Whether a sentence has words of each kind, such as requests or comparisons. The lexicon lists these words."""

    requests: bool
    not_assessed: bool
    heart_words: bool
    comparison: bool
    normal_lungs: bool
    lung_words: bool


@lru_cache(maxsize=1 << 15)
def _find_words(sentence: str) -> _Words:
    return _Words(*(pattern.search(sentence) is not None for pattern in _patterns()))


@cache
def _patterns() -> list[re.Pattern]:
    lexicon = load_lexicon()
    phrase_lists = [lexicon.scope[name] for name in _Words._fields[:-1]]
    phrase_lists.append([*lexicon.lung_words, *(word + "s" for word in lexicon.lung_words)])
    return [re.compile(r"\b" + phrase_pattern(p, r"[\s-]+") + r"\b", re.IGNORECASE) for p in phrase_lists]


def mentions_lungs(sentences: list[str], tuples: list[dict]) -> bool:
    """Return whether a section mentions the lungs or the pleura."""
    is_lung = any(item["category"] in _LUNG for item in tuples)
    return is_lung or any(_find_words(text).lung_words for text in sentences)


def comparison_only(sentences: list[str], tuples: list[dict]) -> bool:
    """Return whether a section describes the lungs only by comparison with an earlier image. The section does more than
    compare if it calls the lungs normal, denies a finding, or affirms a finding in a sentence without a word of
    comparison. A denial of only a change ("no new opacity") is a comparison."""
    words = list(map(_find_words, sentences))
    compared = {number for number, kinds in enumerate(words, start=1) if kinds.comparison}
    if not compared or any(kinds.normal_lungs for kinds in words):
        return False
    return not any(
        item["category"] in _LUNG
        and (item["denies"] if item["presence"] == "negative" else item["sentence_index"] not in compared)
        for item in tuples
    )
