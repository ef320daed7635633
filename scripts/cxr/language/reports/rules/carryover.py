"""Transfer of locations from one statement to a later one, as in "RUL opacity. Pneumonia is possible."."""

from itertools import pairwise

from cxr.language.reports.rules import inference
from cxr.language.reports.rules.lexicon import Lexicon
from cxr.language.reports.rules.mentions import SIDED, Hit, Mention, spans_of
from cxr.language.reports.rules.places import Place, level_place, resolve_places

_PULMONARY = ("lung", "pleura")
_OVERLAID = frozenset(
    ("superimposed", "underlying", "concurrent", "coexisting", "coexistent", "concomitant", "additional")
)
_NEAR = 8  # maximum number of tokens between a finding and "in this region"


def carry_places(
    words: list[str],
    hits: list[Hit],
    mentions: list[Mention],
    last: list[Mention],
    places_by_finding: dict,
    lexicon: Lexicon,
):
    """Assign earlier locations to a sentence's findings without one, and return the sentence's affirmed findings.

    ``last`` has the affirmed findings of the previous sentence. ``places_by_finding``, which is updated, is {name of a
    finding: its last locations in the text}. Its key None has the last locations of any finding.
    """
    _headed(words, hits, mentions, lexicon)
    _in_this_region(words, hits, mentions, places_by_finding)
    affirmed = [m for m in mentions if m.entity is not None and not {"negation", "elsewhere"} & m.flags]
    if last and affirmed and inference.refers_back(words, lexicon):
        for mention in affirmed:
            if not mention.places and mention.entity.category in _PULMONARY:
                mention.places = list(last[-1].places)
    elif last and affirmed and _is_beside_previous(words, affirmed[0], last[-1], lexicon):
        affirmed[0].places = list(last[-1].places)
        for first, second in pairwise(affirmed):
            if second.places or not lexicon.shares.issuperset(words[first.end : second.start]):
                break
            second.places = list(first.places)
    for number, mention in enumerate(affirmed):
        if not mention.places and not lexicon.pointers.isdisjoint(words[max(0, mention.start - 2) : mention.start]):
            mention.places = list(places_by_finding.get(mention.entity.name, ()))
        _inherit(words, mention, affirmed[:number], last, lexicon)
        _on_its_level(mention, affirmed[:number], lexicon)
        if mention.places:
            places_by_finding[mention.entity.name] = mention.places
    for mention in mentions:
        if mention.places and mention.entity is not None and mention.entity.category in _PULMONARY:
            places_by_finding[None] = mention.places
    return [m for m in affirmed if not m.consumed]


def place_after(words: list[str], hits: list[Hit], last: list[Mention], lexicon: Lexicon) -> None:
    """Add a location to the last finding of the previous sentence, ``last`` ("An opacity. It is in the base.")."""
    places = [hit for hit in hits if hit[0] in SIDED]
    if last and not last[-1].places and places and words[0] in ("it", "this", "these", "they"):
        last[-1].places = resolve_places(words, places, lexicon)


def _is_beside_previous(words: list[str], mention: Mention, previous_mention: Mention, lexicon: Lexicon) -> bool:
    """Return whether a finding without a location is next to the previous finding ("Adjacent atelectasis.")."""
    pulmonary = all(m.entity.category in _PULMONARY for m in (mention, previous_mention))
    near = words[max(0, mention.start - 3) : mention.start]
    return pulmonary and not mention.places and not lexicon.beside.isdisjoint(near)


def _headed(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> None:
    """Apply a side before a colon to the whole sentence, as in "Right lung: basal consolidation"."""
    colon = next((i for i, word in enumerate(words[:4]) if word in (":", "-")), None)
    if not colon or any(m.start < colon for m in mentions):
        return
    sides = [value for tag, value, s, e in hits if tag == "side" and e <= colon and value in ("right", "left")]
    if len(sides) != 1:
        return
    for mention in mentions:
        if mention.entity is None or mention.entity.category not in _PULMONARY:
            continue
        if not mention.places:
            place_hits = [hit for hit in hits if hit[0] in SIDED and hit[3] <= colon]
            mention.places = resolve_places(words, place_hits, lexicon)
        elif all(not place.sides and place.level and place.category is None for place in mention.places):
            mention.places = [level_place((sides[0],), str(place.level), lexicon) for place in mention.places]


def _in_this_region(words: list[str], hits: list[Hit], mentions: list[Mention], places_by_finding: dict) -> None:
    """Give a finding such as "residual opacity in this region" the location that was named most recently before it."""
    findings = [m for m in mentions if m.entity is not None]
    for start, _ in spans_of(hits, "here"):
        mention = next(iter([m for m in findings if m.end <= start][-1:] or findings), None)
        if mention is not None and not mention.places and places_by_finding.get(None) and start - mention.end <= _NEAR:
            mention.places = list(places_by_finding[None])


def _inherit(words: list[str], mention: Mention, earlier: list[Mention], last: list[Mention], lexicon: Lexicon) -> None:
    """Assign a location of ``earlier`` findings, else of ``last``, to a disease ("LLL opacity, possible pneumonia")."""
    doubtful = mention.hedge != "definite" and mention.entity.name in lexicon.possible_diseases
    if mention.places or mention.consumed or not doubtful:
        return
    overlaid = not _OVERLAID.isdisjoint(words[max(0, mention.start - 3) : mention.start])
    bearers = [m for m in earlier if _bears(m, mention) and (m.entity.explained or m.entity.name in lexicon.bearers)]
    if not earlier:
        bearers = [m for m in last if _bears(m, mention) and (m.entity.explained or overlaid)]
    if bearers:
        mention.places = list(bearers[-1].places)


def _bears(mention: Mention, disease: Mention) -> bool:
    apart = mention.entity.name != disease.entity.name and mention.entity.category == "lung"
    return apart and bool(mention.places) and not mention.consumed


def _on_its_level(mention: Mention, earlier: list[Mention], lexicon: Lexicon) -> None:
    """Complete a side with the lung level of an earlier finding. In "bibasilar opacities: atelectasis on the right",
    the atelectasis is at the right base."""
    bearer = next((m for m in reversed(earlier) if m.entity.explained and m.places), None)
    bare = mention.places and all(p.sides and p.level is None and p.category is None for p in mention.places)
    if bearer is None or not bare or mention.entity.name not in lexicon.possible_diseases:
        return
    side_levels = [
        (side, place.level) for place in bearer.places for side in place.sides if place.level not in (None, "lung")
    ]
    places: list[Place] = []
    for place in mention.places:
        levels = [(side, level) for side, level in side_levels if side in place.sides]
        places += [level_place((side,), str(level), lexicon) for side, level in levels] or [place]
    mention.places = places
