"""Reading of statements such as "the edema has resolved", "has not cleared" and "as has the effusion"."""

from itertools import pairwise

from cxr.language.reports.rules import clauses, context
from cxr.language.reports.rules.lexicon import Lexicon
from cxr.language.reports.rules.mentions import PLACED, Hit, Mention, spans_of, tokens_of

_CLEARING = frozenset(("clearing", "resolution", "resorption", "clearance", "disappearance"))
_FILLERS = frozenset((
    ",", ";", "and", "but", "now", "since", "also", "subsequently", "completely", "-", "though", "have", "is", "are",
    "has",
))  # fmt: skip
_CONTRASTS = frozenset(("but", "though", "although", "however", "yet", ";"))
_REFERRING = frozenset(("this", "it", "they", "these", "early", "subtle", "small", "tiny", "minor", "minimal", "trace"))
_STOPS = frozenset((";", "but", "however", "although"))


def settle_denials(
    words: list[str], hits: list[Hit], mentions: list[Mention], cut: set[int], last, lexicon: Lexicon
) -> None:
    """Correct denials where the denying words alone mislead, as in "no evidence that the edema has resolved". ``cut``:
    tokens that start a clause. ``last``: mentions of the previous sentence."""
    for mention in mentions:
        if mention.denied is not None:
            _deny(mention, mention.denied)
    for _, diseases in clauses.find_refutations(words, hits, mentions, lexicon):
        for disease in diseases:
            disease.flags |= {"negation", "weak"}
    _keep_described(words, hits, mentions, lexicon)
    _appeared(hits, mentions)
    for start, end in spans_of(hits, "beyond"):  # "no consolidation elsewhere" does not deny earlier findings
        for mention in mentions:
            between = words[min(end, mention.end) : max(start, mention.start)]
            if "negation" in mention.flags and _STOPS.isdisjoint(between):
                mention.flags.add("no_new")
    _doubted(words, hits, mentions, last)
    _denied_that(words, hits, mentions)
    for start, _ in spans_of(hits, "unfinished"):  # "clearing of the edema is incomplete": edema is present
        before = [m for m in mentions if m.end <= start]
        lead = words[max(0, before[-1].start - 8) : before[-1].start] if before else []
        if before and start - before[-1].end <= 8 and not _CLEARING.isdisjoint(lead):
            _deny(before[-1], denied=False)
    _contrasted(words, hits, mentions)
    for start, _ in spans_of(hits, "on_prior"):  # "there was no edema on the previous film": not this image
        before = [m for m in mentions if m.end <= start <= m.end + 3]
        lead = words[max(0, before[-1].start - 6) : before[-1].start] if before else []
        if {"was", "were"} & set(lead) and {"no", "not"} & set(lead) and "negation" in before[-1].flags:
            before[-1].flags.add("elsewhere")
    for start, end in spans_of(hits, "likewise"):  # "as has the effusion": the second is denied like the first
        before = [m for m in mentions if m.end <= start and m.entity is not None]
        after = [m for m in mentions if m.start >= end and m.entity is not None]
        if before and after and after[0].start - end <= 8:
            _deny(after[0], "negation" in before[-1].flags)
    _resumed(words, hits, mentions, cut, last, lexicon)
    _run_on(words, hits, mentions, cut, lexicon)
    ends = [start for start, _ in clauses.longest_spans(hits, "deny_after", "deny_not")]
    for mention in mentions:
        after = words[mention.end : mention.end + 3]
        if after[:2] == [",", "which"] and after[2:] and after[2] in ("is", "are", "remains", "remain", "persists"):
            mention.flags.discard("elsewhere")  # "status post drainage of the effusion, which is now small"
        if {"elsewhere", "negation"} <= mention.flags and any(mention.end <= s for s in ends):
            mention.flags.discard("elsewhere")  # "pneumonia on outside CT is not apparent" describes this image


def _run_on(words: list[str], hits: list[Hit], mentions: list[Mention], cut: set[int], lexicon: Lexicon) -> None:
    """Flag a denied finding as "elsewhere", neither affirmed nor denied, if only a place or size is between it and the
    last denied finding ("no pneumothorax left effusion"), because punctuation may be missing. The flag extends to the
    following findings. A list that ends with "or" is denied ("no consolidation large effusion or pneumothorax")."""
    if sum("negation" in mention.flags for mention in mentions) < 2:
        return
    denials = clauses.longest_spans(hits, "deny", "deny_not")
    ends = [start for start, _ in clauses.longest_spans(hits, "deny_after", "deny_not")]
    fillers = tokens_of(hits, *PLACED) | {i for i, word in enumerate(words) if word in lexicon.quantities}
    verbs, has_run_on = tokens_of(hits, "verb"), False
    for first, second in pairwise(mentions):
        gap = set(range(first.end, second.start))
        is_next = fillers >= gap and (gap or "composite" in second.flags)
        is_next = is_next or (words[first.end : first.end + 1] == ["the"] and verbs & gap)
        if not cut.isdisjoint(gap | {second.start}) or any(start in gap for start, _ in denials):
            has_run_on = False
        elif is_next and "or" not in words[second.end :] and any(end <= first.start for _, end in denials):
            has_run_on = True
        is_denied = "negation" in first.flags & second.flags and second.denied is None
        if has_run_on and is_denied and not any(second.end <= end for end in ends):
            second.flags.add("elsewhere")


def _deny(mention: Mention, denied: bool) -> None:
    if denied:
        mention.flags.add("negation")
    else:
        mention.flags -= {"negation", "no_new"}


def _keep_described(words, hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> None:
    """Undo the denial of a finding that only says where or whose the denied thing is. In "no cavitation within the
    right opacity", the opacity is present."""
    denial_ends = [end for _, end in clauses.longest_spans(hits, "deny", "deny_not")]
    sided = tokens_of(hits, *PLACED)
    leads = lexicon.told_of["beside"] | lexicon.told_of["part"]
    skipped = lexicon.quantities | lexicon.told_of["marker"] | {"to"}
    for mention in mentions:
        denial_end = max((end for end in denial_ends if end <= mention.start), default=None)
        if "negation" not in mention.flags or mention.entity is None or denial_end is None:
            continue
        at = mention.start - 1
        while at > denial_end and words[at] not in leads and (at in sided or words[at] in skipped):
            at -= 1
        head, words_between = words[denial_end:at], words[at + 1 : mention.start]
        if at <= denial_end or words[at] not in leads or not lexicon.told_of["evidence"].isdisjoint(head):
            continue
        marked = not lexicon.told_of["marker"].isdisjoint(words_between)
        if marked or words[at] in lexicon.told_of["beside"]:
            _deny(mention, denied=False)
            place_hits = [hit for hit in hits if hit[0] in PLACED and at < hit[2] and hit[3] <= mention.start]
            mention.told = place_hits or mention.told


def _doubted(words, hits: list[Hit], mentions: list[Mention], last: list[Mention]) -> None:
    """Mark a denial as weak if the text doubts it ("no definite pneumonia, though early disease cannot be excluded").
    The doubt may be a sentence that names no finding and begins with a word such as "this" or "early"."""
    for start, _ in spans_of(hits, "hedged"):
        joints = [i for i in range(start) if words[i] in _CONTRASTS]
        before = [m for m in mentions if m.end <= start]
        doubted_mentions = before[-1:] if joints and before and before[-1].end <= joints[-1] else []
        if not mentions and words[0] in _REFERRING:
            doubted_mentions = last
        for mention in doubted_mentions:
            if "negation" in mention.flags:
                mention.flags.add("weak")


def _appeared(hits: list[Hit], mentions: list[Mention]) -> None:
    """Undo the denial of a new finding ("consolidation, absent on the earlier film, has appeared"). The denial stays if
    a denying word precedes the finding."""
    denials = clauses.longest_spans(hits, "deny", "deny_not", "deny_after")
    for start, _ in spans_of(hits, "appeared"):
        before = [m for m in mentions if m.end <= start]
        if before and "negation" in before[-1].flags and not any(s < before[-1].start for s, _ in denials):
            _deny(before[-1], denied=False)


def _denied_that(words, hits: list[Hit], mentions: list[Mention]) -> None:
    """Undo a denial of only a change. "No evidence that the edema has resolved" does not deny the edema."""
    changes = [start for start, _ in spans_of(hits, "changes")]
    for _, end in spans_of(hits, "not_all"):
        for mention in (m for m in mentions if m.start >= end and any(m.end <= s for s in changes)):
            _deny(mention, denied=False)  # "Not all of the edema has cleared."
    for _, end in spans_of(hits, "denied_that"):
        for number, mention in enumerate(mentions):
            if mention.start >= end and _STOPS.isdisjoint(words[end : mention.start]):
                following = mentions[number + 1].start if number + 1 < len(mentions) else len(words)
                _deny(mention, not any(mention.end <= s < following for s in changes))


def _contrasted(words, hits: list[Hit], mentions: list[Mention]) -> None:
    """Set or undo the denials of contrasted findings, as in "the edema but not the effusion has resolved", "neither the
    opacity nor the edema has changed" and "the edema, unlike the effusion, has resolved"."""
    changes = [start for start, _ in spans_of(hits, "changes")]
    neither = words.index("neither") if "neither" in words else len(words)
    under = [m for m in mentions if m.start > neither]
    if under and any(under[-1].end <= s for s in changes):
        for mention in under:
            _deny(mention, denied=False)
    ends = [start for start, _ in clauses.longest_spans(hits, "deny_after", "deny_not")]
    for first, second in pairwise(mentions):
        gap = words[first.end : second.start]
        if gap[:2] == ["but", "not"] and len(gap) <= 4 and any(second.end <= s <= second.end + 2 for s in ends):
            _deny(first, denied=True)
            _deny(second, denied=False)
        elif "unlike" in gap and len(gap) <= 4 and "," in words[second.end : second.end + 2]:
            _deny(first, denied=any(second.end <= s for s in ends))
            _deny(second, denied="negation" not in first.flags)


def _resumed(words, hits: list[Hit], mentions: list[Mention], cut: set[int], last, lexicon: Lexicon) -> None:
    """Deny findings that a later clause or the next sentence calls resolved ("There was edema. This has resolved")."""
    for start, end in clauses.longest_spans(hits, "deny_after", "deny_not"):
        if context.OVER.isdisjoint(words[start:end]):
            continue
        begin = max((token for token in cut if token <= start), default=0)
        lead = tuple(word for word in words[begin:start] if word not in _FILLERS)
        if any(begin <= m.start < start for m in mentions):
            continue
        before = [m for m in mentions if m.end <= begin and m.entity is not None]
        if before and words[start - 1] == "," and words[begin] in ("which", ","):
            lead = ("which",)  # "Effusions, which were small, have resolved."
        earlier_mentions = before or [m for m in last if m.entity is not None]
        if not earlier_mentions or not (lead in lexicon.resumed or (not lead and not mentions and end - begin <= 6)):
            continue
        several = lead in lexicon.several or not {"have", "are"}.isdisjoint(words[start:end])
        for mention in earlier_mentions if several else earlier_mentions[-1:]:
            mention.flags.discard("elsewhere")
            _deny(mention, denied=True)
