"""Marking of findings as denied, hedged or only discussed, by negspacy with the clauses and phrases of this engine."""

import re
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from spacy.attrs import SENT_START
from spacy.tokens import Doc

from cxr.language.reports.rules.lexicon import Lexicon
from cxr.language.reports.rules.mentions import SIDED, Hit, Mention, spans_of, tokens_of

GRADES = ("definite", "strong", "weak")
_PREFERENCE = re.compile(r"\bfavou?r|\b(?:more|rather) ")
_VERSUS = frozenset(("versus", "vs"))


def apply_scope(
    doc: Doc, placed_mentions: list[tuple[Mention, int]], clause_starts: Iterable[int], lexicon: Lexicon
) -> None:
    """Add to each mention's flags the kinds of denying or hedging words (``lexicon.CUE_SETS``, such as "weak") that
    apply to it. ``placed_mentions`` has (mention, first token of its sentence in ``doc``)."""
    cued = lexicon.cued(doc) if placed_mentions else []
    if not cued:
        return
    opening = np.full((len(doc), 1), -1, np.int64)
    opening[[0, *clause_starts]] = 1
    doc.from_array([SENT_START], opening.view(np.uint64))
    spans: dict[tuple[int, int], list[Mention]] = {}
    for mention, offset in placed_mentions:
        spans.setdefault((mention.scope[0] + offset, mention.scope[1] + offset), []).append(mention)
    doc.spans["mentions"] = [doc[s:e] for s, e in spans]
    for name in cued:
        lexicon.cues[name](doc)
        for span in doc.spans["mentions"]:
            if span._.get(name):
                for mention in spans[(span.start, span.end)]:
                    mention.flags.add(name)


def deny_adjacent(words: list[str], hits: list[Hit], mentions: list[Mention], cut: set[int], lexicon: Lexicon) -> None:
    """Deny findings directly after "resolved" or a similar word. ``cut``: tokens that start a clause."""
    sided = tokens_of(hits, *SIDED)
    for mention in mentions:
        start = mention.start
        while start > 0 and start not in cut and (start - 1 in sided or words[start - 1] in lexicon.quantities):
            start -= 1
        before = words[max(0, start - 3) : start] if start not in cut else []
        near = not lexicon.adjacent.isdisjoint(before[-1:]) and lexicon.not_adjacent.isdisjoint(before)
        old = words[max(0, mention.start - 3) : mention.start]
        over = next((i for i in range(mention.start - len(old), mention.start) if words[i] in lexicon.adjacent), 0)
        if over and words[over - 1] in lexicon.not_adjacent - {",", ";", "and"}:
            continue  # "Not resolved: left effusion"
        near = near or (
            not lexicon.adjacent.isdisjoint(old)
            and lexicon.not_adjacent.isdisjoint(old)
            and cut.isdisjoint(range(mention.start - 2, mention.start + 1))
        )
        near = near or _over(words, mention, lexicon)
        lesion = mention.entity is not None and mention.entity.lesion is not None
        if near or (lesion and " ".join(["", *old]).endswith(lexicon.touching)):
            mention.flags.add("negation")


def leave_unassessed_open(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> None:
    """Flag findings before "cannot be assessed", and findings that "and" or "or" joins to them, as "elsewhere". This
    flag means neither affirmed nor denied. A location may be between the finding and the phrase."""
    sided = tokens_of(hits, *SIDED)
    following: Mention | None = None
    for mention in reversed(mentions):
        end = mention.end
        while end < len(words) and (end in sided or words[end] in ("in", "at", "of", "on", "the")):
            end += 1
        is_joined = following is not None and words[end : following.start] in (["and"], ["or"], ["/"])
        following = None
        if is_joined or any(tuple(words[end : end + len(phrase)]) == phrase for phrase in lexicon.unassessed):
            mention.flags.add("elsewhere")
            following = mention


def _over(words: list[str], mention: Mention, lexicon: Lexicon) -> bool:
    """Return whether a statement consists of a finding and a word such as "resolved" ("Edema resolved.")."""
    state, after = words[mention.end : mention.end + 1], words[mention.end + 1 : mention.end + 2]
    over = bool(state) and state[0] in ("resolved", "cleared", "gone", "disappeared", "vanished")
    return over and (not after or after[0] in lexicon.behind["ends"])


def weakest_grade(*grades: str) -> str:
    """Return the least certain of several grades of ``GRADES``."""
    return max(grades, key=GRADES.index)


def grade_hedges(mentions: list[Mention], words: list[str], hits: list[Hit], lexicon: Lexicon) -> None:
    """Set the certainty grade (``hedge``) of each mention in a sentence by its flags and alternatives ("X or Y")."""
    settings = spans_of(hits, "setting")
    for mention in mentions:
        versus = not _VERSUS.isdisjoint(words[mention.end : mention.end + 2])
        if {"weak", "suspicion"} & mention.flags:
            mention.hedge = "weak"
        else:
            mention.hedge = "strong" if "strong" in mention.flags or versus else "definite"
        mention.hedge = weakest_grade(mention.hedge, _behind(words, mention.end, lexicon))
        if mention.entity is not None:
            mention.hedge = weakest_grade(mention.hedge, mention.entity.hedge)
            # "pneumonia in the proper clinical setting" is hedged, an opacity is not. The phrase may also come first
            if not mention.entity.explained and any(e <= mention.start or s == mention.end for s, e in settings):
                mention.hedge = "weak"
    _carry(mentions, hits)
    _rank(mentions, words)
    alternatives = {"or", "versus", "vs", "/"}
    for first, second in pairwise(mentions):
        gap = words[first.end : second.start]
        if len(gap) > 6 or alternatives.isdisjoint(gap) or {";", "."} & set(gap):
            continue
        is_denied = "negation" in first.flags | second.flags
        if is_denied or None in (first.entity, second.entity) or _unchanged(words, first, hits):
            continue
        # the alternative joins the two nouns, not two adjectives of the second ("new or increased")
        place = next(i for i, word in enumerate(gap) if word in alternatives)
        if place <= 2 or gap[place - 1] == ",":
            first.hedge, second.hedge = weakest_grade(first.hedge, "strong"), weakest_grade(second.hedge, "strong")


def _unchanged(words: list[str], mention: Mention, hits: list[Hit]) -> bool:
    """Return whether a phrase such as "no change in" precedes a mention. In "no change in the effusion or opacity", the
    two findings are not alternatives."""
    for end in (end for _, end in spans_of(hits, "deny_not") if end <= mention.start):
        marks = {";", "but", "there"} | ({","} if words[end] not in ("in", "of", "to") else set())
        if marks.isdisjoint(words[end : mention.start]):
            return True
    return False


def _behind(words: list[str], end: int, lexicon: Lexicon) -> str:
    """Return the certainty grade of an adjective that follows a finding and ends the statement ("effusions likely.").
    Without such an adjective, the grade is "definite". ``end`` is the token after the finding."""
    while end < len(words) and words[end] in lexicon.behind["skip"]:
        end += 1
    if end < len(words) and (end + 1 == len(words) or words[end + 1] in lexicon.behind["ends"]):
        return next((name for name in ("strong", "weak") if words[end] in lexicon.behind[name]), "definite")
    return "definite"


def _carry(mentions: list[Mention], hits: list[Hit]) -> None:
    """Extend the hedge of one of two linked findings to the other ("may be scar associated with atelectasis")."""
    for s, e in spans_of(hits, "carries"):
        before = [m for m in mentions if m.end <= s]
        after = [m for m in mentions if m.start >= e]
        if before and after and "weak" in before[-1].flags and "negation" not in after[0].flags:
            after[0].hedge = weakest_grade(after[0].hedge, "weak")
    doubts = [s for tag, _, s, _ in hits if tag == "hedged"]
    for s, e in spans_of(hits, "bears"):
        before = [m for m in mentions if m.end <= s]
        after = [m for m in mentions if m.start >= e]
        if before and after and "weak" in after[0].flags and any(after[0].end <= doubt for doubt in doubts):
            before[-1].hedge = weakest_grade(before[-1].hedge, "weak")


def _rank(mentions: list[Mention], words: list[str]) -> None:
    """Grade a less likely disease as weak, such as the pneumonia in "favoring atelectasis over pneumonia"."""
    for first, second in pairwise(mentions):
        gap = words[first.end : second.start]
        if gap[:1] in (["over"], ["than"]) and len(gap) <= 3 and _PREFERENCE.search(" ".join(words[: second.start])):
            second.hedge = "weak"
