"""Make the regions of one shard: boxes on the grid of 1000, attributes, and which of them may be an answer."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import cv2
import numpy as np
import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.hdf5 import Shard
from cxr.base.jobs import progress
from cxr.base.ledger import Ledger
from cxr.base.seeds import rng
from cxr.base.tables import read_table, write_table
from cxr.geometry.boxes import CORNERS, paired_iou
from cxr.medground.logic.components import (
    Component,
    centroid,
    compactness,
    components,
    elongation,
    instances,
    solidity,
    surroundings,
)  # fmt: skip
from cxr.medground.logic.facts import Facts, Planes, planes_of
from cxr.medground.regions.moved import moved

GRID = 1000
WITHIN = pl.List(pl.Struct({"region": pl.Int64, "share": pl.Float64}))
WHERE: Columns = {
    "image_id": Column(pl.String, "Image."),
    "label": Column(pl.String, "Class."),
    **{name: Column(pl.Int64, "Edge of the box, half-open.", "frame pixels") for name in CORNERS},
    "area": Column(pl.Int64, "Area; of a source without masks, the box's.", "pixels"),
}
REGIONS: Columns = WHERE | {
    "region": Column(pl.Int64, "Number in its image, by class, then y1, x1, y2, x2."),
    **{name: Column(pl.Int64, "Edge of the box on the grid of 1000.") for name in ("gx1", "gy1", "gx2", "gy2")},
    "grid_iou": Column(pl.Float64, "IoU of the box and its box on the grid."),
    "candidate": Column(pl.Boolean, "Whether it may be an answer; the others are distractors."),
    "area_ratio": Column(pl.Float64, "Area over the picture's without padding."),
    "width": Column(pl.Float64, "Width of the box over the side."),
    "height": Column(pl.Float64, "Height of the box over the side."),
    "aspect": Column(pl.Float64, "Width over height of the box."),
    "cx": Column(pl.Float64, "Centroid over the side, from the left."),
    "cy": Column(pl.Float64, "Centroid over the side, from the top."),
    "extent": Column(pl.Float64, "Area over that of the box; null without a mask."),
    "solidity": Column(pl.Float64, "Area over that of the convex hull of the pixels' corners; null without a mask."),
    "elongation": Column(pl.Float64, "1 - sqrt(l2 / l1) of the pixels' covariance; null without a mask."),
    "compactness": Column(pl.Float64, "4 pi area over the squared perimeter; null without a mask. In no query."),
    "contrast": Column(pl.Float64, "Mean inside less the ring's, over the pooled SD; null without a ring."),
    "texture": Column(pl.Float64, "SD inside over the ring's; null without a ring."),
    "touches_border": Column(pl.Boolean, "Whether the box meets the picture's edge."),
    "zones": Column(pl.List(pl.Float64), "Share of the region in each zone label; null where zones are unknown."),
    "within": Column(WITHIN, "Shares of its pixels inside regions of other classes; null without masks."),
    **{
        name: Column(pl.Int64, f"Rank by {what}, from 0 for the {first}.")
        for name, what, first in (
            ("rank_area", "area among the image's regions", "largest"), ("rank_cx", "cx", "leftmost"),
            ("rank_cy", "cy", "topmost"), ("class_rank_area", "area among those of its class", "largest"),
            ("class_rank_cx", "cx among those of its class", "leftmost"),
            ("class_rank_cy", "cy among those of its class", "topmost"),
        )
    },
    "open_class": Column(pl.Boolean, "Whether dropped specks hold more of its class than the settings allow."),
}  # fmt: skip
DROPPED: Columns = WHERE | {"reason": Column(pl.String, "`too_small`.")}
MOVED: Columns = {
    "px": Column(pl.Int64, "How far every outline lies further out; negative: further in.", "frame pixels"),
    "twin": Column(pl.Int64, "`region` that it is; null for one that appears, or that met others or fell apart."),
    **{
        name: REGIONS[name]
        for name in (
            *WHERE, "region", "candidate", "area_ratio", "cx", "cy", "solidity", "elongation", "contrast", "texture",
            "zones", "within", "open_class",
        )
    },
}  # fmt: skip


@dataclass(frozen=True)
class RegionsOptions:
    """connectivity: 4 or 8; min_px: least area; max_boxes: candidates an image; open_share: of the class's pixels.

    outline_px: how far outlines are moved, px; 0: not at all.
    """

    connectivity: int
    min_px: int
    max_boxes: int
    open_share: float
    outline_px: int
    seed: int


def grid_box(box: Sequence[int], side: int) -> tuple[int, int, int, int]:
    """Return a half-open frame box on the grid of 1000, rounded outwards and never empty."""
    x1, y1, x2, y2 = (int(edge) for edge in box)
    low = [max(0, min(GRID - 1, GRID * edge // side)) for edge in (x1, y1)]
    high = [min(GRID, -(-GRID * edge // side)) for edge in (x2, y2)]
    return low[0], low[1], max(high[0], low[0] + 1), max(high[1], low[1] + 1)


def _on_grid(box: Sequence[int], grid: Sequence[int], side: int) -> float:
    exact = np.array(box, np.float64) * GRID / side
    return float(paired_iou(exact, np.array(grid, np.float64)))


def image_regions(row: Mapping, planes: Planes, options: RegionsOptions) -> tuple[list[dict], list[dict], list[dict]]:
    """Return the rows of :data:`REGIONS` and of :data:`DROPPED` of one image, and those of :data:`MOVED`: its regions
    with every outline further out, and in.

    ``row``: of the table of images.
    """
    rows, lost, drawn = _regions(row, planes, options)
    found = []
    for px in (options.outline_px, -options.outline_px) if options.outline_px else ():
        others, _, parts = _regions(*moved(row, planes, px), options)
        twins = _twins(drawn, parts, planes.picture.shape[0])
        known = {at: one for at, one in twins.items() if one < len(rows)}  # a speck that grew is no region's twin
        found += [other | {"px": px, "twin": known.get(other["region"])} for other in others]
    return rows, lost, found


def _twins(before: list[tuple[str, Component]], after: list[tuple[str, Component]], side: int) -> dict[int, int]:
    """Return {place of a moved component: of the one that it is}: of those that share pixels with each other alone."""
    met: dict[int, set[int]] = {at: set() for at in range(len(after))}
    for label in {label for label, _ in before}:
        plane = np.zeros((side, side), np.int32)
        for at, (own, one) in enumerate(before):
            if own == label:
                plane[one.window][one.pixels] = at + 1
        for at, (own, one) in enumerate(after):
            if own == label:
                met[at] |= set((np.unique(plane[one.window][one.pixels]) - 1).tolist()) - {-1}
    parts = Counter(chain.from_iterable(met.values()))
    return {at: next(iter(own)) for at, own in met.items() if len(own) == 1 and parts[next(iter(own))] == 1}


def _regions(
    row: Mapping, planes: Planes, options: RegionsOptions
) -> tuple[list[dict], list[dict], list[tuple[str, Component]]]:
    """Return an image's rows, those of its specks, and all classes and components, the regions' by number first."""
    side = planes.picture.shape[0]
    drawn = _drawn(row, planes, options, side)
    kept, dropped = [], []
    for label, one in drawn:
        small = one.area < options.min_px
        (dropped if small else kept).append((label, one))
    known = not row["boxes"]
    grey = cv2.cvtColor(planes.picture, cv2.COLOR_RGB2GRAY)
    taken = np.zeros(grey.shape, bool)
    for _, one in drawn:
        taken[one.window] |= one.pixels
    left, top, right, bottom = row["extent"]
    outside = np.ones(grey.shape, bool)
    outside[top:bottom, left:right] = False
    taken |= outside
    free = _candidates(row, kept, options)
    open_classes = _open(kept, dropped, options.open_share)
    zones = planes.zones if row["anatomy"] == "found" else {}
    rows = []
    for number, (label, one) in enumerate(kept):
        rows.append(
            {"image_id": row["image_id"], "label": label, **dict(zip(CORNERS, one.box, strict=True))}
            | {"area": one.area, "region": number, "candidate": number in free, "open_class": label in open_classes}
            | _measured(one, row, side, known)
            | _looks(one, grey, taken, known)
            | {"zones": _zones(one, zones), "within": _within(number, one, kept) if known else None}
        )
    _rank(rows)
    lost = [
        {"image_id": row["image_id"], "label": label, **dict(zip(CORNERS, one.box, strict=True))}
        | {"area": one.area, "reason": "too_small"}
        for label, one in dropped
    ]
    return rows, lost, kept + dropped


def _drawn(row: Mapping, planes: Planes, options: RegionsOptions, side: int) -> list[tuple[str, Component]]:
    found = []
    if row["boxes"]:
        for box in row["boxes"]:
            x1, y1 = (max(0, math.floor(box[name] + 0.5)) for name in ("x1", "y1"))
            x2, y2 = (min(side, math.floor(box[name] + 0.5)) for name in ("x2", "y2"))
            x2, y2 = max(x2, x1 + 1), max(y2, y1 + 1)
            shape = (y2 - y1, x2 - x1)
            found.append((box["label"], Component((x1, y1, x2, y2), np.ones(shape, bool), shape[0] * shape[1])))
        return sorted(found, key=lambda one: (one[0], one[1].box[1], one[1].box[0], one[1].box[3], one[1].box[2]))
    for label in sorted(planes.mask):
        mask = planes.mask[label]
        if planes.instances is not None:
            parts = instances(planes.instances, mask)
        else:
            parts = components(mask, options.connectivity)
        found += [(label, one) for one in parts]
    return found


def _candidates(row: Mapping, kept: list[tuple[str, Component]], options: RegionsOptions) -> set[int]:
    """Return the numbers of the regions that may be an answer: not cut by a tile's edge, and at most ``max_boxes``."""
    left, top, right, bottom = row["extent"]
    edges = (left, top, right, bottom)
    free = [
        number
        for number, (_, one) in enumerate(kept)
        if not any(cut and one.box[at] == edges[at] for at, cut in enumerate(row["inner"]))
    ]
    if len(free) > options.max_boxes:
        free = rng(options.seed, "candidates", row["image_id"]).sample(free, options.max_boxes)
    return set(free)


def _open(kept: list, dropped: list, share: float) -> set[str]:
    lost, held = {}, {}
    for label, one in dropped:
        lost[label] = lost.get(label, 0) + one.area
    for label, one in kept:
        held[label] = held.get(label, 0) + one.area
    return {label for label, area in lost.items() if area > share * (area + held.get(label, 0))}


def _measured(one: Component, row: Mapping, side: int, known: bool) -> dict:
    x1, y1, x2, y2 = one.box
    left, top, right, bottom = row["extent"]
    grid = grid_box(one.box, side)
    cx, cy = centroid(one)
    inner = (left, top, right, bottom)
    return {
        **dict(zip(("gx1", "gy1", "gx2", "gy2"), grid, strict=True)),
        "grid_iou": _on_grid(one.box, grid, side),
        "area_ratio": one.area / ((right - left) * (bottom - top)),
        "width": (x2 - x1) / side,
        "height": (y2 - y1) / side,
        "aspect": (x2 - x1) / (y2 - y1),
        "cx": cx / side,
        "cy": cy / side,
        "extent": one.area / ((x2 - x1) * (y2 - y1)) if known else None,
        "solidity": solidity(one) if known else None,
        "elongation": elongation(one) if known else None,
        "compactness": compactness(one) if known else None,
        "touches_border": any(one.box[at] == edge for at, edge in enumerate(inner)),
    }


def _looks(one: Component, grey: np.ndarray, taken: np.ndarray, known: bool) -> dict:
    contrast, texture = surroundings(one, grey, taken) if known else (math.nan, math.nan)
    return {
        name: value if math.isfinite(value) else None for name, value in (("contrast", contrast), ("texture", texture))
    }


def _zones(one: Component, zones: Mapping[str, np.ndarray]) -> list[float] | None:
    return [float(zone[one.window][one.pixels].mean()) for zone in zones.values()] or None


def _within(number: int, one: Component, kept: list[tuple[str, Component]]) -> list[dict]:
    """Return the shares of a region's pixels inside each region of another class."""
    x1, y1, x2, y2 = one.box
    found = []
    for other, (label, part) in enumerate(kept):
        a1, b1, a2, b2 = part.box
        if label == kept[number][0] or a1 >= x2 or a2 <= x1 or b1 >= y2 or b2 <= y1:
            continue
        low, high = (max(x1, a1), max(y1, b1)), (min(x2, a2), min(y2, b2))
        mine = one.pixels[low[1] - y1 : high[1] - y1, low[0] - x1 : high[0] - x1]
        its = part.pixels[low[1] - b1 : high[1] - b1, low[0] - a1 : high[0] - a1]
        if shared := int((mine & its).sum()):
            found.append({"region": other, "share": shared / one.area})
    return found


def _rank(rows: list[dict]) -> None:
    for prefix, key in (("", lambda row: 0), ("class_", lambda row: row["label"])):
        for name, sign in (("area", -1), ("cx", 1), ("cy", 1)):
            seen: dict = {}
            for row in sorted(rows, key=lambda row: (sign * row[name], row["region"])):
                row[f"{prefix}rank_{name}"] = seen.get(key(row), 0)
                seen[key(row)] = row[f"{prefix}rank_{name}"] + 1


def run_shard(
    *, sources: str, images: str, output: str, dropped: str, moved: str, excluded: str, options: RegionsOptions
) -> None:
    """Write the regions, those of moved outlines, the dropped specks and the images without a region of one shard."""
    cv2.setNumThreads(1)
    rows, lost, further, ledger = [], [], [], Ledger("medground_regions")
    with Shard(sources) as shard:
        facts = Facts.of(shard)
        known = {row["image_id"]: row for row in read_table(images).iter_rows(named=True)}
        for image_id in progress(sorted(shard.ids), len(shard.ids), "regions"):
            found, gone, others = image_regions(known[image_id], planes_of(shard, facts, image_id), options)
            rows, lost, further = rows + found, lost + gone, further + others
            ledger.accept(image_id) if found else ledger.exclude(image_id, "", "no_regions")
        ledger.finish(excluded, shard.ids)
    for path, held, columns in ((output, rows, REGIONS), (dropped, lost, DROPPED), (moved, further, MOVED)):
        told = [{name: row[name] for name in columns} for row in held]
        write_table(path, pl.DataFrame(told, schema=schema(columns), infer_schema_length=None), columns)
