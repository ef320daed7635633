"""Places: which words of a sentence name one, to which finding each belongs, and what sides and levels it means."""

from dataclasses import dataclass
from itertools import pairwise

from ils.reports.rules.lexicon import Lexicon
from ils.reports.rules.mentions import Hit, Mention

_TAGS = ("side", "level", "fused", "half", "place")
_JOINTS = {"and", "or", ",", "/", "than", "versus", "vs", "&", "to"}
_MODIFIER_GAP = 6
_LATERAL = "lateral view location"


@dataclass(frozen=True)
class Place:
    """A place as the text means it: ``sides`` (empty: not told), a ``level`` of the lung or another ``category``."""

    text: str
    sides: tuple[str, ...]
    level: str | None
    category: str | None = None


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


def attach(
    words: list[str], hits: list[Hit], mentions: list[Mention], clause_starts: set[int], lexicon: Lexicon
) -> None:
    """Give every mention of one sentence its places."""
    parts = _parts(words, hits, mentions, lexicon)
    verbs = {s for tag, _, s, _ in hits if tag == "verb"}
    adjectives = {s for tag, _, s, _ in hits if tag == "affirming"}
    for part in reversed(parts):
        part.owner = _described(words, part, mentions, verbs, lexicon)
    for number in range(len(parts) - 2, -1, -1):
        _share_forward(words, parts[number], parts[number + 1], mentions, adjectives, lexicon)
    for number, part in enumerate(parts):
        if part.owner is None:
            part.owner = _placed(words, part, parts[number - 1] if number else None, mentions, adjectives, lexicon)
        if part.owner is None:
            part.owner = _led(words, part, mentions, clause_starts, lexicon)
    for mention in mentions:
        own = [part.items for part in parts if part.owner is mention]
        if mention.entity is not None and mention.entity.lesion:
            # "Opacity over the spine", "at T8": the spine is but what the lung lies in front of.
            own = [part for part in own if part[0][2] < mention.start or all(i[1] != "thoracic spine" for i in part)]
        mention.places = resolve(words, [item for part in own for item in part], lexicon)
    _share_between(words, mentions, parts, adjectives, lexicon)


def _parts(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> list[_Part]:
    """Return runs of place words with nothing between, the longest wording first, outside the findings' own words."""
    blocked = {i for m in mentions if m.entity is None or "composite" not in m.flags for i in range(m.start, m.end)}
    blocked |= {i for m in mentions if "composite" in m.flags for i in range(*m.scope)}
    hearts = [m for m in mentions if m.entity is not None and m.entity.category == "heart"]
    blocked |= {i for m in hearts for i in range(m.start, m.end)}
    items = []
    taken: set[int] = set(blocked)
    for tag, value, s, e in sorted((h for h in hits if h[0] in _TAGS), key=lambda h: (h[2] - h[3], h[2], h[0])):
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
    """Tell whether the words only say which part of the next place is meant ("basilar portion of the ...")."""
    after = words[part.end : part.end + 2]
    return len(after) == 2 and after[0] in lexicon.portions and after[1] == "of" and part.items[0][0] == "level"


def _continues(words: list[str], part: _Part, item, lexicon: Lexicon) -> bool:
    """Tell whether a place word goes on with the part before it: at once, or past "lateral" or "anterior fifth"."""
    last, gap = part.items[-1][0], words[part.end : item[2]]
    if item[0] == "side":
        return not gap and last == "side"
    if not gap:
        return True
    if last != "side":
        return False
    if item[0] == "place" and len(gap) <= 5:
        return _aspects(gap, lexicon)
    return len(gap) == 1 and gap[0] in lexicon.within


def _aspects(gap: list[str], lexicon: Lexicon) -> bool:
    """Tell whether the words between a side and its noun only say which part ("right *anterior fifth* rib")."""
    return all(word in lexicon.within or word.isdigit() or word == "and" for word in gap)


def _described(words, part: _Part, mentions, verbs: set[int], lexicon: Lexicon) -> Mention | None:
    """The finding that the place describes from the left ("left basilar streaky opacity"), or that it stands in."""
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
    if any(word in barred for word in gap) or verbs & set(range(part.end, following.start)):
        return None
    return following


def _led_by(words, start: int, earlier: Mention, lexicon: Lexicon) -> bool:
    """Tell whether a preposition right after the earlier finding leads to the place."""
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
    """ "Right upper and lower lobe opacities": the first place goes with the second."""
    if part.owner is not None or following.owner is None or following.owner.end <= part.end:
        return
    if not _joint(words, part.end, following.start, adjectives, lexicon):
        return
    earlier = [m for m in mentions if m.end <= part.start]
    if earlier and _leading_word(words, part.start, earlier[-1].end, lexicon) in lexicon.before_place - {
        ",",
        "is",
        "are",
    }:
        return
    part.owner = following.owner


def _joint(words, start: int, end: int, adjectives: set[int], lexicon: Lexicon) -> bool:
    """Tell whether the words between two places only join them."""
    gap = range(start, end)
    joined = any(words[i] in _JOINTS for i in gap)
    return joined and len(gap) <= 6 and all(words[i] in lexicon.inside or i in adjectives for i in gap)


def _placed(words, part: _Part, before: _Part | None, mentions, adjectives, lexicon: Lexicon) -> Mention | None:
    """The finding that stands before the place ("opacity in the left base and the right mid lung")."""
    earlier = [m for m in mentions if m.end <= part.start]
    if not earlier:
        return None
    finding = earlier[-1]
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
    """Return the word that leads to a place, articles and aspects skipped."""
    token = start - 1
    while token >= floor and words[token] in lexicon.inside - lexicon.before_place - {"and", "or", "/"}:
        token -= 1
    if token - 2 >= floor and words[token] not in lexicon.before_place and words[token - 1] in ("the", "a", "an"):
        token -= 2
    if token > floor and words[token] == "to" and words[token - 1] in lexicon.causes:
        return "due to"
    return words[token] if token >= floor else ""


def _led(words, part: _Part, mentions, clause_starts: set[int], lexicon: Lexicon) -> Mention | None:
    """The finding after a place that opens the statement ("In the right upper lobe, there is ...")."""
    if any(item[0] == "place" and item[1] != _LATERAL for item in part.items):
        return None
    following = next((m for m in mentions if m.start >= part.end), None)
    if following is None or any(m.end <= part.start and m.entity is not None for m in mentions):
        return None
    opened = _leading_word(words, part.start, 0, lexicon) in ("in", "within", "at", "on", "involving", "along", "over")
    gap = words[part.end : following.start]
    if lexicon.breaks & set(gap) - {",", "with"} or len(gap) > 12:
        return None
    crossed = any(part.end <= token <= following.start for token in clause_starts)
    return following if opened or not crossed else None


def _share_between(words, mentions: list[Mention], parts: list[_Part], adjectives: set[int], lexicon: Lexicon) -> None:
    """ "Left effusion and atelectasis", "effusion and atelectasis at the left base": one place for both."""
    for first, second in pairwise(mentions):
        if first.entity is None or second.entity is None or not _pulmonary(second):
            continue
        if not _pulmonary(first) and first.entity.category != "diaphragm":
            continue
        gap = words[first.end : second.start]
        told = max(
            (p.end for p in parts if p.owner is first and first.end <= p.start < second.start), default=first.end
        )
        rest = words[told : second.start]
        either = not lexicon.choices.isdisjoint(gap)
        bare = bool(gap) and len(gap) <= 3 and lexicon.shares.issuperset(gap)
        bare = bare or (either and len(gap) <= 4 and lexicon.before_place.isdisjoint(gap[1:]))
        beside = len(rest) <= 5 and not lexicon.beside.isdisjoint(rest)
        same = first.entity.explained and second.entity.name in lexicon.inherits
        apposed = same and len(rest) <= 6 and lexicon.inherit_words.issuperset(rest)
        alone = rest[:1] == ["with"] and all(i in adjectives for i in range(told + 1, second.start))
        joined = alone and second.entity.name in lexicon.local
        if first.places and not second.places and (bare or beside or apposed or joined):
            second.places = _beside(first, lexicon)
        elif first.places and second.places and (beside or rest[:1] == ["with"]):
            second.places = _on_the_side_of(first.places, second.places, lexicon)
        elif second.places and not first.places and (bare or beside):
            first.places = list(second.places)


def _beside(told: Mention, lexicon: Lexicon) -> list[Place]:
    """Return where a finding beside another lies: in its place, beside a diaphragm in the base above."""
    if told.entity.category != "diaphragm":
        return list(told.places)
    return [_place(place.sides, "base", lexicon) for place in told.places]


def _on_the_side_of(told: list[Place], places: list[Place], lexicon: Lexicon) -> list[Place]:
    """ "Elevated right hemidiaphragm with adjacent basilar atelectasis": a level without a side takes the one told."""
    sides = {place.sides for place in told}
    if len(sides) != 1 or any(place.sides or place.level is None for place in places):
        return places
    return [_place(*sides, place.level, lexicon) for place in places]


def _pulmonary(mention: Mention) -> bool:
    return mention.entity.category in ("lung", "pleura")


def resolve(words: list[str], items: list[tuple[str, object, int, int]], lexicon: Lexicon) -> list[Place]:
    """Turn place words in their order into places: sides and nouns are shared along a list."""
    places: list[Place] = []
    sides: list[str] = []
    fresh = False
    # "The lateral view shows a left effusion": the view is a place only where no other is told.
    items = [item for item in items if " ".join(words[item[2] : item[3]]) not in lexicon.views] or items
    items = _turned(items, lexicon)
    for number, (tag, value, start, end) in enumerate(items):
        if tag == "side":
            new = ["right", "left"] if value == "both" else [value]
            if fresh and len(sides) == 2 and start - items[number - 1][3] > 2:
                # "Bilateral opacities, worst in the right apex": both lungs, and the apex.
                places.append(Place("bilateral", tuple(sides), None))
                fresh = False
            sides = list(dict.fromkeys([*sides, *new])) if fresh else new
            fresh = True
            continue
        if tag == "place":
            if fresh and not _aspects(words[items[number - 1][3] : start], lexicon):
                # "Left effusion along the chest wall": the side is the effusion's.
                places.append(Place("bilateral" if len(sides) == 2 else sides[0], tuple(sides), None))
                fresh = False
            told = tuple(sides) if fresh else ()
            text = " ".join(["bilateral"] * (len(told) == 2) or [*told]) + " " + " ".join(words[start:end])
            places.append(Place(text.strip(), told, None, str(value)))
            fresh = False
            continue
        level = value
        if tag == "half":
            level = _level_of_half(str(value), items[number + 1 :], lexicon)
            if level is None:
                continue
        elif tag == "fused":
            side, level = value
            sides = ["right", "left"] if side == "both" else [side]
        places.append(_place(tuple(sides), str(level), lexicon))
        fresh = False
    if fresh:
        places = _trailing(places, tuple(sides), items, lexicon)
    places = list(dict.fromkeys(places))
    if any(place.level not in (None, "lung") for place in places):
        # "Increased lung markings in the right base": the noun's own word names no second place.
        places = [place for place in places if place.level != "lung" or place.sides]
    real = [place for place in places if place.category != _LATERAL]
    return [*real, *(place for place in places if beyond(place, real, lexicon))] if real else places


def beyond(place: Place, others: list[Place], lexicon: Lexicon) -> bool:
    """Tell whether a place of the lateral view lies on no side of the others: retrocardiac beside the right base."""
    if place.category != _LATERAL:
        return False
    blocks = lexicon.locations["blocks"].items()
    sides = {label.split()[0] for phrase, found in blocks if phrase in place.text for label in found}
    return bool(sides) and all(other.sides and sides.isdisjoint(other.sides) for other in others)


def _turned(items: list, lexicon: Lexicon) -> list:
    """Read "mid right lung" as "right mid lung"."""
    turned: list = []
    for item in items:
        before = turned[-2:]
        if item[:2] == ("level", "lung") and [i[0] for i in before] == ["half", "side"]:
            level = lexicon.locations["heads"]["lung"][before[0][1]]
            turned[-2:] = [before[1], ("level", level, before[0][2], item[3])]
        else:
            turned.append(item)
    return turned


def _trailing(places: list[Place], sides: tuple[str, ...], items, lexicon: Lexicon) -> list[Place]:
    """Use sides told after the level ("at the base on the left"); "right greater than left" after both adds nothing."""
    if not places:
        return [Place(" and ".join(sides) if len(sides) < 2 else "bilateral", sides, None)]
    if all(not place.sides for place in places):
        return [_place(sides, place.level, lexicon) if place.level else place for place in places]
    told = {side for place in places for side in place.sides}
    rest = tuple(side for side in sides if side not in told)
    return [*places, Place(" and ".join(rest), rest, places[-1].level)] if rest else places


def _place(sides: tuple[str, ...], level: str, lexicon: Lexicon) -> Place:
    only = lexicon.locations["levels"][level].get("side")
    if only is not None:
        sides = (only,)
    side = "bilateral" if len(sides) == 2 else "".join(sides)
    return Place(f"{side} {level}".strip(), sides, level)


def _level_of_half(half: str, following: list, lexicon: Lexicon) -> str | None:
    """Return the level of "upper" in "upper and lower lobe" from the noun that comes later, None without one."""
    for tag, value, _, _ in following:
        if tag in ("level", "fused"):
            level = value[1] if tag == "fused" else value
            noun = "lobe" if "lobe" in level else "lung"
            return lexicon.locations["heads"][noun].get(half)
    return None
