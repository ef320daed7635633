"""Links from non-specific findings ("opacity") to the diseases that they may represent ("pneumonia"; paper A.2).

A finding and its disease form a single finding tuple, in which the disease is the predicted lesion type.
"""

from itertools import pairwise

from cxr.language.reports.rules import clauses
from cxr.language.reports.rules.lexicon import Lexicon
from cxr.language.reports.rules.mentions import Hit, Mention
from cxr.language.reports.rules.scope import weakest_grade

_JOINTS = frozenset((",", "or", "and", "/", "versus", "vs"))


def link_explanations(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> None:
    """Add each disease after a link ("opacity *suggesting* pneumonia") to ``candidates`` of the finding before it,
    the diseases that this finding may represent. Both must be affirmed in the same sentence."""
    _explain_by_apposition(words, mentions, lexicon)
    for grade, start, end in clauses.find_links(words, hits, mentions, lexicon):
        number = max(i for i, m in enumerate(mentions) if m.end <= start)
        finding, disease = mentions[number], mentions[number + 1]
        if grade != "weak" and any(tag == "device" and s == disease.start for tag, _, s, _ in hits):
            finding.flags.add("elsewhere")  # "densities consistent with surgical clips"
        if _usable(finding) and _usable(disease) and not finding.consumed:
            _take(finding, disease, weakest_grade(grade, disease.hedge))
            joint = not lexicon.joint.isdisjoint(words[end : disease.start])
            _take_alternatives(finding, words, mentions, number + 1, joint, hits, lexicon)
    for grade, disease, finding in clauses.find_reversed_links(hits, mentions):
        if _usable(finding) and _usable(disease) and not disease.consumed:
            _take(finding, disease, weakest_grade(grade, disease.hedge))
            _take_before(finding, disease, words, mentions)


def _take_before(finding: Mention, disease: Mention, words: list[str], mentions: list[Mention]) -> None:
    """Add further diseases that are named before their finding ("*edema or* infection explains the opacity")."""
    for last, following in pairwise(reversed(mentions[: mentions.index(disease) + 1])):
        gap = words[following.end : last.start]
        if len(gap) > 3 or _JOINTS.isdisjoint(gap) or not _usable(following) or following.entity.explained:
            return
        _take(finding, following, weakest_grade(finding.predicted_hedge, following.hedge, "strong"))


def _explain_by_apposition(words: list[str], mentions: list[Mention], lexicon: Lexicon) -> None:
    """Add the diseases that follow a finding after a comma ("left base opacity, atelectasis versus infiltrate")."""
    for number, finding in enumerate(mentions[:-2]):
        if not _usable(finding) or not finding.entity.explained or not _usable(mentions[number + 1]):
            continue
        listed, choice = [mentions[number + 1]], False
        for following in mentions[number + 2 :]:
            gap = words[listed[-1].end : following.start]
            if len(gap) > 3 or _JOINTS.isdisjoint(gap) or not _usable(following):
                break
            choice = choice or not lexicon.choices.isdisjoint(gap)
            listed.append(following)
        first, before = listed[0], words[: listed[0].start]
        apart = before[-1:] in ([","], ["either"], ["xxxx"], ["("], [":"]) or before[-2:-1] == [","]
        if choice and apart and first.places in ([], finding.places) and first.entity.name in lexicon.inherits:
            for disease in listed:
                _take(finding, disease, weakest_grade("strong", disease.hedge))


def _take_alternatives(finding, words, mentions, number: int, joint: bool, hits: list[Hit], lexicon: Lexicon) -> None:
    verbs = {s for tag, _, s, _ in hits if tag == "verb"}
    for last, following in zip(mentions[number:], mentions[number + 1 :], strict=False):
        gap = words[last.end : following.start]
        tied = not {"or", "versus", "vs", "/", "possibly"}.isdisjoint(gap) or (joint and "and" in gap)
        listed = gap[:1] == ["and"] and lexicon.inherit_words.issuperset(gap)
        tied = tied or gap == [","] or (listed and following.places in ([], last.places))
        if not tied or len(gap) > 6 or not _usable(following) or verbs & set(range(last.end, following.start)):
            return
        if gap == [","] and following.hedge == "weak" != finding.predicted_hedge:
            return  # "likely atelectasis, pneumonia not excluded": two statements
        _take(finding, following, weakest_grade(finding.predicted_hedge, following.hedge, "strong"))


def _usable(mention: Mention) -> bool:
    return mention.entity is not None and not {"negation", "elsewhere"} & mention.flags


def _take(finding: Mention, disease: Mention, grade: str) -> None:
    name = disease.entity.lesion or disease.entity.name
    if name not in finding.candidates:
        finding.candidates.append(name)
    finding.predicted_hedge = weakest_grade(finding.predicted_hedge or "definite", grade)
    # If an opacity may be aspiration, the type related to aspiration must not be denied either.
    if disease.entity.related not in (None, finding.entity.lesion, *finding.related):
        finding.related.append(disease.entity.related)
    disease.consumed = True
    disease.flags.add("explains")
    finding.places = finding.places + [place for place in disease.places if place not in finding.places]


def refers_back(words: list[str], lexicon: Lexicon) -> bool:
    """Return whether a sentence begins by referring to an earlier finding ("This likely represents ...")."""
    return any(tuple(words[:number]) in lexicon.anaphora for number in (1, 2, 3))
