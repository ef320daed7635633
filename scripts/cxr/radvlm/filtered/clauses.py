"""Cutting a sentence into clauses that can be judged by themselves."""

import re

_SEPARATOR = re.compile(
    r"\s*;\s*|(?<=[a-z\d])(?<!\bdr)(?<!\bvs)(?<!\bno)\.\s+(?=\w)|,?\s+(?:but|however|although|though|whereas|while)\s+"
    r"(?!(?:has|have|had|is|are|not|now|still|remains?|unchanged|stable|otherwise (?:unchanged|stable))\b)"
    r"|,\s+with\s+(?=(?:a|an|residual|small|persistent|new|unchanged)\b)|,?\s+and\s+(?=there\s)"
    r"|,\s+(?:and\s+)?(?=no\s)",
    re.IGNORECASE,
)
_FINITE = (
    r"(?:is|are|was|were|has|have|had|remains?|appears?|persists?|shows?|demonstrates?|projects?|terminates?|"
    r"continues?|seems?|overlies|measures?|obscures?|may|can|could|might|cannot|lies)"
)
_OWN_VERB = re.compile(
    rf"(?:,\s+(?=the\s+(?:(?!{_FINITE}\b)[\w/-]+\s+){{1,7}}?{_FINITE}\b)|(?:,?\s+and|,)\s+"
    rf"(?=(?:(?!(?:{_FINITE}|and|or|with|which|that)\b)[\w/-]+\s+){{1,7}}?{_FINITE}\b))",
    re.IGNORECASE,
)
_VERB = re.compile(rf"\b{_FINITE}\b", re.IGNORECASE)
_RELATIVE = re.compile(r"\b(?:which|that|as)\b", re.IGNORECASE)


def has_verb(text: str) -> bool:
    """Tell whether a text has a finite verb."""
    return _VERB.search(text) is not None


def clauses(text: str) -> list[tuple[str, str]]:
    """Return (separator before it, clause) of a sentence's clauses."""
    coarse_clauses: list[tuple[str, str]] = []
    separator, start = "", 0
    for match in _SEPARATOR.finditer(text):
        coarse_clauses.append((separator, text[start : match.start()]))
        separator, start = match.group(), match.end()
    coarse_clauses.append((separator, text[start:]))
    return [part for separator, clause in coarse_clauses for part in _halves(separator, clause)]


def _halves(separator: str, clause: str) -> list[tuple[str, str]]:
    """Part a clause at "and" or a comma with a verb of its own on both sides."""
    parts, start = [], 0
    for match in _OWN_VERB.finditer(clause):
        before = clause[start : match.start()]
        if has_verb(before) and not _RELATIVE.search(clause[match.end() : match.end() + 12]):
            parts.append((separator, before))
            separator, start = match.group(), match.end()
    return [*parts, (separator, clause[start:])]
