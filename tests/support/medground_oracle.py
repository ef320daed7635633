"""Section 5 in plain Python, written from the specification: no array, no code of the project."""

import itertools
import math


def value(atom, one, scene, n):
    """Return "Y", "N" or "U" of an atom for a region; ``scene``: dict of lists; ``n``: the numbers, a dict."""
    family, _, word = atom.partition(":")
    if family == "class":
        return "Y" if word in scene["words"][scene["label"][one]] else "N"
    if family == "size":
        return _size(word, one, scene, n)
    if family == "shape":
        return _shape(word, one, scene, n)
    if family == "position":
        return _position(word, one, scene, n)
    if family == "side":
        if scene["radiological"] is None:
            return "U"
        image = {"left": "right", "right": "left"}[word] if scene["radiological"] else word
        return _position(image, one, scene, n)
    if family == "zone":
        share = scene["zones"][one][word]
        return "Y" if share >= n["zone_yes"] else "N" if share < n["zone_no"] else "U"
    if family == "appearance":
        return _appearance(word, one, scene, n)
    raise AssertionError(atom)


def _between(x, low, high, low_margin, high_margin):
    if x is None or math.isnan(x):
        return "U"
    if (low is None or x >= low + low_margin) and (high is None or x < high - high_margin):
        return "Y"
    if (low is not None and x < low - low_margin) or (high is not None and x >= high + high_margin):
        return "N"
    return "U"


def _both(a, b):
    return "N" if "N" in (a, b) else "U" if "U" in (a, b) else "Y"


def _quantile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def _size(word, one, scene, n):
    margin = n["size_margin"]
    if word in ("larger", "smaller"):
        same = [a for a, c in zip(scene["area"], scene["label"], strict=True) if c == scene["label"][one]]
        if len(same) < n["relative_from"]:
            return "U"
        if word == "larger":
            edge = _quantile(same, 2 / 3)
            return _between(scene["area"][one], edge, None, edge * margin, 0)
        edge = _quantile(same, 1 / 3)
        return _between(scene["area"][one], None, edge, 0, edge * margin)
    edges = {
        "tiny": (None, "tiny"),
        "small": ("tiny", "small"),
        "medium": ("small", "medium"),
        "large": ("medium", None),
    }
    low, high = (None if name is None else n[name] for name in edges[word])
    return _between(scene["area_ratio"][one], low, high, (low or 0) * margin, (high or 0) * margin)


def _shape(word, one, scene, n):
    if scene["area"][one] < n["shape_min_px"]:
        return "U"
    e, s, m = scene["elongation"][one], scene["solidity"][one], n["shape_margin"]
    if word == "round":
        return _between(e, None, n["round"], 0, m)
    if word == "oval":
        return _both(_between(e, n["round"], n["elongated"], m, m), _between(s, n["oval_solidity"], None, m, 0))
    if word == "elongated":
        return _between(e, n["elongated"], None, m, 0)
    return _between(s, None, n["irregular"], 0, m)


def _position(word, one, scene, n):
    left, top, right, bottom = scene["extent"]
    x = (scene["cx"][one] - left) / (right - left)
    y = (scene["cy"][one] - top) / (bottom - top)
    m = n["position_margin"]
    if word == "border":
        gap = scene["edge_gap"][one]
        return "Y" if gap == 0 else "U" if gap < m else "N"
    if word == "middle":
        return _both(_between(x, 1 / 3, 2 / 3, m, m), _between(y, 1 / 3, 2 / 3, m, m))
    v = x if word in ("left", "right") else y
    return _between(v, None, 0.5, 0, m) if word in ("left", "upper") else _between(v, 0.5, None, m, 0)


def _appearance(word, one, scene, n):
    c, t = scene["contrast"][one], scene["texture"][one]
    if word in ("bright", "dark"):
        c = c if word == "bright" else -c
        return "U" if math.isnan(c) else "Y" if c >= n["contrast_yes"] else "N" if c < n["contrast_no"] else "U"
    if math.isnan(t):
        return "U"
    even, rough = t <= n["texture_even"], t >= n["texture_rough"]
    return ("Y" if even else "N" if rough else "U") if word == "even" else ("Y" if rough else "N" if even else "U")


def _related(kind, one, other, scene, n):
    if one == other:
        return "N"
    if kind == "inside":
        if scene["within"] is None:
            return "U"
        share = scene["within"].get((one, other), 0.0)
        return "Y" if share >= n["zone_yes"] else "N" if share < n["zone_no"] else "U"
    axis = "cx" if kind in ("left_of", "right_of") else "cy"
    ahead = scene[axis][one] - scene[axis][other]
    return _between(-ahead if kind in ("left_of", "above") else ahead, 0, None, n["relation_gap"], 0)


def resolve(query, scene, n):
    """Return the set that a query selects, or None if it is not decidable. ``query``: dict of Query's fields."""
    regions, reference = range(len(scene["label"])), None
    if query["reference"]:
        inner = dict(query["reference"], relation="", reference=None, nth=1, number=0)
        found = resolve(inner, scene, n)
        if found is None or len(found) != 1:
            return None
        (reference,) = found
    selected = set()
    for one in regions:
        values = [value(atom, one, scene, n) for atom in query["atoms"]]
        if reference is not None:
            if query["relation"]:
                values.append(_related(query["relation"], one, reference, scene, n))
            elif one == reference:
                values.append("N")
        if "N" in values:
            continue
        if "U" in values:
            return None
        selected.add(one)
    if not selected:
        return None
    if query["ordinal"] or query["number"]:
        named = [atom.partition(":")[2] for atom in query["atoms"] if atom.startswith("class:")]
        if any(all(word in scene["words"][name] for word in named) for name in scene["open"]):
            return None
    if query["ordinal"]:
        selected = _ordinal(query, selected, reference, scene, n)
        if selected is None:
            return None
    return None if query["number"] and len(selected) != query["number"] else selected


def _ordinal(query, selected, reference, scene, n):
    name, nth = query["ordinal"], query["nth"]
    if nth > n["farthest_nth"]:
        return None
    if name == "nearest":
        x, y = scene["cx"][reference], scene["cy"][reference]
        measure = {one: math.dist((scene["cx"][one], scene["cy"][one]), (x, y)) for one in selected}
    elif name in ("largest", "smallest"):
        measure = {one: scene["area"][one] * (-1 if name == "largest" else 1) for one in selected}
    else:
        axis = "cx" if name in ("leftmost", "rightmost") else "cy"
        measure = {one: scene[axis][one] * (1 if name in ("leftmost", "topmost") else -1) for one in selected}
    if len(measure) < max(2, nth):
        return None
    order = sorted(measure, key=measure.get)
    for a, b in itertools.pairwise(order):
        if order.index(a) not in (nth - 2, nth - 1):
            continue
        small, big = sorted((abs(measure[a]), abs(measure[b])))
        if name in ("largest", "smallest", "nearest"):
            gap = n["nearest_gap"] if name == "nearest" else n["area_gap"]
            if big < small * (1 + gap):
                return None
        elif big - small < n["position_gap"]:
            return None
    return {order[nth - 1]}
