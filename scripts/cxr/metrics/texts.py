"""How alike a written text is to a reference: ROUGE-L, and BLEU-4 from counts that add up over texts."""

import re
from collections import Counter
from functools import cache

import numpy as np

ORDERS = 4
"""Longest n-gram of BLEU-4."""
COUNTS = 2 * ORDERS + 2
"""Counts of a text: matched n-grams, all n-grams, length of the text, length of the reference."""
_TOKEN = re.compile(r"\w+|[^\w\s]")


def rouge_l(text: str, reference: str) -> float:
    """Return the F1 of the longest common subsequence of words, stemmed, of the library rouge-score (Lin 2004)."""
    return float(_scorer().score(reference, text)["rougeL"].fmeasure)


@cache
def _scorer():
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)


def tokens(text: str) -> list[str]:
    """Return the words and marks of a text in lower case, as BLEU counts them here."""
    return _TOKEN.findall(text.lower())


def bleu_counts(text: str, reference: str) -> np.ndarray:
    """Return the counts of a text, float64 (:data:`COUNTS`,); those of many texts add up to the corpus's."""
    text_tokens, reference_tokens = tokens(text), tokens(reference)
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
