"""Where the reach of a denial or hedge ends inside a sentence."""

from ils.reports.rules.lexicon import Lexicon
from ils.reports.rules.mentions import Hit, Mention

_COMMA = {",", "(", ")"}
_REVERSED_GAP = 6
_LISTED = {"or", "and", "nor", "/", "versus", "vs"}


def starts(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> set[int]:
    """Return the tokens of one sentence at which a new clause begins (the first token not among them)."""
    kept = _longest(hits, ("end", "not_end", "link", "deny_not", "bound"))
    found = {s for tag, s, _ in kept if tag == "end"}
    affirming = {s for tag, _, s, _ in hits if tag == "affirming"}
    inside = {i for m in mentions for i in range(m.start + 1, m.end)}
    cued = {e for tag, _, _, e in hits if tag == "cue_with"}  # "consistent with mild edema" goes on
    aside = {i for tag, s, e in kept if tag == "not_end" for i in range(s, e)}
    for token in affirming:
        before = words[token - 1] if token and token - 1 not in aside else ""
        opens = before == "with" and token not in cued and words[token] in lexicon.affirming_after_with
        if before in _COMMA or opens:
            found.add(token)
        elif token > 1 and before in ("and", "with") and words[token - 2] == ",":
            found.add(token - 1)
    found |= _verb_halves(words, hits, mentions, found)
    found |= _unlikely_next(words, mentions)
    found |= _told_in_full(words, hits, mentions)
    found |= _hedged_after_comma(words, hits, mentions)
    found |= _past_history(words, hits, mentions)
    found |= {s for _, s, _ in links(words, hits, mentions, lexicon)}
    found |= {mention.start for *_, mention in reversed_links(hits, mentions)}
    return {token for token in found if token > 0 and token not in inside}


def links(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> list[tuple[str, int, int]]:
    """Return (grade, start, end) of the links that stand between a finding to be explained and a next mention.

    A link after a denial ("no opacity suggesting pneumonia") ties nothing: the denial reaches both.
    """
    found = []
    denials = [(s, e) for tag, s, e in _longest(hits, ("deny", "deny_not", "no_new")) if tag == "deny"]
    for grade, start, end in _longest(hits, ("link", "bound")):
        before = [m for m in mentions if m.end <= start]
        after = [m for m in mentions if m.start >= end]
        if grade is None or not before or not after or before[-1].entity is None or not before[-1].entity.explained:
            continue
        if words[start - 1] in lexicon.not_linked and lexicon.link_adjectives.issuperset(words[start:end]):
            continue
        if not _leads(words[end : after[0].start], lexicon):
            continue
        if any(before[-1].end <= s < after[0].start for s, _ in denials):
            continue
        if any(s < before[-1].start and not _ended(words, s, before[-1].start) for s, _ in denials):
            continue
        found.append((grade, start, end))
    return found


def reversed_links(hits: list[Hit], mentions: list[Mention]) -> list[tuple[str, Mention, Mention]]:
    """Return (grade, disease, finding) of links that tell the disease first ("atelectasis explains the opacity")."""
    found = []
    for grade, start, end in _longest(hits, ("reversed",)):
        before = [m for m in mentions if m.end <= start]
        after = [m for m in mentions if m.start >= end]
        if before and after and before[-1].entity is not None and after[0].entity is not None:
            near = start - before[-1].end <= _REVERSED_GAP and after[0].start - end <= _REVERSED_GAP
            if near and after[0].entity.explained and not before[-1].entity.explained:
                found.append((grade, before[-1], after[0]))
    return found


def _leads(gap: list[str], lexicon: Lexicon) -> bool:
    """Tell whether the words after a link lead straight to the disease."""
    return len(gap) <= lexicon.link_gap and lexicon.link_breaks.isdisjoint(gap)


def _ended(words: list[str], start: int, end: int) -> bool:
    return not {";", "but", "however", "although", "though", "there", "except"}.isdisjoint(words[start:end])


def _longest(hits: list[Hit], tags: tuple[str, ...]) -> list[tuple]:
    """Return (tag or link grade, start, end) of phrases of these tags, the longest of those that overlap."""
    taken: set[int] = set()
    kept = []
    for tag, value, s, e in sorted((h for h in hits if h[0] in tags), key=lambda h: (h[2] - h[3], h[2], h[0])):
        if taken.isdisjoint(range(s, e)):
            taken.update(range(s, e))
            kept.append((value if tag in ("link", "reversed") else None if tag == "bound" else tag, s, e))
    return sorted(kept, key=lambda item: item[1])


def _unlikely_next(words: list[str], mentions: list[Mention]) -> set[int]:
    """Return the "unlikely" that speaks of the finding right after it: "opacity, unlikely to represent pneumonia"."""
    begins = {mention.start for mention in mentions}
    found = set()
    for token, word in enumerate(words):
        if word == "unlikely" or words[token : token + 2] == ["less", "likely"]:
            after = token + (1 if word == "unlikely" else 2)
            if words[after : after + 1] == ["to"]:
                after += 2
            if after in begins:
                found.add(token)
    return found


def _told_in_full(words: list[str], hits: list[Hit], mentions: list[Mention]) -> set[int]:
    """Return the joint before a subject with its own verb and state: "no effusion *and* the heart is enlarged"."""
    verbs = {s for tag, _, s, _ in hits if tag == "verb"}
    found = set()
    for mention in mentions:
        if "composite" in mention.flags and verbs & set(range(mention.start, mention.end)):
            joint = mention.start - 1 - (words[mention.start - 1 : mention.start] == ["the"])
            if joint > 0 and words[joint] in ("and", ","):
                found.add(joint)
    return found


def _past_history(words: list[str], hits: list[Hit], mentions: list[Mention]) -> set[int]:
    """Return where a history or a request ends: at the comma of "history of cough, pneumonia *is* possible"."""
    verbs = {s for tag, _, s, _ in hits if tag == "verb"}
    first = min((s for tag, _, s, _ in hits if tag == "aside"), default=len(words))
    found = set()
    for mention in mentions:
        commas = [i for i in range(first, mention.start) if words[i] == ","]
        if commas and not verbs.isdisjoint(range(mention.end, mention.end + 3)):
            found.add(commas[-1])
    operations = [e for tag, _, _, e in hits if tag == "operation"]
    return found | {i for end in operations for i in range(end, len(words)) if words[i] == "with"}


def _hedged_after_comma(words: list[str], hits: list[Hit], mentions: list[Mention]) -> set[int]:
    """Return the comma of "opacity, pneumonia not excluded": only the finding next to the hedge is meant."""
    found = set()
    for hedge in {s for tag, _, s, _ in hits if tag == "hedged"}:
        before = [m for m in mentions if m.end <= hedge][-2:]
        if len(before) < 2 or hedge - before[1].end > 1:
            continue
        gap = words[before[0].end : before[1].start]
        if "," in gap and _LISTED.isdisjoint(gap):
            found.add(before[1].start - gap[::-1].index(",") - 1)
    return found


def _verb_halves(words: list[str], hits: list[Hit], mentions: list[Mention], ends: set[int]) -> set[int]:
    """Return joints ("and", a comma) with a verb of their own and a mention on both sides; ``ends``: clauses so far."""
    verbs = sorted({s for tag, _, s, _ in hits if tag == "verb" and (s == 0 or words[s - 1] != "to")})
    if len(verbs) < 2:
        return set()
    found = set()
    joints = [i for i, word in enumerate(words) if word in ("and", ",", "or")]
    for joint in joints:
        clause = max((end for end in ends if end <= joint), default=0)
        left = [v for v in verbs if clause <= v < joint]
        right = [v for v in verbs if v > joint]
        if not left or not right:
            continue
        nearer = [j for j in joints if joint < j < right[0] and words[j] != "or"]
        starts_here = any(joint < m.start < right[0] for m in mentions) or right[0] - joint <= 5
        if not nearer and starts_here and right[0] - joint > 1 and any(m.start < joint for m in mentions):
            found.add(joint)
    return found
