"""Statements of a whole section: whether it mentions lungs or pleura, and whether it only compares with before."""

import re
from collections.abc import Iterable
from functools import cache

from cxr.base.vocabulary import LESIONS
from cxr.language.reports.rules import structure
from cxr.language.reports.rules.lexicon import Lexicon

_LUNG = ("lung", "pleura")


def find_asked_lesions(sentences: list[str], tuples: list[dict], lexicon: Lexicon) -> list[str]:
    """Return the lesion types that a section only asks about ("rule out pneumonia", "heart size cannot be assessed").

    It leaves open whether they are there, so that its silence denies none of them. What it denies outright is denied,
    but not what it denies of one place beside another that cannot be judged ("none on the left; right not assessed").
    So do findings that a reader cannot tell from another (an obscured diaphragm from an effusion).
    """
    request, (unseen, heart) = _request(lexicon), _hearts(lexicon)
    hearts = any(unseen.search(text) and heart.search(text) for text in sentences)
    request_sentences = [text for text in sentences if request.search(text)]
    denied_lesions = {
        item["lesion_type"] for item in tuples if item["presence"] == "negative" and item["certainty"] == "definitive"
    }
    unclear = {number for number, text in enumerate(sentences, start=1) if unseen.search(text)}
    partly = {
        item["lesion_type"]
        for item in tuples
        if item["presence"] == "negative" and item["location"] and item["sentence_index"] in unclear
    }
    affirmed = {item["entity"] for item in tuples if item["presence"] == "positive"}
    partly |= {
        lesion
        for name in sorted(affirmed & lexicon.entities.keys())
        for lesion in lexicon.entities[name].leaves_open
        if lesion not in denied_lesions
    }
    requested_lesions = (structure.undecided_lesions(request_sentences, lexicon) if request_sentences else set()) | (
        {"cardiomegaly"} if hearts else set()
    )
    return sort_lesions((requested_lesions - denied_lesions) | partly)


def sort_lesions(lesions: Iterable[str]) -> list[str]:
    """Return lesion types once each, in the usual order."""
    return [lesion for lesion in LESIONS if lesion in set(lesions)]


@cache
def _hearts(lexicon: Lexicon) -> tuple[re.Pattern, re.Pattern]:
    return _any_of(lexicon.scope["not_assessed"]), _any_of(lexicon.scope["heart_words"])


@cache
def _request(lexicon: Lexicon) -> re.Pattern:
    return _any_of(lexicon.scope["requests"])


@cache
def _patterns(lexicon: Lexicon) -> tuple[re.Pattern, re.Pattern, re.Pattern]:
    return (
        _any_of(lexicon.scope["comparison"]),
        _any_of(lexicon.scope["normal_lungs"]),
        _any_of([*lexicon.lung_words, *(word + "s" for word in lexicon.lung_words)]),
    )


def _any_of(phrases: list[str]) -> re.Pattern:
    texts = sorted((r"[\s-]+".join(map(re.escape, phrase.split())) for phrase in phrases), key=lambda t: (-len(t), t))
    return re.compile(r"\b(?:" + "|".join(texts) + r")\b", re.IGNORECASE)


def mentions_lungs(sentences: list[str], tuples: list[dict], lexicon: Lexicon) -> bool:
    """True if the section says anything about lungs or pleura."""
    lung = _patterns(lexicon)[2]
    return any(item["category"] in _LUNG for item in tuples) or any(lung.search(text) for text in sentences)


def comparison_only(sentences: list[str], tuples: list[dict], lexicon: Lexicon) -> bool:
    """True if the section says nothing of the lungs except how they compare with an earlier image.

    A statement stands by itself if it calls the lungs normal, denies a finding outright, or affirms one without a word
    of change in its sentence.
    """
    comparison, normal, _ = _patterns(lexicon)
    compared = {number for number, text in enumerate(sentences, start=1) if comparison.search(text)}
    if not compared or any(normal.search(text) for text in sentences):
        return False
    return not any(
        item["category"] in _LUNG
        and (item["denies"] if item["presence"] == "negative" else item["sentence_index"] not in compared)
        for item in tuples
    )
