"""Mending a text where words have gone: articles, blanks, punctuation."""

import re

from cxr.radvlm.filtered.clauses import has_verb
from cxr.radvlm.filtered.patterns import CUT, LONE, SAFE

_MARKS = re.compile(f"[{CUT}{LONE}{SAFE}]")
_ARTICLE = re.compile(rf"\b(a|an)\s+{CUT}\s*(?=(\w+))", re.IGNORECASE)
_VOWEL = re.compile(r"(?:[aeio]|u(?!ni|su|re)|8|11\b|18\b|hour)", re.IGNORECASE)
_TIDY = (
    (re.compile(r"\s+"), " "),
    (re.compile(r"\(\s*\)"), ""),
    (re.compile(r"\s+([.,;:)])"), r"\1"),
    (re.compile(r"([,;])(?:\s*[,;])+"), r"\1"),
    (re.compile(r"[,;:]+(?=[.]|$)"), ""),
    (re.compile(r"^[\s,;:.]+"), ""),
    (re.compile(r"^(?:and|but|or|which|that|however|although)[\s,]+", re.IGNORECASE), ""),
    (re.compile(r"(?:\s|,)+(?:and|but|or|with|is|are|which|that|the|a|an|in|of)(?=[.,;]|$)", re.IGNORECASE), ""),
    (re.compile(r"\.{2,}"), "."),
)


def unmarked(text: str) -> str:
    """Return a text without the marks of work."""
    return _MARKS.sub("", text)


def alone(text: str) -> str:
    """Return a clause that stands alone now: without the article, if it has no verb."""
    return text if has_verb(text) else re.sub(r"^(?:the|an?) ", "", text, flags=re.IGNORECASE)


def articles(text: str) -> str:
    """Mend "a" and "an" where the word behind has gone."""

    def mended(match: re.Match) -> str:
        article = "an" if _VOWEL.match(match[2]) else "a"
        return (article.capitalize() if match[1][0].isupper() else article) + " "

    return _ARTICLE.sub(mended, text)


def tidied(text: str) -> str:
    """Return a text with blanks and punctuation mended where words have gone."""
    text = unmarked(text)
    before = None
    while text != before:
        before = text
        for pattern, to in _TIDY:
            text = pattern.sub(to, text).strip()
    return text
