"""The default engine: patterns, the report lexicon and the report rules engine, without a model.

A sentence is split into clauses. Clauses of advice, history, technique or another image are dropped; in the others the
rules of ``resources/radvlm/filter.yaml`` remove words of change, but none that is part of a finding's name in the
lexicon. Clauses without remaining meaning are dropped. The rules engine verifies that a rewritten sentence affirms and
denies nothing that its source does not.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from spacy.tokens import Doc

from cxr.base.resources import load_resource
from cxr.language.reports.rules import lexicon, structure
from cxr.language.reports.rules.tokens import split_words
from cxr.radvlm.filtered.engine import DROPPED, KEPT, REWRITTEN, Engine, FilteredText, FilterOptions, Sentence

RESOURCE_FILES = ("radvlm/filter.yaml",)
UNSURE = "unsure"  # reason of a sentence whose remainder would change its meaning
RESOLVED = "resolved"
CLAUSE_REASONS = frozenset(("comparison", "history", "recommendation", "communication", "technique", "view"))
"""Reasons that drop a whole clause, even if it contains a finding."""
CUT, LONE, SAFE = "\ue001", "\ue002", "\u01c2"
"""Marks in a text during rewriting: a word was cut, a subject lost its predicate, a word is protected."""
_NAMING_TAGS = ("entity", "cancel", "device", "state")
_MAX_PASSES = 4
_SLOT = re.compile(r"\{([a-z_]+)\}")
_MARKS = re.compile(f"[{CUT}{LONE}{SAFE}]")
_ARTICLE = re.compile(rf"\b(a|an)\s+{CUT}\s*(?=(\w+))", re.IGNORECASE)
_VOWEL = re.compile(r"(?:[aeio]|u(?!ni|su|re)|8|11\b|18\b|hour)", re.IGNORECASE)
_WORD_START = re.compile(r"\b[A-Za-z]")
_RELATIVE = re.compile(r"\b(?:which|that|as)\b", re.IGNORECASE)
_LEAD = re.compile(r"^(?:there (?:is|are|was|were|has been|have been) )?(?:the |a |an )?", re.IGNORECASE)
_EXTENT = re.compile(r"^(?:overall )?(?:extent|amount|degree|severity|appearance) of (?:the )?", re.IGNORECASE)
_JOINT = re.compile(r",? (?:and|with) |, ", re.IGNORECASE)


@dataclass(frozen=True)
class Rule:
    """Replace matches of ``find`` by ``to`` if ``lead`` matches before and ``without`` does not match from there on."""

    reason: str
    find: re.Pattern
    to: str
    lead: re.Pattern | None
    without: re.Pattern | None

    def apply(self, clause: str) -> str:
        """Apply the rule to a clause, wherever its conditions hold."""

        def put(match: re.Match) -> str:
            if self.lead is not None and not self.lead.search(remove_marks(clause[: match.start()])):
                return match.group()
            if self.without is not None and self.without.search(remove_marks(clause[match.start() :])):
                return match.group()
            return match.expand(self.to) if match.group() else ""

        return self.find.sub(put, clause)


@dataclass(frozen=True)
class Patterns:
    """The compiled patterns, in file order. protected: kept text; tails: rules for ends of clauses, applied first;
    drop: (reason, pattern) of clauses to drop; bare: words without meaning of their own; nouns: those of them that name
    a body part; past: words before a past illness; trigger: sentences without a match are kept; absence: statements
    that a finding is gone (group ``what``); clauses: separator, verb and before_verb, where clauses are split; tidy:
    (pattern, replacement) around cut words.
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
    clauses: Mapping[str, re.Pattern]
    tidy: tuple[tuple[re.Pattern, str], ...]


@cache
def load_patterns() -> Patterns:
    """Load the patterns, once per process. Raises KeyError for an unknown slot."""
    resource = load_resource(RESOURCE_FILES[0])
    slots: dict[str, str] = {}

    def fill_slot(match: re.Match) -> str:
        if match[1] not in slots:
            forms = sorted(map(str, resource["slots"][match[1]]), key=lambda form: -len(form))
            slots[match[1]] = "(?:" + "|".join(_SLOT.sub(fill_slot, form) for form in forms) + ")"
        return slots[match[1]]

    def compiled(text: str) -> re.Pattern:
        return re.compile(_SLOT.sub(fill_slot, text), re.IGNORECASE)

    def rule(row: dict) -> Rule:
        to = row["to"].replace("{cut}", CUT).replace("{lone}", LONE)
        conditions = (compiled(row[name]) if name in row else None for name in ("lead", "not"))
        return Rule(row["why"], compiled(row["find"]), to, *conditions)

    return Patterns(
        protected=tuple(compiled(rf"\b{text}\b") for text in resource["kept"]),
        tails=tuple(map(rule, resource["tails"])),
        drop=tuple((reason, compiled(rf"^(?:{text})")) for reason, texts in resource["drop"].items() for text in texts),
        rules=tuple(map(rule, resource["rules"])),
        bare=frozenset(map(str, resource["bare"])),
        nouns=frozenset(resource["bare_nouns"]),
        past=frozenset(resource["past"]),
        trigger=re.compile("|".join(resource["trigger"]), re.IGNORECASE),
        absence=tuple(map(compiled, resource["absence"])),
        clauses={name: compiled(text) for name, text in resource["clauses"].items()},
        tidy=tuple((re.compile(text, re.IGNORECASE), to) for text, to in resource["tidy"]),
    )


@dataclass(frozen=True)
class SentenceFilter:
    """Rewrites one sentence and verifies the result; states_absence: resolved findings are stated as absent."""

    patterns: Patterns
    lexicon: lexicon.Lexicon
    states_absence: bool = False

    def __call__(self, sentence: str) -> Sentence:
        """Return the filtered sentence; filtering is idempotent."""
        text, reasons = self.rewrite(sentence) if self.patterns.trigger.search(sentence) else (sentence, ())
        if not reasons:
            return Sentence(sentence, KEPT)
        if text is None:
            return Sentence(None, DROPPED, reasons)
        before, after = self.claims(sentence), self.claims(text)
        loses_affirmed = any(presence == "positive" for _, presence in before - after)
        if after <= before and (not loses_affirmed or not CLAUSE_REASONS.isdisjoint(reasons)):
            return Sentence(text, REWRITTEN, reasons)
        if {"change"}.issuperset(reasons):  # a word of change alone drops no sentence
            return Sentence(sentence, KEPT, (UNSURE,))
        return Sentence(None, DROPPED, (*reasons, UNSURE))

    def names(self, text: str) -> bool:
        """Tell whether a text names a finding, a device or a state."""
        return any(tag in _NAMING_TAGS for tag, *_ in self._match_lexicon(text)[1])

    def claims(self, text: str) -> set[tuple[str, str]]:
        """Return the (entity, presence) pairs that a sentence affirms or denies; "no new X" denies nothing."""
        tuples = structure.structure_sentences([text], unsided_effusion=True)
        entity_claims = {(finding["entity"], finding["presence"]) for finding in tuples if finding["denies"]}
        return entity_claims | {(name, finding["presence"]) for finding in tuples for name in finding["candidates"]}

    def _match_lexicon(self, text: str) -> tuple[list, list]:
        tokens = split_words(text)
        words = [token for token, _, _ in tokens] or [" "]
        return tokens, self.lexicon.match(Doc(self.lexicon.nlp.vocab, words=words))

    def rewrite(self, sentence: str) -> tuple[str | None, tuple[str, ...]]:
        """Return a sentence as single-image text, None if nothing remains, and the reasons in rule order."""
        text, why = " ".join(sentence.split()), []
        for _ in range(_MAX_PASSES):
            after, reasons = self._rewrite_once(text)
            why = list(dict.fromkeys([*why, *reasons]))
            if after is None or after == text:
                return after, tuple(why)
            text = after
        return text, tuple(why)

    def _rewrite_once(self, text: str) -> tuple[str | None, list[str]]:
        end = "." if text.endswith(".") else ""
        why: list[str] = []
        kept_clauses: list[str] = []
        for separator, clause in self._split_clauses(self._mark_protected(text.rstrip(". "))):
            clause_text, reasons = self._rewrite_clause(clause)
            why += reasons
            if clause_text and not kept_clauses and separator and not self._has_verb(clause_text):
                clause_text = re.sub(r"^(?:the|an?) ", "", clause_text, flags=re.IGNORECASE)
            if clause_text:
                kept_clauses.append((separator if kept_clauses else "") + clause_text)
        joined = self._tidy("".join(kept_clauses))
        if not re.search(r"\w", joined):
            return None, why
        return (joined[0].upper() + joined[1:] + end if why else text), why

    def _split_clauses(self, text: str) -> list[tuple[str, str]]:
        """Return (separator before it, clause) for each clause of a sentence."""
        clauses = []
        for separator, part in _split_at(self.patterns.clauses["separator"], text):
            start = 0
            for match in self.patterns.clauses["before_verb"].finditer(part):
                before = part[start : match.start()]
                if self._has_verb(before) and not _RELATIVE.search(part[match.end() : match.end() + 12]):
                    clauses.append((separator, before))
                    separator, start = match.group(), match.end()
            clauses.append((separator, part[start:]))
        return clauses

    def _has_verb(self, text: str) -> bool:
        return self.patterns.clauses["verb"].search(text) is not None

    def _tidy(self, text: str) -> str:
        text, before = remove_marks(text), None
        while text != before:
            before = text
            for pattern, to in self.patterns.tidy:
                text = pattern.sub(to, text).strip()
        return text

    def _mark_protected(self, text: str) -> str:
        """Mark the words of protected texts and of findings, present or past ("prior pneumonia")."""
        tokens, hits = self._match_lexicon(text)
        spans = [
            (tokens[start][1], tokens[end - 1][2])
            for tag, _, start, end in hits
            if tag == "entity" or (tag == "cancel" and tokens[start][0] in self.patterns.past)
        ]
        matches = (match for pattern in self.patterns.protected for match in pattern.finditer(text))
        spans += (match.span("word" if "word" in match.re.groupindex else 0) for match in matches)
        inside = {i for start, end in spans for i in range(start, end)}
        return _WORD_START.sub(lambda m: m.group() + SAFE if m.start() in inside else m.group(), text)

    def _rewrite_clause(self, clause: str) -> tuple[str, list[str]]:
        why: list[str] = []
        for rule in self.patterns.tails:
            after = rule.apply(clause)
            if after != clause and self.names(remove_marks(after)):
                clause = after
                why.append(rule.reason)
        for reason, pattern in self.patterns.drop:
            if pattern.search(clause):
                return self._state_absence(clause) if reason == RESOLVED and self.states_absence else "", [*why, reason]
        for rule in self.patterns.rules:
            after = rule.apply(clause)
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
        matches = (pattern.search(remove_marks(clause)) for pattern in self.patterns.absence)
        findings = (match["what"] for match in matches if match)
        return next((f"no {finding.strip()}" for finding in findings if self.names(finding)), "")

    def _keep_meaningful(self, clause: str) -> tuple[str, bool]:
        """Return a clause without its meaningless pieces, and whether a piece was dropped."""
        if LONE in clause:
            text = remove_marks(mend_articles(clause)).strip()
            return ("", True) if self._is_bare(text) else (_EXTENT.sub("", _LEAD.sub("", text, count=1)), False)
        if CUT not in clause:
            return ("", True) if self._is_bare(clause) else (remove_marks(clause), False)
        lead = _LEAD.match(clause).group()
        opening = re.sub(r"(?:the|an?) $", "", lead) if lead.lower().startswith("there") else ""
        pieces = _split_at(_JOINT, clause[len(opening) :])
        kept_pieces = self._drop_bare_pieces(pieces)
        if not kept_pieces:
            return "", True
        remainder = "".join(part for piece in kept_pieces for part in piece)[len(kept_pieces[0][0]) :]
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

    def _is_bare(self, text: str) -> bool:
        return self.patterns.bare.issuperset(_words_of(text))


def _words_of(text: str) -> list[str]:
    return re.findall(r"[a-z]+|\d+", remove_marks(text).lower())


def _split_at(pattern: re.Pattern, text: str) -> list[tuple[str, str]]:
    """Return (separator before it, part) for each part of a text between matches of a pattern."""
    parts, separator, start = [], "", 0
    for match in pattern.finditer(text):
        parts.append((separator, text[start : match.start()]))
        separator, start = match.group(), match.end()
    return [*parts, (separator, text[start:])]


def remove_marks(text: str) -> str:
    """Remove the rewriting marks."""
    return _MARKS.sub("", text)


def mend_articles(text: str) -> str:
    """Correct "a" and "an" before a cut word."""

    def mended(match: re.Match) -> str:
        article = "an" if _VOWEL.match(match[2]) else "a"
        return (article.capitalize() if match[1][0].isupper() else article) + " "

    return _ARTICLE.sub(mended, text)


def load(options: FilterOptions, _execution: Mapping) -> Engine:
    """Return the engine."""
    filter_sentence = load_sentence_filter(options)

    def filtered(sections: Sequence[Sequence[str]]) -> list[FilteredText]:
        return [FilteredText(tuple(map(filter_sentence, sentences))) for sentences in sections]

    return Engine(filtered, "rules")


def load_sentence_filter(options: FilterOptions) -> SentenceFilter:
    """Load the sentence filter."""
    return SentenceFilter(load_patterns(), lexicon.load_lexicon(), options.resolved == "state_absence")
