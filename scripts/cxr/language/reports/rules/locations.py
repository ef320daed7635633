"""Assignment of the location words in a sentence to its findings. Several findings may share a location."""

from dataclasses import dataclass
from itertools import pairwise

from cxr.language.reports.rules import places
from cxr.language.reports.rules.lexicon import Lexicon
from cxr.language.reports.rules.mentions import PLACED, Hit, Mention, tokens_of
from cxr.language.reports.rules.places import Place, are_aspects, resolve_places

_JOINTS = {"and", "or", ",", "/", "than", "versus", "vs", "&", "to", ">", "<"}
_MODIFIER_GAP = 6  # maximum number of tokens between a location and the finding after it
_PARTED = frozenset((";", "while", "whereas"))
_LATERAL = "lateral view location"


@dataclass
class _Part:
    items: list[tuple[str, object, int, int]]
    owner: Mention | None = None

    @property
    def start(self) -> int:
        return self.items[0][2]

    @property
    def end(self) -> int:
        return self.items[-1][3]


def attach_places(
    words: list[str], hits: list[Hit], mentions: list[Mention], clause_starts: set[int], lexicon: Lexicon
) -> None:
    """Set the locations (``places``) of each mention in a sentence."""
    parts = _parts(words, hits, mentions, lexicon)
    verbs = {s for tag, _, s, _ in hits if tag == "verb"}
    adjectives = {s for tag, _, s, _ in hits if tag == "affirming"}
    for part in reversed(parts):
        part.owner = _described(words, part, mentions, verbs, adjectives, lexicon)
    for number in range(len(parts) - 2, -1, -1):
        _share_forward(words, parts[number], parts[number + 1], mentions, adjectives, lexicon)
    for number, part in enumerate(parts):
        if part.owner is None:
            part.owner = _placed(words, part, parts[number - 1] if number else None, mentions, adjectives, lexicon)
        if part.owner is None:
            part.owner = _led(words, part, mentions, clause_starts, adjectives, lexicon)
    for mention in mentions:
        is_lesion = mention.entity is not None and mention.entity.lesion
        items = []
        for part in (part for part in parts if part.owner is mention):
            # "Opacity over the spine", "at T8": the lesion is in the lung in front of the spine.
            is_spine = part.start >= mention.start and any(item[1] == "thoracic spine" for item in part.items)
            items += [] if is_lesion and is_spine else part.items
        mention.places = resolve_places(words, items if mention.told is None else mention.told, lexicon)
    share_places(words, mentions, parts, adjectives, lexicon)
    share_places_back(words, mentions, lexicon)
    share_side(words, mentions)


def _parts(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> list[_Part]:
    """Return groups of adjacent location words, without words that are part of a finding's name. If phrases overlap,
    the longest is used."""
    taken = tokens_of(hits, "setting")
    # "left effusion and atelectasis, both unchanged": both findings, not both sides
    taken |= {i for i in range(len(words) - 1) if words[i] == "both" and words[i + 1] in lexicon.behind_both}
    for mention in mentions:
        is_composite = "composite" in mention.flags
        taken.update(range(*mention.scope) if is_composite else range(mention.start, mention.end))
        if mention.entity is not None and mention.entity.category == "heart":
            taken.update(range(mention.start, mention.end))
    items = []
    for tag, value, s, e in sorted((h for h in hits if h[0] in PLACED), key=lambda h: (h[2] - h[3], h[2], h[0])):
        if taken.isdisjoint(range(s, e)):
            taken.update(range(s, e))
            items.append((tag, value, s, e))
    items.sort(key=lambda item: item[2])
    parts: list[_Part] = []
    for item in items:
        if parts and _continues(words, parts[-1], item, lexicon):
            parts[-1].items.append(item)
        else:
            parts.append(_Part([item]))
    return [part for part in parts if not _portion(words, part, lexicon)]


def _portion(words: list[str], part: _Part, lexicon: Lexicon) -> bool:
    """Return whether a group of words only says which part of the next location is meant ("*basilar portion* of")."""
    after = words[part.end : part.end + 2]
    return len(after) == 2 and after[0] in lexicon.portions and after[1] == "of" and part.items[0][0] == "level"


def _continues(words: list[str], part: _Part, item, lexicon: Lexicon) -> bool:
    """Return whether a location word continues the group ``part``, directly or after words such as "anterior fifth"."""
    last, gap = part.items[-1][0], words[part.end : item[2]]
    if item[0] == "side":
        return not gap and last == "side"
    if not gap:
        return True
    if last != "side":
        return False
    if item[0] == "place" and len(gap) <= 5:
        return are_aspects(gap, lexicon)
    return len(gap) == 1 and gap[0] in lexicon.within


def _described(words, part: _Part, mentions, verbs: set[int], adjectives: set[int], lexicon: Lexicon) -> Mention | None:
    """Return the finding that follows or contains a location ("left basilar streaky opacity"), or None."""
    inside = next((m for m in mentions if m.start < part.end and part.start < m.end), None)
    if inside is not None:
        return inside
    following = next((m for m in mentions if m.start >= part.end), None)
    if following is None or following.start - part.end > _MODIFIER_GAP:
        return None
    gap = words[part.end : following.start]
    earlier = next((m for m in reversed(mentions) if m.end <= part.start), None)
    if earlier is not None and ("with" in gap or _led_by(words, part.start, earlier, lexicon)):
        return None
    barred = lexicon.gap_breaks | _JOINTS - {"to"}
    paired = _paired(words, part.end, following.start, adjectives)
    if verbs & set(range(part.end, following.start)):
        return None
    if any(word in barred for i, word in enumerate(gap, part.end) if i not in paired):
        return None
    return following


def _paired(words: list[str], start: int, end: int, adjectives: set[int]) -> set[int]:
    """Return the tokens "but" and "yet" between two adjectives of a finding ("improved *but* residual atelectasis")."""
    return {i for i in range(start, end) if words[i] in ("but", "yet") and {i - 1, i + 1} <= adjectives}


def _led_by(words, start: int, earlier: Mention, lexicon: Lexicon) -> bool:
    """Return whether a preposition attaches the location at ``start`` to the finding ``earlier`` before it."""
    token = start - 1
    while token >= earlier.end and words[token] in lexicon.inside - lexicon.place_led - {"and", "or", "/", ","}:
        token -= 1
    if token - 2 >= earlier.end and words[token - 1] == "the" and words[token - 2] in lexicon.place_led:
        token -= 2
    return (
        token >= earlier.end
        and words[token] in lexicon.place_led
        and lexicon.carried.issuperset(words[earlier.end : token])
        and earlier.entity is not None
    )


def _share_forward(words, part: _Part, following: _Part, mentions, adjectives: set[int], lexicon: Lexicon) -> None:
    """Assign the location ``part`` to the finding of the next one, as in "right upper and lower lobe opacities"."""
    if part.owner is not None or following.owner is None or following.owner.end <= part.end:
        return
    if not _joint(words, part.end, following.start, adjectives, lexicon) or words[part.start - 1] in ("than", ">"):
        return
    earlier = [m for m in mentions if m.end <= part.start]
    lead = _leading_word(words, part.start, earlier[-1].end, lexicon) if earlier else ","
    if lead in (",", "is", "are") or lead not in lexicon.before_place:
        part.owner = following.owner


def _joint(words, start: int, end: int, adjectives: set[int], lexicon: Lexicon) -> bool:
    """Return whether the words [start, end) between two locations only join the two, as "and the" does."""
    gap = range(start, end)
    joined = any(words[i] in _JOINTS for i in gap)
    return joined and len(gap) <= 6 and all(words[i] in lexicon.inside or i in adjectives for i in gap)


def _placed(words, part: _Part, before: _Part | None, mentions, adjectives, lexicon: Lexicon) -> Mention | None:
    """Return the finding before a location ("opacity in the left base and the right mid lung"), or None.
    ``before``: the previous location in the sentence."""
    earlier = [m for m in mentions if m.end <= part.start]
    if not earlier:
        return None
    finding = earlier[-1]
    if not _PARTED.isdisjoint(words[finding.end : part.start]) and any(m.start >= part.end for m in mentions):
        return None
    after = [word for word in words[part.end : part.end + 3] if word not in ("is", "are", "remains", "remain")]
    if not lexicon.healthy.isdisjoint(after[:1]) or not lexicon.without.isdisjoint(words[finding.end : part.start]):
        return None
    if before is not None and before.start >= finding.start and before.owner is finding:
        gap = words[before.end : part.start]
        if len(gap) <= 8 and all(w in lexicon.inside or before.end + i in adjectives for i, w in enumerate(gap)):
            return finding
    start = part.start
    while start - 1 in adjectives and start - 1 >= finding.end:
        start -= 1
    if _leading_word(words, start, finding.end, lexicon) in lexicon.before_place | {""}:
        return finding
    return None


def _leading_word(words, start: int, floor: int, lexicon: Lexicon) -> str:
    """Return the word that introduces the location at token ``start``, such as "in", or "" if there is none. Articles
    and fillers are skipped. Tokens before ``floor`` are not searched."""
    token = start - 1
    while token >= floor and words[token] in (lexicon.inside | {"a", "an"}) - lexicon.before_place - {"and", "or", "/"}:
        token -= 1
    if token - 2 >= floor and words[token] not in lexicon.before_place and words[token - 1] in ("the", "a", "an"):
        token -= 2
    if token > floor and words[token] == "to" and words[token - 1] in lexicon.causes:
        return "due to"
    return words[token] if token >= floor else ""


def _led(
    words, part: _Part, mentions, clause_starts: set[int], adjectives: set[int], lexicon: Lexicon
) -> Mention | None:
    """Return the finding after a location that opens a statement ("In the right lung, there is ..."), or None."""
    if any(item[0] == "place" and item[1] != _LATERAL for item in part.items):
        return None
    following = next((m for m in mentions if m.start >= part.end), None)
    earlier = max((m.end for m in mentions if m.end <= part.start and m.entity is not None), default=None)
    if following is None or (earlier is not None and _PARTED.isdisjoint(words[earlier : part.start])):
        return None
    opened = _leading_word(words, part.start, 0, lexicon) in ("in", "within", "at", "on", "involving", "along", "over")
    paired = _paired(words, part.end, following.start, adjectives)
    gap = [words[i] for i in range(part.end, following.start) if i not in paired]
    if lexicon.composite_breaks & set(gap) - {",", "with"} or len(gap) > 12:
        return None
    crossed = any(part.end <= token <= following.start for token in clause_starts)
    return following if opened or not crossed else None


def share_places(
    words: list[str], mentions: list[Mention], parts: list, adjectives: set[int], lexicon: Lexicon
) -> None:
    """Copy a location between adjacent findings, as in "left effusion and atelectasis". ``parts``: the groups of
    location words in the sentence, each with its finding. ``adjectives``: tokens of adjectives of findings."""
    for first, second in pairwise(mentions):
        if first.entity is None or second.entity is None:
            continue
        if not _pulmonary(second) and not second.entity.predicted:
            continue
        if not _pulmonary(first) and first.entity.category != "diaphragm":
            continue
        gap = words[first.end : second.start]
        place_ends = [p.end for p in parts if p.owner is first and first.end <= p.start < second.start]
        place_end = max(place_ends, default=first.end)
        remaining_words = words[place_end : second.start]
        either = not lexicon.choices.isdisjoint(gap)
        bare = bool(gap) and len(gap) <= 3 and lexicon.shares.issuperset(gap)
        bare = bare or (either and len(gap) <= 4 and lexicon.before_place.isdisjoint(gap[1:]))
        is_adjacent = len(remaining_words) <= 5 and not lexicon.beside.isdisjoint(remaining_words)
        same = first.entity.explained and second.entity.name in lexicon.inherits
        apposed = same and len(remaining_words) <= 6 and lexicon.inherit_words.issuperset(remaining_words)
        is_closed = apposed and words[second.end : second.end + 1] == [","]
        while remaining_words[:1] and remaining_words[0] in (",", "now"):
            place_end, remaining_words = place_end + 1, remaining_words[1:]
        alone = remaining_words[:1] == ["with"] and all(i in adjectives for i in range(place_end + 1, second.start))
        joined = alone and second.entity.name in lexicon.local
        if first.places and not second.places and (bare or is_adjacent or apposed or joined):
            second.places = _adjacent_places(first, second, lexicon)
        elif first.places and second.places and (is_adjacent or remaining_words[:1] == ["with"]):
            second.places = _on_the_side_of(first.places, second.places, lexicon)
        elif second.places and not first.places and (bare or is_adjacent or is_closed):
            first.places = _adjacent_places(second, first, lexicon)


def share_places_back(words: list[str], mentions: list[Mention], lexicon: Lexicon) -> None:
    """Apply the location at the end of a list to all its items ("atelectasis or infection at the left base")."""
    for first, second in reversed(list(pairwise(mentions))):
        gap = words[first.end : second.start]
        listed = bool(gap) and len(gap) <= 2 and lexicon.shares.issuperset(gap)
        if not listed or first.places or None in (first.entity, second.entity):
            continue
        if second.places and _pulmonary(first) and _pulmonary(second):
            first.places = _adjacent_places(second, first, lexicon)


def share_side(words: list[str], mentions: list[Mention]) -> None:
    """Assign to an effusion without a side the side of the other pleural findings, if they all have the same side. An
    example is "left pleural thickening, loculated effusion". A plural ("pleural effusions") gets no side, because it
    may mean both. The side of a lung finding does not apply to the pleura."""
    pleural = [mention for mention in mentions if mention.entity is not None and mention.entity.category == "pleura"]
    sides = {place.sides for mention in pleural for place in mention.places if place.sides}
    if len(sides) != 1:
        return
    for mention in pleural:
        is_several = any(word.endswith("s") for word in words[mention.start : mention.end])
        if mention.entity.lesion == "effusion" and not mention.places and not is_several:
            mention.places = [places.side_place(next(iter(sides)))]


def _adjacent_places(placed_mention: Mention, finding: Mention, lexicon: Lexicon) -> list[Place]:
    """Return the locations of ``finding``, which is next to ``placed_mention``. They are those of ``placed_mention``,
    except in two cases. A finding next to a diaphragm is at the lung base of the same side. An effusion gets only the
    side, whatever the lobe of ``placed_mention``."""
    if placed_mention.entity.category == "diaphragm":
        return [places.level_place(place.sides, "base", lexicon) for place in placed_mention.places]
    sides = dict.fromkeys(place.sides for place in placed_mention.places if place.level is not None and place.sides)
    if finding.entity.lesion == "effusion" and sides:
        return list(map(places.side_place, sides))
    return list(placed_mention.places)


def _on_the_side_of(side_places: list[Place], level_places: list[Place], lexicon: Lexicon) -> list[Place]:
    """Add the side to levels that lack one ("right effusion with basilar atelectasis": the right base)."""
    sides = {place.sides for place in side_places}
    if len(sides) != 1 or any(place.sides or place.level is None for place in level_places):
        return level_places
    return [places.level_place(next(iter(sides)), place.level, lexicon) for place in level_places]


def _pulmonary(mention: Mention) -> bool:
    return mention.entity.category in ("lung", "pleura")
