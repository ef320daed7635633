"""The default engine: patterns, the report lexicon and the report rules engine, without a model.

Patterns rewrite a sentence. The lexicon protects words that are part of a finding's name. The rules engine verifies
that a rewritten sentence affirms and denies nothing that its source does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spacy.tokens import Doc

from cxr.base.paths import RESOURCES
from cxr.language.reports.rules import lexicon, structure
from cxr.language.reports.rules.tokens import split_words
from cxr.radvlm.filtered.engine import DROPPED, KEPT, REWRITTEN, Engine, FilteredText, FilterOptions, Sentence
from cxr.radvlm.filtered.rewriting import Draft, Patterns, Rewriter, load_patterns

RESOURCE_FILES = ("radvlm/filter.yaml", "lexicon")
UNSURE = "unsure"
"""Reason of a sentence whose remainder would change its meaning."""
CLAUSE_REASONS = frozenset(("comparison", "history", "recommendation", "communication", "technique", "view"))
"""Reasons that drop a whole clause, even if it contains a finding."""
_NAMING_TAGS = ("entity", "cancel", "device", "state")


@dataclass(frozen=True)
class SentenceFilter:
    """Filters one sentence: rewrites it and verifies the result."""

    patterns: Patterns
    lexicon: lexicon.Lexicon
    rewriter: Rewriter

    def __call__(self, sentence: str) -> Sentence:
        """Return the filtered sentence; filtering is idempotent."""
        if not self.patterns.trigger.search(sentence):
            return Sentence(sentence, KEPT)
        draft = self.rewriter.rewrite(sentence)
        if not draft.reasons:
            return Sentence(sentence, KEPT)
        if draft.text is None:
            return Sentence(None, DROPPED, draft.reasons)
        if self._says_the_same(sentence, draft):
            return Sentence(draft.text, REWRITTEN, draft.reasons)
        if {"change"}.issuperset(draft.reasons):  # a word of change alone drops no sentence
            return Sentence(sentence, KEPT, (UNSURE,))
        return Sentence(None, DROPPED, (*draft.reasons, UNSURE))

    def _says_the_same(self, sentence: str, draft: Draft) -> bool:
        before, after = self.claims(sentence), self.claims(draft.text)
        lost = {claim[:2] for claim in before} - {claim[:2] for claim in after}
        affirmed = {entity for entity, presence in lost if presence == "positive"}
        return after <= before and (not affirmed or not CLAUSE_REASONS.isdisjoint(draft.reasons))

    def names(self, text: str) -> bool:
        """Tell whether a text names a finding, a device or a state."""
        return self.rewriter.names(text)

    def claims(self, text: str) -> set[tuple[str, str]]:
        """Return the (entity, presence) pairs that a sentence affirms or denies; "no new X" denies nothing."""
        tuples = structure.structure_sentences([text], self.lexicon, unsided_effusion=True)
        entity_claims = {(finding["entity"], finding["presence"]) for finding in tuples if finding["denies"]}
        return entity_claims | {(name, finding["presence"]) for finding in tuples for name in finding["candidates"]}


def load(options: FilterOptions, execution: Mapping) -> Engine:
    """Return the engine."""
    del execution
    filter_sentence = load_sentence_filter(options)

    def filtered(sections: Sequence[Sequence[str]]) -> list[FilteredText]:
        return [FilteredText(tuple(map(filter_sentence, sentences))) for sentences in sections]

    return Engine(filtered, "rules")


def load_sentence_filter(options: FilterOptions) -> SentenceFilter:
    """Load the sentence filter."""
    patterns = load_patterns(str(Path(RESOURCES) / RESOURCE_FILES[0]))
    words = lexicon.load_lexicon(str(Path(RESOURCES) / RESOURCE_FILES[1]))
    safe, states_absence = partial(_protected_spans, words, patterns.past), options.resolved == "state_absence"
    rewriter = Rewriter(patterns, safe, partial(_names_something, words), states_absence)
    return SentenceFilter(patterns, words, rewriter)


def _match_lexicon(words: lexicon.Lexicon, text: str) -> tuple[list, list]:
    tokens = split_words(text)
    return tokens, words.match(Doc(words.nlp.vocab, words=[token for token, _, _ in tokens] or [" "]))


def _protected_spans(words: lexicon.Lexicon, past: frozenset[str], text: str) -> list[tuple[int, int]]:
    """Return the spans of findings, present or past ("prior pneumonia"); words of change in them belong to the name."""
    tokens, hits = _match_lexicon(words, text)
    named_spans = [(s, e) for tag, _, s, e in hits if tag == "entity" or (tag == "cancel" and tokens[s][0] in past)]
    return [(tokens[s][1], tokens[e - 1][2]) for s, e in named_spans]


def _names_something(words: lexicon.Lexicon, text: str) -> bool:
    """Tell whether a text names a finding, a device or a state."""
    return any(tag in _NAMING_TAGS for tag, *_ in _match_lexicon(words, text)[1])
