"""Detection of findings that are meant but not named again, as in "small left and no right effusion" or "none".

Each of them becomes a mention of its own, called a stand-in. Its entity is that of the finding that it means.
"""

import re

from cxr.language.reports.rules.lexicon import Lexicon
from cxr.language.reports.rules.mentions import SIDED, Hit, Mention, spans_of, tokens_of
from cxr.language.reports.rules.places import half_level

_DENIALS = frozenset(("no", "without", "not"))
_JOINTS = frozenset(("and", "but", ",", "or", ";", "yet", "though", "/"))
_LEADS = frozenset(("in", "on", "at", "within", "over"))
_ENDS = frozenset((".", ",", ";", "and", "but", ")", "with"))
_SEEN = frozenset(("is", "are", "seen", "present", "noted", "visible", "evident", "identified", "demonstrated"))
_HAS = frozenset(("has", "have", "is", "are", "was", "remains", "now", "also", "almost", "nearly", "completely"))
_CLEARING = frozenset(("resolution", "clearing", "disappearance", "resorption", "clearance"))
_DOUBTS = frozenset(("cannot", "could", "may", "might", "possible", "probable", "likely"))
_HALVES = re.compile(r"([NQ]*)(S[SQ]*)(J+)([NQ]*)(S[SQ]*)$")
"""Word classes before a noun, as in "small left and no right effusion". N is a denial, Q a quantity or article, S a
location, and J a word such as "and" or "but"."""
_TAIL = re.compile(r"(J+)(N?)([QL]*)(S[SQ]*)(?=$|[.J])")
"""Word classes after a noun, as in "no left effusion, *small right*". L is a preposition, "." an end, and N, Q, S and J
are as in ``_HALVES``."""


def add_stand_ins(
    words: list[str], hits: list[Hit], mentions: list[Mention], previous_entity, lexicon: Lexicon
) -> list[Mention]:
    """Return the mentions of a sentence, and stand-ins for findings that it means without naming them again, in text
    order. ``previous_entity`` is the finding that the text names last before this sentence."""
    if not mentions and previous_entity is None:
        return mentions
    sided = tokens_of(hits, *SIDED)
    if not sided and all(hit[0] != "exceptions" for hit in hits) and lexicon.stand_ins.keys().isdisjoint(words):
        return mentions
    candidates = []
    for number, mention in enumerate(mentions):
        if mention.entity is not None and mention.entity.category in ("lung", "pleura"):
            following = mentions[number + 1].start if number + 1 < len(mentions) else len(words)
            earlier = mentions[number - 1].end if number else 0
            candidates += _split_halves(words, hits, mention, earlier, sided, lexicon)
            candidates += _split_tail(words, hits, mention, following, sided, lexicon)
    candidates += _pronouns(words, hits, mentions, previous_entity, sided, lexicon)
    taken = {i for m in mentions for i in range(m.start, m.end)}
    new_mentions = []
    for mention in sorted(candidates, key=lambda m: m.start):
        if taken.isdisjoint(range(mention.start, mention.end)):
            taken.update(range(mention.start, mention.end))
            new_mentions.append(mention)
    return sorted([*mentions, *new_mentions], key=lambda m: m.start) if new_mentions else mentions


def _classes(words: list[str], start: int, end: int, sided: set[int], lexicon: Lexicon) -> str:
    """Return the class of each word as one letter, as in ``_HALVES`` and ``_TAIL``. Any other word gets an O."""
    letters = []
    for i in range(start, end):
        word = words[i]
        rather = words[max(0, i - 1) : i + 1]
        if word == "rather" and words[i + 1 : i + 2] == ["than"]:
            letters.append("J")  # "the upper *rather than* the lower lobe": the upper but not the lower lobe
        elif rather == ["rather", "than"] or word in _DENIALS:
            letters.append("N")
        elif i in sided:
            letters.append("S")
        elif word in _JOINTS:
            letters.append("J")
        elif word in lexicon.quantities or word == "pleural":
            letters.append("Q")
        elif word in _LEADS:
            letters.append("L")
        else:
            letters.append("." if word in (".", ":", "(", ")") else "O")
    return "".join(letters)


def _split_halves(words, hits, mention: Mention, earlier: int, sided: set[int], lexicon: Lexicon) -> list[Mention]:
    """Return a mention for the first half of a phrase such as "small left and no right effusion", or an empty list.
    ``earlier`` is the end of the previous mention. ``sided`` has the tokens that name a side or a part of a lung."""
    classes = _classes(words, earlier, mention.start, sided, lexicon)
    comma = re.search("J(?=Q*$)", classes)
    if comma and words[earlier + comma.start()] == ",":
        classes = classes[: comma.start()] + "Q" + classes[comma.end() :]  # "the right, but not the left, effusion"
    match = _HALVES.search(classes)
    if match is None or classes[match.start() - 1 : match.start()] == "L" or ";" in words[earlier : mention.start]:
        return []
    first, second = "N" in match[1], "N" in match[4]
    if second and not _CLEARING.isdisjoint(words[max(0, earlier + match.start() - 3) : earlier + match.start()]):
        first, second = True, False  # "resolution of the right, but not the left, effusion"
    if first == second or (first and not match[4]):
        return []
    start, end = earlier + match.start(2), earlier + match.end(2)
    places = [hit for hit in hits if hit[0] in SIDED and start <= hit[2] and hit[3] <= end]
    second_span = (earlier + match.start(4), mention.start)
    mention.denied = second
    mention.told = [hit for hit in hits if hit[0] in SIDED and second_span[0] <= hit[2] and hit[3] <= second_span[1]]
    places = [_with_level(hit, mention.told, lexicon) for hit in places]
    if not any(hit[0] in ("level", "fused") for hit in places):
        places += [hit for hit in mention.told if hit[0] == "level"]
    return [_stand_in(mention.entity, start, end, first, places)]


def _with_level(hit: Hit, noun_hits: list[Hit], lexicon: Lexicon) -> Hit:
    """Convert a word such as "upper" in "the right upper but not the lower lobe" to the lung level that it means."""
    noun = next((str(value) for tag, value, _, _ in noun_hits if tag == "level"), "")
    level = half_level(str(hit[1]), noun, lexicon) if noun and hit[0] == "half" else None
    return ("level", level, hit[2], hit[3]) if level else hit


def _split_tail(words, hits, mention: Mention, following: int, sided: set[int], lexicon: Lexicon) -> list[Mention]:
    """Return mentions for the locations after a noun that is not repeated ("no left effusion, *small right*").
    ``following``: first token of the next mention. ``sided``: tokens that name a side or a part of a lung."""
    classes = _classes(words, mention.end, following, sided, lexicon)
    head = words[max(0, mention.start - 5) : mention.start]
    denied = "no" in head or "without" in head
    mentions: list[Mention] = []
    for match in _TAIL.finditer(classes if following == len(words) else classes + "O"):
        sign = bool(match[2])
        if sign == denied or (denied and not set(match[3]) & {"Q", "L"}) or "O" in classes[: match.start()]:
            continue
        if following < len(words) and set(classes[match.end() :]) <= set("JQN"):
            continue  # "no effusion on the right; *on the left*, a small effusion": location of the next finding
        start, end = mention.end + match.start(4), mention.end + match.end(4)
        places = [hit for hit in hits if hit[0] in SIDED and start <= hit[2] and hit[3] <= end]
        if not any(hit[0] in ("side", "fused") for hit in places):
            continue
        mentions.append(_stand_in(mention.entity, start, end, sign, places))
    mentions += _exceptions(words, hits, mention, following, sided, lexicon)
    return mentions + _resolved_there(words, hits, mention, following, lexicon)


def _exceptions(words, hits, mention: Mention, following: int, sided: set[int], lexicon: Lexicon) -> list[Mention]:
    """Return a mention for "except for a trace on the right" after a denial, or for "but persists on the right"."""
    mentions = []
    for tag, _, start, end in (hit for hit in hits if hit[0] in ("exceptions", "persists")):
        if not mention.end <= start or end > following:
            continue
        if tag == "persists" and words[start - 1] not in _JOINTS:
            continue
        at = end
        while at < following and at not in sided and (words[at] in lexicon.quantities or words[at] in _LEADS):
            at += 1
        stop = at
        while stop < following and (stop in sided or words[stop] in ("of", "the", "lung")):
            stop += 1
        amount = tag == "exceptions" and at > end and not sided & {at}
        closed = stop == len(words) or words[stop] in _ENDS | {"amount", "amounts"}
        if stop > end and closed and (stop > at or amount) and not any(m.start == start for m in mentions):
            places = [hit for hit in hits if hit[0] in SIDED and at <= hit[2] and hit[3] <= stop]
            first, last = (at, stop) if stop > at else (end, at)
            mentions.append(_stand_in(mention.entity, first, last, False, places))
    return mentions[:1]


def _resolved_there(words, hits: list[Hit], mention: Mention, following: int, lexicon: Lexicon) -> list[Mention]:
    """Affirm ``mention`` and return a denied one for a second location ("RUL opacity, no longer seen in the left")."""
    for s, e in spans_of(hits, "deny_after"):
        is_joined = mention.end < s < following and words[s - 1] in (",", "but", "and")
        if not is_joined or words[s] in lexicon.stand_ins or _LEADS.isdisjoint(words[e : e + 1]):
            continue
        at = e + 1 + (words[e + 1 : e + 2] == ["the"])
        places = [hit for hit in hits if hit[0] in SIDED and hit[2] == at and hit[3] <= following]
        if places and any(hit[0] in SIDED and mention.start - 4 <= hit[2] < s for hit in hits):
            mention.denied = False
            return [_stand_in(mention.entity, at, places[0][3], True, places[:1])]
    return []


def _pronouns(
    words, hits: list[Hit], mentions: list[Mention], previous_entity, sided: set[int], lexicon: Lexicon
) -> list[Mention]:
    """Return mentions for pronouns and lone sides, as in "a small one on the left" or "the right has resolved"."""
    new_mentions = _bare(words, hits, mentions, previous_entity, sided, lexicon)
    for at, word in enumerate(words):
        kind = lexicon.stand_ins.get(word)
        elided = kind is None and at in sided and _elided(words, at, mentions, sided, lexicon)
        if kind is None and not elided:
            continue
        if kind == "rests" and {"remain", "remains", "persist", "persists"}.isdisjoint(words[at + 1 : at + 2]):
            continue
        entity = next((m.entity for m in reversed(mentions) if m.end <= at), previous_entity)
        if entity is None or entity.category not in ("lung", "pleura"):
            continue
        if kind == "ones" and not _is_one(words, at, sided, lexicon):
            continue
        if kind == "amounts" and any(hit[0] == "exceptions" and 0 <= at - hit[3] <= 2 for hit in hits):
            continue  # _exceptions handles "except for a trace on the right"
        if kind == "amounts" and not (entity.lesion == "effusion" and _is_amount(words, at, lexicon)):
            continue
        if elided and words[at - 2 : at - 1] == ["unlike"]:
            head = max((m.start for m in mentions if m.end <= at), default=0)
            if {"no", "without"} & set(words[max(0, head - 4) : head]):
                sides = [hit for hit in hits if hit[0] == "side" and hit[2] == at]
                new_mentions.append(_stand_in(entity, at, at + 1, False, sides))
            continue
        place_hits = [hit for hit in hits if kind == "none" and hit[0] in SIDED and hit[3] == at]
        if place_hits and not {*words[at + 1 : at + 2]} - _ENDS:
            new_mentions.append(_stand_in(entity, at, at + 1, True, place_hits))  # "L small, R none"
            continue
        if kind in ("none", "those") and not _leads_to_place(words, at, sided, kind == "none"):
            continue
        place_hits = [hit for hit in hits if elided and hit[0] == "side" and hit[2] == at]
        new_mentions.append(_stand_in(entity, at, at + 1, True if kind == "none" else None, place_hits or None))
    return new_mentions


def _bare(
    words, hits: list[Hit], mentions: list[Mention], previous_entity, sided: set[int], lexicon: Lexicon
) -> list[Mention]:
    """Return a mention for a sentence that consists of a size and a side ("No right effusion. *Small left*")."""
    indices = [i for i, word in enumerate(words) if word != "."]
    at = next((i for i in indices if i in sided), None)
    if mentions or at is None or previous_entity.category not in ("lung", "pleura"):
        return []
    sizes = {words[i] for i in indices} & lexicon.one_sizes
    if not sizes or any(i not in sided and words[i] not in lexicon.quantities for i in indices):
        return []
    return [_stand_in(previous_entity, at, at + 1, False, [hit for hit in hits if hit[0] in SIDED])]


def _is_amount(words: list[str], at: int, lexicon: Lexicon) -> bool:
    """Return whether the amount at token ``at`` ("a trace", "a small amount") means an effusion named earlier."""
    led = at > 0 and (words[at - 1] in lexicon.one_sizes or (words[at] == "trace" and words[at - 1] == "a"))
    following = words[at + 1 : at + 2]
    return led and (not following or following[0] in _LEADS | _ENDS | _HAS | _DOUBTS | {"persists"})


def _is_one(words: list[str], at: int, sided: set[int], lexicon: Lexicon) -> bool:
    last, following = words[at - 1 : at], words[at + 1 : at + 2]
    is_counted = words[at] == "another" or (last and (at - 1 in sided or last[0] in lexicon.quantities))
    if words[at - 2 : at - 1] == ["the"] and last and last[0].endswith(("er", "est")):
        return False  # "the larger one" is an effusion named earlier
    if words[at] != "another" and last and last[0] in lexicon.one_sizes and following and following[0] in _DOUBTS:
        return True
    if not is_counted or (following and following[0] in lexicon.one_not_before):
        return False
    return not following or following[0] in _LEADS | _ENDS | _HAS or at - 1 in sided or words[at] == "another"


def _leads_to_place(words: list[str], at: int, sided: set[int], bare: bool) -> bool:
    after = at + 1
    while bare and words[after : after + 1] and words[after] in _SEEN:
        after += 1
    led = words[after : after + 1] != [] and words[after] in _LEADS
    after += led
    after += words[after : after + 1] != [] and words[after] in ("the", "either")
    return (led or bare) and after in sided


def _elided(words, at: int, mentions: list[Mention], sided: set[int], lexicon: Lexicon) -> bool:
    """Return whether the side at token ``at`` stands for a finding ("left larger, but *the right* has resolved")."""
    lead = at - (words[at - 1 : at] == ["the"])
    if words[at] not in ("right", "left") or lead < 1:
        return False
    if words[lead - 1] == "unlike" and lead < at:
        return True
    if words[lead - 1] not in _JOINTS | {"while", "whereas"} or not any(m.end < at for m in mentions):
        return False
    following_words = [word for word in words[at + 1 : at + 5] if word != "."]
    first = next(iter(following_words), "")
    state = next((word for word in following_words if word not in _HAS), "")
    persists = first in ("persists", "remains", "persisted") or following_words in (["has", "not"], ["is", "not"])
    return persists or (first in _HAS and state in lexicon.elided_states)


def _stand_in(entity, start: int, end: int, denied: bool | None, places: list | None) -> Mention:
    return Mention(entity, start, end, (start, end), denied=denied, told=places, stand_in=True)
