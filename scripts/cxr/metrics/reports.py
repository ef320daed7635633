"""Scores of a generated report: ROUGE-L, BLEU-4 from counts that add up over texts, F1 of facts, GREEN."""

import re
from collections import Counter
from collections.abc import Collection, Hashable
from functools import cache

import numpy as np

ORDERS = 4  # longest n-gram of BLEU-4
COUNTS = 2 * ORDERS + 2
"""Number of counts per text: matched n-grams and all n-grams of each order, text length, reference length."""
_TOKEN = re.compile(r"\w+|[^\w\s]")


def rouge_l(text: str, reference: str) -> float:
    """Return ROUGE-L (Lin 2004), the F1 of the longest common subsequence of stemmed words, from rouge-score."""
    return float(_scorer().score(reference, text)["rougeL"].fmeasure)


@cache
def _scorer():
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)


def tokenize(text: str) -> list[str]:
    """Return the lower-case words and punctuation marks of a text, BLEU's tokens."""
    return _TOKEN.findall(text.lower())


def bleu_counts(text: str, reference: str) -> np.ndarray:
    """Return a text's counts, float64 (:data:`COUNTS`,); summed over texts they are the corpus's."""
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
    """Return the corpus BLEU-4, float (...), of summed counts (..., :data:`COUNTS`), unsmoothed (Papineni 2002).

    0 where an order has no match; NaN without a reference.
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
    """Return the F1 of two sets of facts; ``empty`` if both are empty, where RadGraph-F1 uses 0."""
    ours, theirs = set(predicted), set(reference)
    total = len(ours) + len(theirs)
    return 2 * len(ours & theirs) / total if total else empty


def green_score(matched: int, errors: int) -> float:
    """Return GREEN, matched findings / (matched + clinically significant errors). Raises ValueError if one is < 0."""
    if min(matched, errors) < 0:
        raise ValueError(f"{matched} matched findings and {errors} errors: counts must not be negative")
    return matched / (matched + errors) if matched else 0.0
