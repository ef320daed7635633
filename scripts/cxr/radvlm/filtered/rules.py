"""The engine ``rules`` edits sentences by patterns and the lexicon of reports, without a language model.

The patterns are in ``resources/radvlm/filter.yaml``. Rules for whole sentences first remove statements about another
image: dates, earlier sizes, and verbs of change before a verb of state. Then a sentence is split into clauses. A clause
of advice, history or technique, or about another image, is dropped. In other clauses, further rules remove words of
change, except in names of findings. A clause that still compares is reduced to its subject, or dropped. Finally the
rules engine of the reports verifies that the edited sentence affirms and denies nothing that its source does not.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from spacy.tokens import Doc

from cxr.base.resources import load_resource
from cxr.language.reports.rules import lexicon, structure
from cxr.language.reports.rules.tokens import split_words
from cxr.radvlm.filtered.engine import DROPPED, KEPT, REWRITTEN, Engine, FilteredText, FilterOptions, Sentence

RESOURCE_FILES = ("radvlm/filter.yaml",)
UNSURE = "unsure"  # reason of a sentence whose remainder would change its meaning
RESOLVED = "resolved"
CLAUSE_REASONS = frozenset(("comparison", "history", "recommendation", "communication", "technique", "view", RESOLVED))
"""Reasons for which a whole clause is dropped, even if it contains a finding."""
CUT, LONE, SAFE = "\ue001", "\ue002", "\u01c2"
"""Marks in a text during editing: a word was removed here, a subject has lost its predicate, a word must stay."""
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
    """A replacement of text, with conditions on the text around it."""

    reason: str  # reason of the edit, such as "change"
    find: re.Pattern  # text that is replaced
    to: str  # replacement, in which {be} becomes is or are
    lead: re.Pattern | None  # the text before the match must match this, if given
    without: re.Pattern | None  # the text from the match on must not match this, if given

    def apply(self, clause: str) -> str:
        """Replace each match whose conditions hold, and return the clause."""

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
    """The compiled patterns of ``resources/radvlm/filter.yaml``, in file order."""

    protected: tuple[re.Pattern, ...]  # words that no rule may change
    sentence: tuple[Rule, ...]  # rules for whole sentences
    tails: tuple[Rule, ...]  # rules for the end of a clause, applied before its other rules
    drop: tuple[tuple[str, re.Pattern], ...]  # (reason, pattern) of clauses that are dropped
    rules: tuple[Rule, ...]  # rules for the inside of a clause
    leftover: re.Pattern  # words that occur only in comparisons, sought after all rules
    rebuild: tuple[Rule, ...]  # rules for clauses that still have such words
    bare: frozenset[str]  # words that say nothing about an image alone, such as size
    nouns: frozenset[str]  # those bare words that name a body part
    past: frozenset[str]  # words before a past illness, as in "prior pneumonia"
    trigger: re.Pattern  # a sentence without a match stays unchanged
    absence: tuple[re.Pattern, ...]  # statements that a finding (regex group ``what``) is gone
    clauses: Mapping[str, re.Pattern]  # patterns that split clauses (separator, verb, before_verb) or check them
    tidy: tuple[tuple[re.Pattern, str], ...]  # (pattern, replacement) around removed words


@cache
def load_patterns() -> Patterns:
    """Return the patterns, which are loaded once. Raises KeyError if a pattern refers to an unknown {slot}."""
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
    """Edits single sentences and verifies each edit. The first sentence loads the patterns and the lexicon."""

    states_absence: bool = False  # whether findings that have resolved are stated as absent

    @cached_property
    def patterns(self) -> Patterns:
        return load_patterns()

    @cached_property
    def lexicon(self) -> lexicon.Lexicon:
        return lexicon.load_lexicon()

    def __call__(self, sentence: str) -> Sentence:
        """Return the sentence after editing. A second edit does not change the sentence again."""
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
        """Return whether a text names a finding, a device or a state, such as "enlarged"."""
        return any(tag in _NAMING_TAGS for tag, *_ in self._match_lexicon(text)[1])

    def claims(self, text: str) -> set[tuple[str, str]]:
        """Return (entity, "positive" or "negative") of findings that a sentence affirms or denies. "No new X" does
        neither."""
        tuples = structure.structure_sentences([text], unsided_effusion=True)
        entity_claims = {(finding["entity"], finding["presence"]) for finding in tuples if finding["denies"]}
        return entity_claims | {(name, finding["presence"]) for finding in tuples for name in finding["candidates"]}

    def _current_clauses(self, sentence: str) -> list[str]:
        text, _ = _apply(self.patterns.sentence, self._mark_protected(" ".join(sentence.split())))
        return [remove_marks(clause) for _, clause in self._split_clauses(text)]

    def _match_lexicon(self, text: str) -> tuple[list, list]:
        tokens = split_words(text)
        words = [token for token, _, _ in tokens] or [" "]
        return tokens, self.lexicon.match(Doc(self.lexicon.nlp.vocab, words=words))

    def rewrite(self, sentence: str) -> tuple[str | None, tuple[str, ...]]:
        """Return (edited sentence, or None if nothing remains of it; reasons of the edits in rule order)."""
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
        """Return a text with marks at words that must stay, such as names of findings and "prior pneumonia"."""
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
        """Return "no X" if a clause states that a finding X is gone, else ""."""
        matches = (pattern.search(remove_marks(clause)) for pattern in self.patterns.absence)
        findings = (match["what"] for match in matches if match)
        return next((f"no {finding.strip()}" for finding in findings if self.names(finding)), "")

    def _keep_meaningful(self, clause: str) -> tuple[str, bool]:
        """Return (clause without the list items that say nothing about the image, whether an item was dropped)."""
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
        """Drop a run of items that have only ``Patterns.bare`` words, if a word was removed from the first item of the
        run and an item names a body part."""
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
    why: list[str] = []
    for rule in rules:
        after = rule.apply(text)
        why += [rule.reason] if after != text else []
        text = after
    return text, why


def _words_of(text: str) -> list[str]:
    return re.findall(r"[a-z]+|\d+", remove_marks(text).lower())


def _split_at(pattern: re.Pattern, text: str) -> list[tuple[str, str]]:
    """Return (separator before the part, part) for each part of a text between the matches of a pattern."""
    parts, separator, start = [], "", 0
    for match in pattern.finditer(text):
        parts.append((separator, text[start : match.start()]))
        separator, start = match.group(), match.end()
    return [*parts, (separator, text[start:])]


def remove_marks(text: str) -> str:
    """Return a text without the marks of editing."""
    return _MARKS.sub("", text)


def mend_articles(text: str) -> str:
    """Return a text with the right article, "a" or "an", where the word after the article was removed."""

    def mended(match: re.Match) -> str:
        article = "an" if _VOWEL.match(match[2]) else "a"
        return (article.capitalize() if match[1][0].isupper() else article) + " "

    return _ARTICLE.sub(mended, text)


def load(options: FilterOptions, _execution: Mapping) -> Engine:
    filter_sentence = load_sentence_filter(options)

    def filtered(sections: Sequence[Sequence[str]]) -> list[FilteredText]:
        return [FilteredText(tuple(map(filter_sentence, sentences))) for sentences in sections]

    return Engine(filtered, "rules")


def load_sentence_filter(options: FilterOptions) -> SentenceFilter:
    return SentenceFilter(options.resolved == "state_absence")
