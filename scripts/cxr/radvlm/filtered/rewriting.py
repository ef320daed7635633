"""Rewrite one sentence: remove what a single image cannot support, keep the rest as written.

A sentence is split into clauses. Clauses of advice, history, technique or another image are dropped; in the others the
rules of ``resources/radvlm/filter.yaml`` remove words of change. Clauses without remaining meaning are dropped.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

CUT, LONE, SAFE = "\ue001", "\ue002", "\u01c2"
"""Marks in a text during rewriting: a word was cut, a subject lost its predicate, a word is protected."""
_SLOT = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Rule:
    """Replace matches of ``find`` by ``to`` if ``lead`` matches before and ``without`` does not match from there on."""

    reason: str
    find: re.Pattern
    to: str
    lead: re.Pattern | None
    without: re.Pattern | None


@dataclass(frozen=True)
class Patterns:
    """The compiled patterns, in file order.

    protected: kept text; tails: rules for ends of clauses, applied first; drop: (reason, pattern) of clauses to drop;
    bare: words without meaning of their own; nouns: those of them that name a body part; past: words before a past
    illness; trigger: sentences without a match are kept; absence: statements that a finding is gone (group ``what``).
    """

    protected: tuple[re.Pattern, ...]
    tails: tuple[Rule, ...]
    drop: tuple[tuple[str, re.Pattern], ...]
    rules: tuple[Rule, ...]
    bare: frozenset[str]
    nouns: frozenset[str]
    past: frozenset[str]
    trigger: re.Pattern
    absence: tuple[re.Pattern, ...]


@cache
def load_patterns(path: str) -> Patterns:
    """Load the patterns, once per process. Raises KeyError for an unknown slot."""
    resource = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    slots: dict[str, str] = {}

    def fill_slots(text: str) -> str:
        return _SLOT.sub(lambda match: slot(match[1]), text)

    def slot(name: str) -> str:
        if name not in slots:
            forms = sorted(map(str, resource["slots"][name]), key=lambda form: -len(form))
            slots[name] = "(?:" + "|".join(fill_slots(form) for form in forms) + ")"
        return slots[name]

    def compiled(text: str | None) -> re.Pattern | None:
        return None if text is None else re.compile(fill_slots(text), re.IGNORECASE)

    def rule(row: dict) -> Rule:
        to = row["to"].replace("{cut}", CUT).replace("{lone}", LONE)
        return Rule(row["why"], compiled(row["find"]), to, compiled(row.get("lead")), compiled(row.get("not")))

    return Patterns(
        protected=tuple(compiled(rf"\b{text}\b") for text in resource["kept"]),
        tails=tuple(map(rule, resource["tails"])),
        drop=tuple((reason, compiled(rf"^(?:{text})")) for reason, texts in resource["drop"].items() for text in texts),
        rules=tuple(map(rule, resource["rules"])),
        bare=frozenset(map(str, resource["bare"])),
        nouns=frozenset(resource["bare_nouns"]),
        past=frozenset(resource["past"]),
        trigger=re.compile("|".join(resource["trigger"]), re.IGNORECASE),
        absence=tuple(compiled(text) for text in resource["absence"]),
    )


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
_BEFORE_VERB = re.compile(
    rf"(?:,\s+(?=the\s+(?:(?!{_FINITE}\b)[\w/-]+\s+){{1,7}}?{_FINITE}\b)|(?:,?\s+and|,)\s+"
    rf"(?=(?:(?!(?:{_FINITE}|and|or|with|which|that)\b)[\w/-]+\s+){{1,7}}?{_FINITE}\b))",
    re.IGNORECASE,
)
_VERB = re.compile(rf"\b{_FINITE}\b", re.IGNORECASE)
_RELATIVE = re.compile(r"\b(?:which|that|as)\b", re.IGNORECASE)


def has_verb(text: str) -> bool:
    """True if a text has a finite verb."""
    return _VERB.search(text) is not None


def split_clauses(text: str) -> list[tuple[str, str]]:
    """Return (separator before it, clause) for each clause of a sentence."""
    coarse_clauses = _split_at(_SEPARATOR, text)
    return [part for separator, clause in coarse_clauses for part in _split_at_verbs(separator, clause)]


def _split_at(pattern: re.Pattern, text: str) -> list[tuple[str, str]]:
    """Return (separator before it, part) for each part of a text between matches of a pattern."""
    parts, separator, start = [], "", 0
    for match in pattern.finditer(text):
        parts.append((separator, text[start : match.start()]))
        separator, start = match.group(), match.end()
    return [*parts, (separator, text[start:])]


def _split_at_verbs(separator: str, clause: str) -> list[tuple[str, str]]:
    """Split a clause at "and" or a comma with a finite verb on both sides."""
    parts, start = [], 0
    for match in _BEFORE_VERB.finditer(clause):
        before = clause[start : match.start()]
        if has_verb(before) and not _RELATIVE.search(clause[match.end() : match.end() + 12]):
            parts.append((separator, before))
            separator, start = match.group(), match.end()
    return [*parts, (separator, clause[start:])]


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


def remove_marks(text: str) -> str:
    """Remove the rewriting marks."""
    return _MARKS.sub("", text)


def drop_leading_article(text: str) -> str:
    """Drop the leading article of a clause without a verb."""
    return text if has_verb(text) else re.sub(r"^(?:the|an?) ", "", text, flags=re.IGNORECASE)


def mend_articles(text: str) -> str:
    """Correct "a" and "an" before a cut word."""

    def mended(match: re.Match) -> str:
        article = "an" if _VOWEL.match(match[2]) else "a"
        return (article.capitalize() if match[1][0].isupper() else article) + " "

    return _ARTICLE.sub(mended, text)


def tidy(text: str) -> str:
    """Remove marks, and mend blanks and punctuation around cut words."""
    text = remove_marks(text)
    before = None
    while text != before:
        before = text
        for pattern, to in _TIDY:
            text = pattern.sub(to, text).strip()
    return text


RESOLVED = "resolved"
_MAX_PASSES = 4
_WORD_START = re.compile(r"\b[A-Za-z]")
_LEAD = re.compile(r"^(?:there (?:is|are|was|were|has been|have been) )?(?:the |a |an )?", re.IGNORECASE)
_EXTENT = re.compile(r"^(?:overall )?(?:extent|amount|degree|severity|appearance) of (?:the )?", re.IGNORECASE)
_JOINT = re.compile(r",? (?:and|with) |, ", re.IGNORECASE)


@dataclass(frozen=True)
class Draft:
    """A rewritten sentence (None if nothing remains) with reasons, in rule order."""

    text: str | None
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Rewriter:
    """Rewrites sentences. find_protected: returns protected spans [start, end); names: True if a text names a finding,
    device or state; states_absence: resolved findings are stated as absent.
    """

    patterns: Patterns
    find_protected: Callable[[str], list[tuple[int, int]]]
    names: Callable[[str], bool]
    states_absence: bool = False

    def rewrite(self, sentence: str) -> Draft:
        """Return a sentence as single-image text; rewriting is idempotent."""
        text, why = " ".join(sentence.split()), []
        for _ in range(_MAX_PASSES):
            after, reasons = self._rewrite_once(text)
            why = list(dict.fromkeys([*why, *reasons]))
            if after is None or after == text:
                return Draft(after, tuple(why))
            text = after
        return Draft(text, tuple(why))

    def _rewrite_once(self, text: str) -> tuple[str | None, list[str]]:
        end = "." if text.endswith(".") else ""
        why: list[str] = []
        kept_clauses: list[str] = []
        for separator, clause in split_clauses(self._mark_protected(text.rstrip(". "))):
            clause_text, reasons = self._rewrite_clause(clause)
            why += reasons
            if clause_text and not kept_clauses and separator:
                clause_text = drop_leading_article(clause_text)
            if clause_text:
                kept_clauses.append((separator if kept_clauses else "") + clause_text)
        joined = tidy("".join(kept_clauses))
        if not re.search(r"\w", joined):
            return None, why
        if not why:
            return text, why
        return joined[0].upper() + joined[1:] + end, why

    def _mark_protected(self, text: str) -> str:
        matches = (match for pattern in self.patterns.protected for match in pattern.finditer(text))
        spans = [
            *self.find_protected(text),
            *(match.span("word" if "word" in match.re.groupindex else 0) for match in matches),
        ]
        inside = {i for start, end in spans for i in range(start, end)}
        return _WORD_START.sub(lambda m: m.group() + SAFE if m.start() in inside else m.group(), text)

    def _rewrite_clause(self, clause: str) -> tuple[str, list[str]]:
        """Return the remainder of a clause ("" if dropped) and the reasons."""
        why: list[str] = []
        for rule in self.patterns.tails:
            after = _apply_rule(rule, clause)
            if after != clause and self.names(remove_marks(after)):
                clause = after
                why.append(rule.reason)
        for reason, pattern in self.patterns.drop:
            if pattern.search(clause):
                return self._state_absence(clause) if reason == RESOLVED and self.states_absence else "", [*why, reason]
        for rule in self.patterns.rules:
            after = _apply_rule(rule, clause)
            if after != clause:
                clause = after
                why.append(rule.reason)
        if not why:
            return remove_marks(clause), why
        remainder, emptied = self._keep_meaningful(clause)
        if emptied and "change" in why:
            why = [reason for reason in why if reason != "change"] + ["no_change"]
        return remainder, why

    def _state_absence(self, clause: str) -> str:
        """Return "no X" for a clause that states that finding X is gone, else ""."""
        text = remove_marks(clause)
        for match in filter(None, (pattern.search(text) for pattern in self.patterns.absence)):
            if self.names(match["what"]):
                return f"no {match['what'].strip()}"
        return ""

    def _keep_meaningful(self, clause: str) -> tuple[str, bool]:
        """Return a clause without its meaningless pieces, and whether a piece was dropped."""
        if LONE in clause:
            return self._keep_lone_subject(clause)
        if CUT not in clause:
            return ("", True) if self._is_bare(clause) else (remove_marks(clause), False)
        lead = _LEAD.match(clause).group()
        opening = re.sub(r"(?:the|an?) $", "", lead) if lead.lower().startswith("there") else ""
        pieces = _split_at(_JOINT, clause[len(opening) :])
        kept_pieces = self._drop_bare_pieces(pieces)
        if not kept_pieces:
            return "", True
        remainder = "".join(separator * bool(number) + piece for number, (separator, piece) in enumerate(kept_pieces))
        return remove_marks(opening + mend_articles(remainder)), len(kept_pieces) < len(pieces)

    def _drop_bare_pieces(self, pieces: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Drop runs of bare pieces that start at a cut word and name a body part."""
        kept_pieces, run = [], []
        for piece in [*pieces, None]:
            if piece is not None and self._is_bare(piece[1]) and (run or CUT in piece[1]):
                run.append(piece)
                continue
            if not any(self.patterns.nouns & set(_words_of(text)) for _, text in run):
                kept_pieces += run
            run = []
            kept_pieces += [piece] if piece is not None else []
        return kept_pieces

    def _keep_lone_subject(self, clause: str) -> tuple[str, bool]:
        text = remove_marks(mend_articles(clause)).strip()
        return ("", True) if self._is_bare(text) else (_EXTENT.sub("", _LEAD.sub("", text, count=1)), False)

    def _is_bare(self, text: str) -> bool:
        return self.patterns.bare.issuperset(_words_of(text))


def _words_of(text: str) -> list[str]:
    return re.findall(r"[a-z]+|\d+", remove_marks(text).lower())


def _apply_rule(rule: Rule, clause: str) -> str:
    """Apply one rule to a clause, wherever its conditions hold."""

    def put(match: re.Match) -> str:
        if rule.lead is not None and not rule.lead.search(remove_marks(clause[: match.start()])):
            return match.group()
        if rule.without is not None and rule.without.search(remove_marks(clause[match.start() :])):
            return match.group()
        return match.expand(rule.to) if match.group() else ""

    return rule.find.sub(put, clause)
