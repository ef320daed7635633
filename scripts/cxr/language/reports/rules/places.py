"""Conversion of the location words of a sentence to locations.

A side or noun also applies to the other items of a list ("*right* upper and lower *lobe*").
"""

from dataclasses import dataclass

from cxr.language.reports.rules.lexicon import Lexicon

_LATERAL = "lateral view location"
_HEART = frozenset(("retrocardiac", "heart"))


@dataclass(frozen=True)
class Place:
    """A location in the text. ``sides`` is empty if the text states no side. ``level`` is the part of the lung, such as
    "base". ``category`` is set only for a location that is not part of a lung."""

    text: str
    sides: tuple[str, ...]
    level: str | None
    category: str | None = None


def are_aspects(gap: list[str], lexicon: Lexicon) -> bool:
    """Return whether the words between a side and its noun only specify a part ("right *anterior fifth* rib")."""
    return all(word in lexicon.within or word.isdigit() or word == "and" for word in gap)


def resolve_places(words: list[str], items: list[tuple[str, object, int, int]], lexicon: Lexicon) -> list[Place]:
    """Return the locations of a finding, in text order. ``items`` are its location phrases (:data:`mentions.Hit`)."""
    places: list[Place] = []
    sides: list[str] = []
    fresh = False
    # "The lateral view shows a left effusion": the view is a location only if there is no other.
    items = [item for item in items if " ".join(words[item[2] : item[3]]) not in lexicon.views] or items
    items = _turned(items, lexicon)
    for number, (tag, value, start, end) in enumerate(items):
        if tag == "side":
            new = ["right", "left"] if value == "both" else [value]
            if fresh and len(sides) == 2 and start - items[number - 1][3] > 2:
                # "Bilateral opacities, worst in the right apex": both lungs and the right apex.
                places.append(side_place(tuple(sides)))
                fresh = False
            sides = list(dict.fromkeys([*sides, *new])) if fresh else new
            fresh = True
            continue
        if tag == "place":
            if fresh and not are_aspects(words[items[number - 1][3] : start], lexicon):
                # "Left effusion along the chest wall": the side belongs to the effusion.
                places.append(side_place(tuple(sides)))
                fresh = False
            place_sides = tuple(sides) if fresh else ()
            fresh = False
            if len(place_sides) == 1 and value == _LATERAL and not _HEART.isdisjoint(words[start:end]):
                places.append(level_place(place_sides, "base", lexicon))  # behind the heart is the base of that side
                continue
            side = side_place(place_sides).text
            places.append(Place(" ".join([*filter(None, [side]), *words[start:end]]), place_sides, None, str(value)))
            continue
        level = value
        if tag == "half":
            nouns = (v[1] if t == "fused" else v for t, v, _, _ in items[number + 1 :] if t in ("level", "fused"))
            noun = next(nouns, None)
            level = half_level(str(value), noun, lexicon) if noun else None
            if level is None:
                continue
        elif tag == "fused":
            side, level = value
            if fresh and len(sides) == 2 and start - items[number - 1][3] > 2:
                places.append(side_place(tuple(sides)))
            sides = ["right", "left"] if side == "both" else [side]
        places.append(level_place(tuple(sides), str(level), lexicon))
        fresh = False
    if fresh:
        places = _trailing(places, tuple(sides), items, lexicon)
    places = list(dict.fromkeys(_of_one_lung(words, places, items, lexicon)))
    if any(place.level not in (None, "lung") or (place.level and place.sides) for place in places):
        # "Increased lung markings in the right base": "lung" is not a second location.
        places = [place for place in places if place.level != "lung" or place.sides]
    real = [place for place in places if place.category != _LATERAL]
    return [*real, *(place for place in places if is_on_other_side(place, real, lexicon))] if real else places


def is_on_other_side(place: Place, lung_places: list[Place], lexicon: Lexicon) -> bool:
    """Return whether ``place`` is a location of the lateral view on another side than all ``lung_places``. For example,
    "retrocardiac" (left) is on another side than "right base"."""
    if place.category != _LATERAL:
        return False
    blocks = lexicon.locations["blocks"].items()
    sides = {label.split()[0] for phrase, blocked_labels in blocks if phrase in place.text for label in blocked_labels}
    return bool(sides) and all(lung_place.sides and sides.isdisjoint(lung_place.sides) for lung_place in lung_places)


def _of_one_lung(words: list[str], places: list[Place], items, lexicon: Lexicon) -> list[Place]:
    """Apply the side of a lung to all its zones, as in "in the mid and lower zones *of the right lung*"."""
    if len(places) < 2 or places[-1].level not in ("lung", None) or not places[-1].sides or places[-1].category:
        return places
    start = next((s for tag, _, s, _ in reversed(items) if tag == "side"), 0)
    if "of" not in words[max(0, start - 2) : start] or any(p.sides or p.level in (None, "lung") for p in places[:-1]):
        return places
    return [level_place(places[-1].sides, str(place.level), lexicon) for place in places[:-1]]


def _turned(items: list, lexicon: Lexicon) -> list:
    """Reorder "mid right lung" to "right mid lung", and "mid and lower right lung" to "right mid and lower lung"."""
    turned: list = []
    for item in items:
        if item[:2] != ("level", "lung") or [i[0] for i in turned[-2:]] != ["half", "side"]:
            turned.append(item)
            continue
        side, levels = turned.pop(), []
        while turned and turned[-1][0] == "half":
            _, half, start, end = turned.pop()
            levels.insert(0, ("level", lexicon.locations["heads"]["lung"][half], start, end))
        turned += [side, *levels]
    return turned


def _trailing(places: list[Place], sides: tuple[str, ...], items, lexicon: Lexicon) -> list[Place]:
    """Apply sides that follow the level ("at the base on the left"), except for sides that already have a location."""
    if not places:
        return [side_place(sides)]
    if all(not place.sides for place in places):
        behind = [p.category == _LATERAL and not _HEART.isdisjoint(p.text.split()) for p in places]
        levels = ["base" if b and len(sides) == 1 else p.level for p, b in zip(places, behind, strict=True)]
        return [level_place(sides, level, lexicon) if level else p for p, level in zip(places, levels, strict=True)]
    known_sides = {side for place in places for side in place.sides}
    new_sides = tuple(side for side in sides if side not in known_sides)
    return [*places, Place(" and ".join(new_sides), new_sides, places[-1].level)] if new_sides else places


def level_place(sides: tuple[str, ...], level: str, lexicon: Lexicon) -> Place:
    only_side = lexicon.locations["levels"][level].get("side")
    sides = sides if only_side is None else (only_side,)
    return Place(f"{side_place(sides).text} {level}".strip(), sides, level)


def side_place(sides: tuple[str, ...]) -> Place:
    """Return the location of a text that names only one or both sides."""
    return Place("bilateral" if len(sides) == 2 else "".join(sides), sides, None)


def half_level(half: str, noun: str, lexicon: Lexicon) -> str | None:
    """Return the lung level that ``half`` means before a noun ("upper" in "upper and lower lobe"), or None. ``noun`` is
    the level of this noun, such as "lower lobe"."""
    return lexicon.locations["heads"]["lobe" if "lobe" in noun else "lung"].get(half)
