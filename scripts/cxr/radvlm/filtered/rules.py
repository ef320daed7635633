"""The default engine: patterns, the report lexicon and the report rules engine, without a model.

First the rules for whole sentences of ``resources/radvlm/filter.yaml`` remove what another image showed: dates, earlier
sizes, verbs of change before a verb of state. Then a sentence is split into clauses. Clauses of advice, history,
technique or another image are dropped; in the others further rules remove words of change, but none that is part of a
finding's name in the lexicon. A clause that still compares is rebuilt from its subject, or dropped. The rules engine
verifies that a rewritten sentence affirms and denies nothing that its source does not.
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
CLAUSE_REASONS = frozenset(("comparison", "history", "recommendation", "communication", "technique", "view", RESOLVED))
"""Reasons that drop a whole clause, even if it contains a finding."""
CUT, LONE, SAFE = "\ue001", "\ue002", "\u01c2"
"""Marks in a text during rewriting: a word was cut, a subject lost its predicate, a word is protected."""
_PLURAL = frozenset(("have", "are", "were", "appear", "remain"))
_NAMING_TAGS = ("entity", "cancel", "device", "state")
_MAX_PASSES = 4
_SLOT = re.compile(r"\{([a-z_]+)\}")
_MARKS = re.compile(f"[{CUT}{LONE}{SAFE}]")
_ARTICLE = re.compile(rf"\b(a|an)\s+{CUT}\s*(?=(\w+))", re.IGNORECASE)
_VOWEL = re.compile(r"(?:[aeio]|u(?!ni|su|re)|8|11\b|18\b|hour)", re.IGNORECASE)
_WORD_START = re.compile(r"\b[A-Za-z]")
_RELATIVE = re.compile(r"\b(?:which|that|as)\b", re.IGNORECASE)
_LEAD = re.compile(r"^(?:there (?:is|are|was|were|has been|have been) )?(?:the |a |an )?", re.IGNORECASE)
_EXTENT = re.compile(
    r"^(?:overall )?(?:extent|amount|degree|severity|appearance|size|volume|depth|number|conspicuity) of (?:the )?",
    re.IGNORECASE,
)
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
            verb = "are" if (match.groupdict().get("be") or "").split(" ")[0] in _PLURAL else "is"
            return match.expand(self.to.replace("{be}", verb))

        return self.find.sub(put, clause)


@dataclass(frozen=True)
class Patterns:
    """The compiled patterns, in file order. protected: kept text; sentence: rules for whole sentences; tails: rules
    for ends of clauses, applied first; drop: (reason, pattern) of clauses to drop; leftover: words that only a
    comparison needs, sought after all rules; rebuild: rules for the clauses that hold such words; bare: words without
    meaning of their own; nouns: those of them that name a body part; past: words before a past illness; trigger:
    sentences without a match are kept; absence: statements that a finding is gone (group ``what``); clauses: separator,
    verb and before_verb, where clauses are split, contrast and broken; tidy: (pattern, replacement) around cut words.
    """

    protected: tuple[re.Pattern, ...]
    sentence: tuple[Rule, ...]
    tails: tuple[Rule, ...]
    drop: tuple[tuple[str, re.Pattern], ...]
    rules: tuple[Rule, ...]
    leftover: re.Pattern
    rebuild: tuple[Rule, ...]
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
        sentence=tuple(map(rule, resource["sentence"])),
        tails=tuple(map(rule, resource["tails"])),
        drop=tuple((reason, compiled(rf"^(?:{text})")) for reason, texts in resource["drop"].items() for text in texts),
        rules=tuple(map(rule, resource["rules"])),
        leftover=compiled("|".join(resource["leftover"])),
        rebuild=tuple(map(rule, resource["rebuild"])),
        bare=frozenset(map(str, resource["bare"])),
        nouns=frozenset(resource["bare_nouns"]),
        past=frozenset(resource["past"]),
        trigger=re.compile("|".join(resource["trigger"]), re.IGNORECASE),
        absence=tuple(map(compiled, resource["absence"])),
        clauses={name: compiled(text) for name, text in resource["clauses"].items()},
        tidy=tuple((compiled(text), to) for text, to in resource["tidy"]),
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
        if after - before:  # the scope of a denial may end where a clause does
            before = before.union(*map(self.claims, self._current_clauses(sentence)))
        if after <= before and (not loses_affirmed or not CLAUSE_REASONS.isdisjoint(reasons) or self.names(text)):
            return Sentence(text, REWRITTEN, reasons)
        return Sentence(None, DROPPED, tuple(dict.fromkeys([*reasons, UNSURE])))

    def names(self, text: str) -> bool:
        """Tell whether a text names a finding, a device or a state."""
        return any(tag in _NAMING_TAGS for tag, *_ in self._match_lexicon(text)[1])

    def claims(self, text: str) -> set[tuple[str, str]]:
        """Return the (entity, presence) pairs that a sentence affirms or denies; "no new X" denies nothing."""
        tuples = structure.structure_sentences([text], unsided_effusion=True)
        entity_claims = {(finding["entity"], finding["presence"]) for finding in tuples if finding["denies"]}
        return entity_claims | {(name, finding["presence"]) for finding in tuples for name in finding["candidates"]}

    def _current_clauses(self, sentence: str) -> list[str]:
        """Return the clauses of a sentence without its statements about another image."""
        text, _ = _apply(self.patterns.sentence, self._mark_protected(" ".join(sentence.split())))
        return [remove_marks(clause) for _, clause in self._split_clauses(text)]

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
        marked, why = _apply(self.patterns.sentence, self._mark_protected(text.rstrip(". ")))
        kept_clauses: list[str] = []
        was_fragment = False
        for separator, clause in self._split_clauses(marked):
            clause_text, reasons = self._rewrite_clause(clause, bool(why))
            why += reasons
            is_fragment = (bool(reasons) or LONE in clause) and not self._has_verb(clause_text)
            if clause_text and separator and is_fragment:
                clause_text = re.sub(r"^(?:the|an?) ", "", clause_text, flags=re.IGNORECASE)
            joint = "".join(kept_clauses[-1:]) + separator
            if (is_fragment or was_fragment) and self.patterns.clauses["contrast"].search(joint):
                separator = "; "
            if clause_text:
                kept_clauses.append((separator if kept_clauses else "") + clause_text)
                was_fragment = is_fragment
        joined = self._tidy("".join(kept_clauses))
        if not re.search(r"\w", joined):
            return None, [reason for reason in why if reason != "change"] or why
        if why and self.patterns.clauses["broken"].search(joined):
            return None, [*why, UNSURE]
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

    def _rewrite_clause(self, clause: str, is_changed: bool) -> tuple[str, list[str]]:
        why: list[str] = []
        for rule in self.patterns.tails:
            after = rule.apply(clause)
            if after != clause and self.names(remove_marks(after)):
                clause = after
                why.append(rule.reason)
        for reason, pattern in self.patterns.drop:
            if pattern.search(clause):
                return self._state_absence(clause) if reason == RESOLVED and self.states_absence else "", [*why, reason]
        clause, reasons = _apply(self.patterns.rules, clause)
        why += reasons
        if self.patterns.leftover.search(clause):
            clause, reasons = _apply(self.patterns.rebuild, clause)
            why += reasons
            if self.patterns.leftover.search(clause):
                return "", [*why, UNSURE]
        if not why and not is_changed:
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


def _apply(rules: Sequence[Rule], text: str) -> tuple[str, list[str]]:
    """Apply rules in order. Returns the text and the reasons of the rules that changed it."""
    why: list[str] = []
    for rule in rules:
        after = rule.apply(text)
        why += [rule.reason] if after != text else []
        text = after
    return text, why


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
