"""Rewriting one sentence: what a single image cannot bear out goes, the rest stays as it is written.

A sentence is cut into clauses. A clause of advice, history, technique or another image goes; inside the others the
rules of ``resources/radvlm/filter.yaml`` take out words of change. What is then left of a clause must say something.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from cxr.radvlm.filtered.clauses import clauses
from cxr.radvlm.filtered.mending import alone, articles, tidied, unmarked
from cxr.radvlm.filtered.patterns import CUT, LONE, SAFE, Patterns, Rule

GONE = "resolved"
_ROUNDS = 4
_WORD_START = re.compile(r"\b[A-Za-z]")
_LEAD = re.compile(r"^(?:there (?:is|are|was|were|has been|have been) )?(?:the |a |an )?", re.IGNORECASE)
_EXTENT = re.compile(r"^(?:overall )?(?:extent|amount|degree|severity|appearance) of (?:the )?", re.IGNORECASE)
_JOINT = re.compile(r",? (?:and|with) |, ", re.IGNORECASE)


@dataclass(frozen=True)
class Draft:
    """A sentence after rewriting (None: nothing is left) and why, in the order of the rules."""

    text: str | None
    why: tuple[str, ...]


@dataclass(frozen=True)
class Rewriter:
    """patterns: what goes; safe: spans [start, end) of a sentence that no rule may touch; names: whether a text names
    something; off: reasons that are no reason here; absence: a finding that has gone is stated as absent.
    """

    patterns: Patterns
    safe: Callable[[str], list[tuple[int, int]]]
    names: Callable[[str], bool]
    off: frozenset[str] = frozenset()
    absence: bool = False

    def rewrite(self, sentence: str) -> Draft:
        """Return a sentence as single-image text. Rewriting the result changes nothing more."""
        text, why = " ".join(sentence.split()), []
        for _ in range(_ROUNDS):
            after, reasons = self._once(text)
            why = list(dict.fromkeys([*why, *reasons]))
            if after is None or after == text:
                return Draft(after, tuple(why))
            text = after
        return Draft(text, tuple(why))

    def _once(self, text: str) -> tuple[str | None, list[str]]:
        end = "." if text.endswith(".") else ""
        why: list[str] = []
        kept_clauses: list[str] = []
        for separator, clause in clauses(self._masked(text.rstrip(". "))):
            clause_text, reasons = self._clause(clause)
            why += reasons
            if clause_text and not kept_clauses and separator:
                clause_text = alone(clause_text)
            if clause_text:
                kept_clauses.append((separator if kept_clauses else "") + clause_text)
        joined = tidied("".join(kept_clauses))
        if not re.search(r"\w", joined):
            return None, why
        if not why:
            return text, why
        return joined[0].upper() + joined[1:] + end, why

    def _masked(self, text: str) -> str:
        spans = [*self.safe(text), *(_told(m) for p in self.patterns.kept for m in p.finditer(text))]
        inside = {i for start, end in spans for i in range(start, end)}
        return _WORD_START.sub(lambda m: m.group() + SAFE if m.start() in inside else m.group(), text)

    def _clause(self, clause: str) -> tuple[str, list[str]]:
        """Return what is left of a clause (empty: nothing) and why."""
        why: list[str] = []
        for rule in self.patterns.tails:
            after = _applied(rule, clause)
            if after != clause and self.names(unmarked(after)):
                clause = after
                why.append(rule.why)
        for reason, pattern in self.patterns.drop:
            if reason not in self.off and pattern.search(clause):
                return self._absent(clause) if reason == GONE and self.absence else "", [*why, reason]
        for rule in self.patterns.rules:
            if rule.why in self.off:
                continue
            after = _applied(rule, clause)
            if after != clause:
                clause = after
                why.append(rule.why)
        if not why:
            return unmarked(clause), why
        remainder, emptied = self._substance(clause)
        if emptied and "change" in why:
            why = [reason for reason in why if reason != "change"] + ["no_change"]
        return remainder, why

    def _absent(self, clause: str) -> str:
        """Return "no X" for a clause that says that the finding X has gone."""
        text = unmarked(clause)
        for match in filter(None, (pattern.search(text) for pattern in self.patterns.absence)):
            if self.names(match["what"]):
                return f"no {match['what'].strip()}"
        return ""

    def _substance(self, clause: str) -> tuple[str, bool]:
        """Return a clause without the pieces that say nothing, and whether a piece has gone."""
        if LONE in clause:
            return self._lone(clause)
        if CUT not in clause:
            return ("", True) if self._bare(clause) else (unmarked(clause), False)
        lead = _LEAD.match(clause).group()
        opening = re.sub(r"(?:the|an?) $", "", lead) if lead.lower().startswith("there") else ""
        pieces = _pieces(clause[len(opening) :])
        kept_pieces = self._said(pieces)
        if not kept_pieces:
            return "", True
        remainder = "".join(separator * bool(number) + piece for number, (separator, piece) in enumerate(kept_pieces))
        return unmarked(opening + articles(remainder)), len(kept_pieces) < len(pieces)

    def _said(self, pieces: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the pieces of a list without the bare ones from a taken-out word on, if they name a part at all."""
        kept_pieces, run = [], []
        for piece in [*pieces, None]:
            if piece is not None and self._bare(piece[1]) and (run or CUT in piece[1]):
                run.append(piece)
                continue
            if not any(self.patterns.nouns & set(_words(text)) for _, text in run):
                kept_pieces += run
            run = []
            kept_pieces += [piece] if piece is not None else []
        return kept_pieces

    def _lone(self, clause: str) -> tuple[str, bool]:
        text = unmarked(articles(clause)).strip()
        return ("", True) if self._bare(text) else (_EXTENT.sub("", _LEAD.sub("", text, count=1)), False)

    def _bare(self, text: str) -> bool:
        return self.patterns.bare.issuperset(_words(text))


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+|\d+", unmarked(text).lower())


def _pieces(text: str) -> list[tuple[str, str]]:
    """Return (separator before it, piece) of a list."""
    pieces, separator, start = [], "", 0
    for match in _JOINT.finditer(text):
        pieces.append((separator, text[start : match.start()]))
        separator, start = match.group(), match.end()
    return [*pieces, (separator, text[start:])]


def _told(match: re.Match) -> tuple[int, int]:
    """Return the span of a match, or of its group ``word``."""
    return match.span("word") if "word" in match.re.groupindex else match.span()


def _applied(rule: Rule, clause: str) -> str:
    """Return a clause after one rule, at each place where its conditions hold."""

    def put(match: re.Match) -> str:
        if rule.lead is not None and not rule.lead.search(unmarked(clause[: match.start()])):
            return match.group()
        if rule.without is not None and rule.without.search(unmarked(clause[match.start() :])):
            return match.group()
        return match.expand(rule.to) if match.group() else ""

    return rule.find.sub(put, clause)
