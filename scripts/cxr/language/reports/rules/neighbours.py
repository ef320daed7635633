"""Findings stated together: which ones share a place, and which place an adjacent finding takes over."""

from itertools import pairwise

from cxr.language.reports.rules import places
from cxr.language.reports.rules.lexicon import Lexicon
from cxr.language.reports.rules.mentions import Mention
from cxr.language.reports.rules.places import Place


def share_places(
    words: list[str], mentions: list[Mention], parts: list, adjectives: set[int], lexicon: Lexicon
) -> None:
    """ "Left effusion and atelectasis", "effusion and atelectasis at the left base": one place for both."""
    for first, second in pairwise(mentions):
        if first.entity is None or second.entity is None:
            continue
        if not _pulmonary(second) and not second.entity.predicted:
            continue
        if not _pulmonary(first) and first.entity.category != "diaphragm":
            continue
        gap = words[first.end : second.start]
        place_end = max(
            (p.end for p in parts if p.owner is first and first.end <= p.start < second.start), default=first.end
        )
        remaining_words = words[place_end : second.start]
        either = not lexicon.choices.isdisjoint(gap)
        bare = bool(gap) and len(gap) <= 3 and lexicon.shares.issuperset(gap)
        bare = bare or (either and len(gap) <= 4 and lexicon.before_place.isdisjoint(gap[1:]))
        is_adjacent = len(remaining_words) <= 5 and not lexicon.beside.isdisjoint(remaining_words)
        same = first.entity.explained and second.entity.name in lexicon.inherits
        apposed = same and len(remaining_words) <= 6 and lexicon.inherit_words.issuperset(remaining_words)
        while remaining_words[:1] and remaining_words[0] in (",", "now"):
            place_end, remaining_words = place_end + 1, remaining_words[1:]
        alone = remaining_words[:1] == ["with"] and all(i in adjectives for i in range(place_end + 1, second.start))
        joined = alone and second.entity.name in lexicon.local
        if first.places and not second.places and (bare or is_adjacent or apposed or joined):
            second.places = _adjacent_places(first, second, lexicon)
        elif first.places and second.places and (is_adjacent or remaining_words[:1] == ["with"]):
            second.places = _on_the_side_of(first.places, second.places, lexicon)
        elif (
            second.places
            and not first.places
            and (bare or is_adjacent or (apposed and words[second.end : second.end + 1] == [","]))
        ):
            first.places = _adjacent_places(second, first, lexicon)


def share_places_back(words: list[str], mentions: list[Mention], lexicon: Lexicon) -> None:
    """ "Atelectasis, aspiration or infection at the left base": the place at the end of a list is that of all."""
    for first, second in reversed(list(pairwise(mentions))):
        gap = words[first.end : second.start]
        listed = bool(gap) and len(gap) <= 2 and lexicon.shares.issuperset(gap)
        if not listed or first.places or None in (first.entity, second.entity):
            continue
        if second.places and _pulmonary(first) and _pulmonary(second):
            first.places = _adjacent_places(second, first, lexicon)


def _adjacent_places(placed_mention: Mention, finding: Mention, lexicon: Lexicon) -> list[Place]:
    """Return where a finding beside ``placed_mention`` lies: in its place, beside a diaphragm in the base above.

    Fluid lies in the pleural space of that side, in whichever lobe ``placed_mention`` is.
    """
    if placed_mention.entity.category == "diaphragm":
        return [places.level_place(place.sides, "base", lexicon) for place in placed_mention.places]
    sides = list(
        dict.fromkeys(place.sides for place in placed_mention.places if place.level is not None and place.sides)
    )
    if finding.entity.lesion == "effusion" and sides:
        return [places.side_place(place_sides) for place_sides in sides]
    return list(placed_mention.places)


def _on_the_side_of(side_places: list[Place], level_places: list[Place], lexicon: Lexicon) -> list[Place]:
    """ "Elevated right hemidiaphragm with adjacent basilar atelectasis": a level without a side takes the one told."""
    sides = {place.sides for place in side_places}
    if len(sides) != 1 or any(place.sides or place.level is None for place in level_places):
        return level_places
    return [places.level_place(next(iter(sides)), place.level, lexicon) for place in level_places]


def _pulmonary(mention: Mention) -> bool:
    return mention.entity.category in ("lung", "pleura")
