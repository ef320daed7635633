"""Scores of a generated report: ROUGE-L, BLEU-4 from counts that are summed over texts, F1 of facts, GREEN."""

import re
from collections import Counter
from collections.abc import Collection, Hashable
from functools import cache

import numpy as np

ORDERS = 4  # length of the longest n-grams of BLEU-4
COUNTS = 2 * ORDERS + 2
"""Number of counts per text: matched n-grams and all n-grams of each order, text length, reference length."""
_TOKEN = re.compile(r"\w+|[^\w\s]")


def rouge_l(text: str, reference: str) -> float:
    """Return ROUGE-L (Lin 2004), the F1 of the longest common subsequence of stemmed words (package rouge-score)."""
    return float(_scorer().score(reference, text)["rougeL"].fmeasure)


@cache
def _scorer():
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)


def tokenize(text: str) -> list[str]:
    """Split a text into BLEU's tokens: words in lower case, and punctuation marks."""
    return _TOKEN.findall(text.lower())


def bleu_counts(text: str, reference: str) -> np.ndarray:
    """Return the counts of a text for :func:`bleu`, float64 (:data:`COUNTS`,). For a corpus, sum them over texts."""
    text_tokens, reference_tokens = tokenize(text), tokenize(reference)
    counts = np.zeros(COUNTS)
    for order in range(1, ORDERS + 1):
        ours, theirs = (
            Counter(zip(*(part[at:] for at in range(order)), strict=False)) for part in (text_tokens, reference_tokens)
        )
        counts[order - 1] = (ours & theirs).total()
        counts[ORDERS + order - 1] = ours.total()
    counts[-2:] = len(text_tokens), len(reference_tokens)
    return counts


def bleu(counts: np.ndarray) -> np.ndarray:
    """Return the unsmoothed corpus BLEU-4 (Papineni 2002), float (...), from summed counts (..., :data:`COUNTS`).

    0 if an n-gram order has no match; NaN if the reference is empty.
    """
    counts = np.asarray(counts, np.float64)
    matched, totals = counts[..., :ORDERS], counts[..., ORDERS:-2]
    length, reference_length = counts[..., -2], counts[..., -1]
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.exp(np.log(matched / totals).mean(axis=-1))
        brevity = np.exp(np.minimum(0.0, 1.0 - reference_length / length))
    value = np.where((matched > 0).all(axis=-1), precision * brevity, 0.0)
    return np.where(reference_length > 0, value, np.nan)


def set_f1(predicted: Collection[Hashable], reference: Collection[Hashable], empty: float = 0.0) -> float:
    """Return the F1 of two sets of facts; ``empty``: value if both are empty (0 in RadGraph-F1)."""
    ours, theirs = set(predicted), set(reference)
    total = len(ours) + len(theirs)
    return 2 * len(ours & theirs) / total if total else empty


def green_score(matched: int, errors: int) -> float:
    """Return GREEN: matched findings / (matched + clinically significant errors). Raises ValueError if one is < 0."""
    if min(matched, errors) < 0:
        raise ValueError(f"{matched} matched findings and {errors} errors: counts must not be negative")
    return matched / (matched + errors) if matched else 0.0
