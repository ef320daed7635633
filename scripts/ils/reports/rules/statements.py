"""What a section says as a whole: whether it speaks of lungs or pleura, whether it rests on a comparison alone."""

import re
from functools import cache

from ils.reports.rules.lexicon import Lexicon

_LUNG = ("lung", "pleura")


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
    """Tell whether the section says anything about lungs or pleura."""
    lung = _patterns(lexicon)[2]
    return any(item["category"] in _LUNG for item in tuples) or any(lung.search(text) for text in sentences)


def comparison_only(sentences: list[str], tuples: list[dict], lexicon: Lexicon) -> bool:
    """Tell whether all that the section says of the lungs is how they compare with an earlier picture.

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
