"""An oracle for sections 5 and 6 of ils.md: a slow and plain implementation with sets of pixels and fractions.

Nothing here is shared with the code under test. A pixel is (row, column); masks are sets of them.
"""

from decimal import Decimal
from fractions import Fraction
from math import isnan


def decimal(x):
    return Fraction(Decimal(repr(x)))


def disc4(p):
    y, x = p
    return {(y, x), (y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)}


def square(p):
    y, x = p
    return {(y + a, x + b) for a in (-1, 0, 1) for b in (-1, 0, 1)}


def set_of(array):
    return {(y, x) for y, row in enumerate(array.tolist()) for x, value in enumerate(row) if value}


def pixels_of_box(box, height, width):
    """The pixels whose centre the box covers, the right and lower edge not included."""
    x1, y1, x2, y2 = map(float, box)
    if any(isnan(v) for v in (x1, y1, x2, y2)):
        return set()
    rows = [y for y in range(height) if y1 <= y + 0.5 < y2]
    columns = [x for x in range(width) if x1 <= x + 0.5 < x2]
    return {(y, x) for y in rows for x in columns}


def iou(box, mask):
    if not mask or not box:
        return Fraction(0)
    return Fraction(len(box & mask), len(box | mask))


def opening(pixels, frame):
    eroded = {p for p in pixels if disc4(p) <= pixels}
    return {q for p in eroded for q in disc4(p)} & frame


def connected(pixels):
    left, found = set(pixels), []
    while left:
        start = left.pop()
        component, edge = {start}, [start]
        while edge:
            for q in square(edge.pop()):
                if q in left:
                    left.remove(q)
                    component.add(q)
                    edge.append(q)
        found.append(component)
    return found


def grow(component, image, lungs, tolerance, steps):
    mean = Fraction(sum(int(image[p]) for p in component), len(component))
    grown = set(component)
    for _ in range(steps):
        ring = {q for p in grown for q in square(p)} - grown
        grown |= {q for q in ring if q in lungs and abs(int(image[q]) - mean) <= tolerance}
    return grown


def lowest_part(lung, share):
    if not lung:
        return set()
    rows = [y for y, _ in lung]
    height = max(rows) - min(rows) + 1
    return {(y, x) for y, x in lung if max(rows) - y + 1 <= share * height}


def side(label):
    return "right" if "right" in label else "left"


def ground(labels, zones, mask, productive_boxes, rules):
    return [
        label
        for label in labels
        if any(box & zones[label] for box in productive_boxes)
        and mask
        and len(mask & zones[label]) >= rules["ground_min_px"]
        and len(mask & zones[label]) >= decimal(rules["ground_min_share"]) * len(mask)
    ]


def lesion(anomaly, image, zones, lungs, boxes, confidence, labels, taus, rules, fill):
    """Algorithm 1, refinement, grounding.

    ``zones`` {label: set}, made on the edited image: M, grounding; ``lungs`` {"right" | "left": set}, made on the
    image: whatever section 5 calls a lung; ``taus`` plain floats, ``rules`` the numbers by their option names. Returns
    the failed conditions of each box (sets of names), the mask and the grounded labels.
    """
    height, width = anomaly.shape
    frame = {(y, x) for y in range(height) for x in range(width)}
    signal = {p for p in frame if Fraction(int(anomaly[p]), 255) >= decimal(taus["ano"])}
    opened = opening(signal, frame)
    named = set().union(*(zones[label] for label in labels))

    shapes = [pixels_of_box(box, height, width) for box in boxes]
    failed = []
    for shape, sure in zip(shapes, confidence, strict=True):
        why = set()
        if not shape:
            why.add("zero_area")
        if iou(shape, named) < decimal(taus["anatomy"]):
            why.add("anatomy")
        if isnan(sure) or decimal(float(sure)) < decimal(taus["conf"]):
            why.add("conf")
        if (Fraction(len(shape & opened), len(shape)) if shape else 0) < decimal(taus["signal"]):
            why.add("signal")
        if max(iou(shape, lungs["right"]), iou(shape, lungs["left"])) < decimal(taus["size"]):
            why.add("size")
        failed.append(why)
    passing = [i for i, why in enumerate(failed) if not why]

    both = lungs["right"] | lungs["left"]
    large = [c for c in connected(opened) if len(c) >= rules["min_component_px"]]
    grown = [grow(c, image, both, rules["grow_tolerance"], rules["grow_px"]) for c in large]
    of_box = {i: [k for k, c in enumerate(large) if c & shapes[i]] for i in passing}

    kept = dict(enumerate(grown))
    productive = [i for i in passing if of_box[i]]
    while True:
        sides = {side(label) for label in labels if any(shapes[i] & zones[label] for i in productive)}
        allowed = set().union(*(lungs[s] for s in sides))
        forbidden = set().union(*(lungs[s] for s in lungs if s not in sides)) - allowed
        kept = {}
        for k, component in enumerate(grown):
            if not component & forbidden:
                kept[k] = component
            elif len(component & allowed) >= max(1, rules["min_component_px"]):
                kept[k] = component - forbidden
        left = [i for i in productive if any(k in kept for k in of_box[i])]
        if left == productive:
            break
        productive = left

    mask = set().union(*(kept[k] for i in productive for k in of_box[i] if k in kept))
    boxes_left = [shapes[i] for i in productive]
    if fill:
        confirmed = ground(labels, zones, mask, boxes_left, rules)
        extra = [
            lowest_part(lungs[s], decimal(rules["effusion_fill_share"]))
            for s in lungs
            if f"{s} lung base" in confirmed and mask & zones[f"{s} lung base"]
        ]
        mask = mask.union(*extra)
    for i in passing:
        if i not in productive:
            failed[i] = {"empty_after_refine"}
    return failed, mask, ground(labels, zones, mask, boxes_left, rules)


ZONES_OF_A_LOBE = {
    ("upper", "right"): ("apical zone lung", "upper zone lung"),
    ("middle", "right"): ("mid zone lung",),
    ("lower", "right"): ("mid zone lung", "lung base"),
    ("upper", "left"): ("apical zone lung", "upper zone lung", "mid zone lung"),
    ("lower", "left"): ("mid zone lung", "lung base"),
}
TABLE_9 = ["right lung", "left lung"] + [
    f"{s} {z}" for s in ("right", "left") for z in ("apical zone lung", "upper zone lung", "mid zone lung", "lung base")
]


def names(grounded, reported, zones, mask, share):
    chosen = set()
    for label in grounded:
        if "lobe" not in label:
            chosen.add(label)
            continue
        part = next(part for part in ("upper", "middle", "lower") if part in label)
        for zone in ZONES_OF_A_LOBE[part, side(label)]:
            zone = f"{side(label)} {zone}"
            refuted = zone in reported and zone not in grounded
            if not refuted and len(mask & zones[zone]) >= decimal(share) * len(mask):
                chosen.add(zone)
    return [
        p
        for p in TABLE_9
        if p in chosen and (p.endswith(("right lung", "left lung")) or f"{side(p)} lung" not in chosen)
    ]
