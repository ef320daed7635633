"""Reads a query's text and finds its regions in masks, by itself.

It shares no code with the grammar, the logic or the reader: own tokens, plain thresholds without margins, components
and hulls of scipy. From the project it takes the word lists of resources/medground/logic.yaml alone.
"""

import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import yaml
from scipy import ndimage
from scipy.spatial import ConvexHull, QhullError

WORDS = yaml.safe_load((Path(__file__).resolve().parents[2] / "resources/medground/logic.yaml").read_text())
SIZES = {"tiny": (0, 0.005), "small": (0.005, 0.03), "medium": (0.03, 0.15), "large": (0.15, 2)}
PLURALS = {"structures", "regions", "areas", "objects"}
SUPERLATIVE = {word: name for name, words in WORDS["ordinals"].items() for word in words}
RELATIVE = {
    "to the left of": "left", "left of": "left", "to the right of": "right", "right of": "right", "above": "above",
    "higher than": "above", "below": "below", "beneath": "below", "lower than": "below", "underneath": "below",
    "inside": "inside", "contained in": "inside", "nearest to": "near", "closest to": "near",
}  # fmt: skip


@dataclass
class Thing:
    """A region as the resolver sees it. ``pixels``: flat indices in the frame, or None."""

    label: str
    box: tuple
    area: float
    x: float
    y: float
    pixels: np.ndarray | None = None
    long: float = math.nan
    solid: float = math.nan
    contrast: float = math.nan
    texture: float = math.nan
    edge: bool = False


def things(planes: dict, labels: dict, extent, least: int, instances=None, grey=None) -> list[Thing]:
    """Find the regions of masks {label: bool (S, S)}; ``grey``: for looks, None without."""
    found = []
    for label in labels:
        mask = planes[label]
        numbers = ndimage.label(mask, np.ones((3, 3)))[0] if instances is None else np.where(mask, instances, 0)
        for number, cut in enumerate(ndimage.find_objects(numbers), 1):
            if cut is None:
                continue
            y, x = np.nonzero(numbers[cut] == number)
            if len(y) < least:
                continue
            y, x = y + cut[0].start, x + cut[1].start
            found.append(_thing(label, y, x, mask.shape[1]))
    left, top, right, bottom = extent
    for one in found:
        x1, y1, x2, y2 = one.box
        one.edge = x1 == left or y1 == top or x2 == right or y2 == bottom
    if grey is not None:
        _looks(found, planes, grey, extent)
    return found


def boxed(boxes: list, extent) -> list[Thing]:
    """Return the regions of a source that has boxes alone: (label, x1, y1, x2, y2)."""
    found = []
    for label, *sides in boxes:
        x1, y1, x2, y2 = (math.floor(side + 0.5) for side in sides)
        one = Thing(label, (x1, y1, x2, y2), (x2 - x1) * (y2 - y1), (x1 + x2) / 2, (y1 + y2) / 2)
        left, top, right, bottom = extent
        one.edge = x1 == left or y1 == top or x2 == right or y2 == bottom
        found.append(one)
    return found


def _thing(label, y, x, width) -> Thing:
    box = (int(x.min()), int(y.min()), int(x.max()) + 1, int(y.max()) + 1)
    one = Thing(label, box, len(y), x.mean() + 0.5, y.mean() + 0.5, y * width + x)
    spread = np.linalg.eigvalsh(np.cov(np.stack([x, y]).astype(float), bias=True) + np.eye(2) / 12)
    one.long = 1 - math.sqrt(spread[0] / spread[1])
    corners = np.concatenate([np.stack([x + a, y + b], 1) for a in (0, 1) for b in (0, 1)])
    try:
        one.solid = len(y) / ConvexHull(corners).volume
    except QhullError:
        one.solid = 1.0
    return one


def _looks(found, planes, grey, extent) -> None:
    taken = np.zeros(grey.shape, bool)
    for mask in planes.values():
        taken |= mask
    left, top, right, bottom = extent
    padding = np.ones(grey.shape, bool)
    padding[top:bottom, left:right] = False
    flat = grey.ravel().astype(float)
    for one in found:
        reach = int(math.sqrt(one.area)) + 6
        x1, y1, x2, y2 = one.box
        cut = np.s_[max(0, y1 - reach) : y2 + reach, max(0, x1 - reach) : x2 + reach]
        mine = np.zeros(grey.shape, bool)
        mine.ravel()[one.pixels] = True
        far = ndimage.distance_transform_edt(~mine[cut])
        free = ~(taken | padding)[cut]
        order = np.sort(far[free])
        if len(order) < one.area // 2 or not len(order):
            continue
        ring = grey[cut][free & (far <= order[min(one.area, len(order)) - 1])].astype(float)
        inside = flat[one.pixels]
        spread = math.sqrt((inside.var() + ring.var()) / 2)
        if spread > 0:
            one.contrast = (inside.mean() - ring.mean()) / spread
        if ring.std() > 0:
            one.texture = inside.std() / ring.std()


@dataclass
class World:
    """All that a text is read against. names: {word: (labels, whether plural)}; zones: {name: bool (S, S)} or {}."""

    things: list
    names: dict
    side: int
    extent: tuple
    mirrored: bool
    zones: dict


def names_of(classes: dict) -> dict:
    """Return {word: (labels, plural)} of a source's classes, {label: {one, many, parents}}."""
    found: dict = {}
    for label, told in classes.items():
        one = told.get("one") or label
        many = told.get("many") or one + "s"
        for word, plural in ((one, False), (many, True)):
            found.setdefault(word, (set(), plural))[0].add(label)
        for parent, parents in (told.get("parents") or {}).items():
            found.setdefault(parent, (set(), False))[0].add(label)
            found.setdefault(parents, (set(), True))[0].add(label)
    return found


@cache
def _phrase(words: str) -> re.Pattern:
    return re.compile(rf"(?<![\w-]){re.escape(words)}(?![\w-])")


def _take(text: str, words) -> tuple[str | None, str]:
    """Return the longest of some words that stands in a text, and the text without it."""
    for word in sorted(words, key=len, reverse=True):
        if _phrase(word).search(text):
            return word, _phrase(word).sub(" ", text, count=1)
    return None, text


def resolve(text: str, world: World) -> set[int]:
    """Return the numbers of the regions that a text means."""
    text = re.sub(r"\s+", " ", re.sub(r"[?.:,]", " ", text.lower()))
    chosen = list(range(len(world.things)))
    related, text = _relation(text, world)
    if related:
        chosen = [one for one in chosen if related(one)]
    text, chosen, order = _described(text, chosen, world)
    if order:
        return {order(chosen)} if chosen else set()
    if related and getattr(related, "nearest", None) is not None and chosen:
        return {min(chosen, key=related.nearest)}
    return set(chosen)


def _relation(text: str, world: World):
    """Return a test of "above the …", and the text without it. What it refers to ends with its noun."""
    found = None
    for words, name in sorted(RELATIVE.items(), key=lambda item: -len(item[0])):
        match = _phrase(f"{words} the").search(text)
        if match and (found is None or match.start() < found[0].start()):
            found = match, name
    if not found:
        return None, text
    match, name = found
    rest = text[match.end() :]
    noun = None
    for word in world.names:
        hit = _phrase(word).search(rest)
        if hit and (noun is None or (hit.start(), -hit.end()) < (noun.start(), -noun.end())):
            noun = hit
    if noun is None:
        return None, text
    inner, after = rest[: noun.end()], rest[noun.end() :]
    after = re.sub(r"^ on the image", " ", after)
    _, found, order = _described(inner, list(range(len(world.things))), world)
    if not found:
        return (lambda one: False), text[: match.start()] + after
    it = order(found) if order else found[0]
    return _test(name, it, world), text[: match.start()] + after


def _test(name: str, it: int, world: World):
    other = world.things[it]

    def inside(one):
        mine = world.things[one]
        if one == it or mine.pixels is None:
            return False
        return np.isin(mine.pixels, other.pixels).mean() >= 0.4

    def near(one):
        return one != it

    tests = {
        "left": lambda one: world.things[one].x < other.x, "right": lambda one: world.things[one].x > other.x,
        "above": lambda one: world.things[one].y < other.y, "below": lambda one: world.things[one].y > other.y,
        "inside": inside, "near": near,
    }  # fmt: skip
    if name == "near":
        near.nearest = lambda one: math.dist((world.things[one].x, world.things[one].y), (other.x, other.y))
    return tests[name]


def _described(text: str, chosen: list, world: World):
    """Return the rest of a text, the regions that fit it, and how it orders them (None if it does not)."""
    at = world.things.__getitem__
    left, top, right, bottom = world.extent
    width, height = right - left, bottom - top
    for pattern, test in _zones(world):
        if re.search(pattern, text):
            text = re.sub(pattern, " ", text)
            chosen = [one for one in chosen if test(at(one))]
    nth = re.search(r"\b(second|third)\b(.*?) from the (left|right|top|bottom)", text)
    order = None
    if nth:
        place, key = ("second", "third").index(nth[1]) + 1, nth[3]
        by = {"left": lambda o: o.x, "right": lambda o: -o.x, "top": lambda o: o.y, "bottom": lambda o: -o.y}[key]
        text = text.replace(nth[0], nth[2])
        order = lambda held: sorted(held, key=lambda one: by(at(one)))[min(place, len(held) - 1)]  # noqa: E731
    word, text = _take(text, SUPERLATIVE)
    if word:
        by = {
            "largest": lambda o: -o.area, "smallest": lambda o: o.area, "leftmost": lambda o: o.x,
            "rightmost": lambda o: -o.x, "topmost": lambda o: o.y, "lowest": lambda o: -o.y,
        }[SUPERLATIVE[word]]  # fmt: skip
        order = lambda held: min(held, key=lambda one: by(at(one)))  # noqa: E731
    noun, text = _take(text, world.names)
    if noun:
        chosen = [one for one in chosen if at(one).label in world.names[noun][0]]
    # "relatively small" holds "small": the wordings of two words come first
    for atom in sorted(WORDS["words"], key=lambda atom: atom not in ("size:larger", "size:smaller", "size:tiny")):
        word, text = _take(text, WORDS["words"][atom])
        if word:
            chosen = [one for one in chosen if _is(atom, at(one), world, width * height)]
    for words, test in (
        (r"\b(upper|top)\b", lambda o: o.y < top + height / 2),
        (r"\b(lower|bottom)\b", lambda o: o.y >= top + height / 2),
        (r"\bleft\b", lambda o: o.x < left + width / 2),
        (r"\bright\b", lambda o: o.x >= left + width / 2),
        (r"\b(centre|central)\b",
         lambda o: abs((o.x - left) / width - 0.5) < 1 / 6 and abs((o.y - top) / height - 0.5) < 1 / 6),
        (r"\b(edge|border)\b", lambda o: o.edge),
    ):  # fmt: skip
        if re.search(words, text):
            chosen = [one for one in chosen if test(at(one))]
    return text, chosen, order


def _zones(world: World):
    left, _, right, _ = world.extent
    middle = (left + right) / 2
    for name, mask in world.zones.items():
        side, level = name.split(" ")[0], name.split(" ")[1]
        told = rf"{side} lung base|base of the {side} lung" if "base" in name else None
        told = told or rf"{side} {level} lung zone|{level} zone of the {side} lung"
        yield told, lambda o, mask=mask: mask.ravel()[o.pixels].mean() >= 0.4
    for side in ("left", "right"):
        image_left = (side == "right") == world.mirrored
        yield (
            rf"patient's {side}( side)?|{side} hemithorax",
            lambda o, image_left=image_left: (o.x < middle) == image_left,
        )


def _is(atom: str, one: Thing, world: World, area: float) -> bool:
    family, _, value = atom.partition(":")
    if value in SIZES:
        low, high = SIZES[value]
        return low <= one.area / area < high
    if family == "size":
        same = sorted(other.area for other in world.things if other.label == one.label)
        low, high = (np.quantile(same, share) for share in (1 / 3, 2 / 3))
        return one.area >= high if value == "larger" else one.area < low
    if family == "shape":
        return {
            "round": one.long < 0.25, "oval": 0.25 <= one.long < 0.5 and one.solid >= 0.9,
            "elongated": one.long >= 0.5, "irregular": one.solid < 0.8,
        }[value]  # fmt: skip
    return {
        "bright": one.contrast >= 0.55, "dark": one.contrast <= -0.55,
        "even": one.texture < 1, "rough": one.texture >= 1,
    }[value]  # fmt: skip
