"""Ties between neighbouring sentences, as in "There is an opacity. It has resolved.".

A sentence without ties can be read alone, and is read in the same way in every text.
"""

from dataclasses import dataclass

from cxr.language.reports.rules import inference
from cxr.language.reports.rules.lexicon import Lexicon
from cxr.language.reports.rules.mentions import SIDED, Hit, Mention

OVER = frozenset(("resolved", "cleared", "disappeared", "gone", "longer", "vanished"))
"""Words of a denial that may refer to a finding of an earlier sentence ("It has *resolved*")."""
_SUBJECTS = ("it", "this", "these", "they")


@dataclass(frozen=True)
class Ties:
    """Ways in which a sentence and its neighbours may affect each other's reading. ``back``: there are ties to earlier
    sentences. ``on``: there are ties to the next sentence. ``takes``: a finding may take the location of a finding in
    the previous sentence. ``gives``: a finding has a location that the next sentence may take."""

    back: bool
    on: bool
    takes: bool = False
    gives: bool = True


def find_ties(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> Ties:
    """Return the possible ties of a sentence that was read alone. Some of them may have no effect."""
    tags = {hit[0] for hit in hits}
    back = (
        bool(tags & {"hedged", "here"})
        or ("deny_after" in tags and not OVER.isdisjoint(words))
        or words[0] in _SUBJECTS
        or inference.refers_back(words, lexicon)
        or "unlike" in words
        or _stands_in(words, tags, mentions, lexicon)
        or any(_points(words, mention, lexicon) for mention in mentions)
    )
    takes = not lexicon.beside.isdisjoint(words) or any(_inherits(mention, lexicon) for mention in mentions)
    return Ties(back, words[-1] != ".", takes, any(mention.places for mention in mentions))


def _stands_in(words: list[str], tags: set[str], mentions: list[Mention], lexicon: Lexicon) -> bool:
    """Return whether a word may stand for a finding of an earlier sentence ("none on the right")."""
    first_mention_end = min((mention.end for mention in mentions), default=len(words))
    bare = not mentions and not tags.isdisjoint(SIDED) and not lexicon.one_sizes.isdisjoint(words)
    return bare or not lexicon.stand_ins.keys().isdisjoint(words[:first_mention_end])


def _points(words: list[str], mention: Mention, lexicon: Lexicon) -> bool:
    """Return whether a finding without a location may take one from an earlier sentence ("*this* opacity")."""
    pointed = not lexicon.pointers.isdisjoint(words[max(0, mention.start - 2) : mention.start])
    return pointed and mention.entity is not None and not mention.places


def _inherits(mention: Mention, lexicon: Lexicon) -> bool:
    """Return whether a disease lacks a location and may take it from a finding in the previous sentence."""
    possible = mention.entity is not None and mention.entity.name in lexicon.possible_diseases
    return possible and mention.hedge != "definite" and not mention.places
