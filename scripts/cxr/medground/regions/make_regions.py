"""Make the regions of one shard: boxes on the grid of 1000, attributes, and candidates for answers."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import cv2
import numpy as np
import polars as pl

from cxr.base.columns import Column, Columns
from cxr.base.hdf5 import Shard
from cxr.base.jobs import progress
from cxr.base.ledger import Ledger
from cxr.base.seeds import make_rng
from cxr.base.tables import write_rows
from cxr.geometry.boxes import CORNERS, paired_iou
from cxr.medground.logic.components import (
    Component,
    centroid,
    compactness,
    contrast_and_texture,
    elongation,
    find_components,
    find_instances,
    position_key,
    solidity,
)  # fmt: skip
from cxr.medground.logic.facts import GRID, GRID_CORNERS, Facts, Planes, read_images, read_planes
from cxr.medground.regions.settings import RegionsSettings

WITHIN = pl.List(pl.Struct({"region": pl.Int64, "share": pl.Float64}))
WHERE: Columns = {
    "image_id": Column(pl.String, "Image."),
    "label": Column(pl.String, "Class."),
    **{name: Column(pl.Int64, "Edge of the box, half-open.", "frame pixels") for name in CORNERS},
    "area": Column(pl.Int64, "Area; of a source without masks, the box's.", "pixels"),
}
REGIONS: Columns = WHERE | {
    "region": Column(pl.Int64, "Number in its image, by class, then y1, x1, y2, x2."),
    **{name: Column(pl.Int64, "Edge of the box on the grid of 1000.") for name in GRID_CORNERS},
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
        name: Column(pl.Int64, f"Rank by {quantity}, from 0 for the {first}.")
        for name, quantity, first in (
            ("rank_area", "area among the image's regions", "largest"), ("rank_cx", "cx", "leftmost"),
            ("rank_cy", "cy", "topmost"), ("class_rank_area", "area among those of its class", "largest"),
            ("class_rank_cx", "cx among those of its class", "leftmost"),
            ("class_rank_cy", "cy among those of its class", "topmost"),
        )
    },
    "open_class": Column(pl.Boolean, "Whether dropped specks hold more of its class than the settings allow."),
}  # fmt: skip
DROPPED: Columns = WHERE | {"reason": Column(pl.String, "`too_small`.")}
SHIFTED: Columns = {
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


MAX_BOXES = 60
"""Most candidates of an image; the other regions are distractors."""
CONNECTIVITY = 8
"""Pixels that touch at a corner are one component (8) or two (4)."""
OPEN_FRACTION = 0.01
"""Fraction of a class's pixels in dropped specks above which the class is open."""


def box_on_grid(box: Sequence[int], side: int) -> tuple[int, int, int, int]:
    """Return a half-open frame box on the grid of 1000, rounded outwards and never empty."""
    x1, y1, x2, y2 = (int(edge) for edge in box)
    low = [max(0, min(GRID - 1, GRID * edge // side)) for edge in (x1, y1)]
    high = [min(GRID, -(-GRID * edge // side)) for edge in (x2, y2)]
    return low[0], low[1], max(high[0], low[0] + 1), max(high[1], low[1] + 1)


def measure_image(
    row: Mapping, planes: Planes, options: RegionsSettings, seed: int
) -> tuple[list[dict], list[dict], list[dict]]:
    """Return one image's rows of :data:`REGIONS`, :data:`DROPPED` and :data:`SHIFTED`. ``row``: its row."""
    rows, dropped_rows, labelled_components = _regions(row, planes, options, seed)
    shifted_rows = []
    for px in (options.outline_px, -options.outline_px) if options.outline_px else ():
        rows_at_px, _, parts = _regions(*shift_outlines(row, planes, px), options, seed)
        twins = _match_twins(labelled_components, parts, planes.picture.shape[0])
        # a speck that grew is no region's twin
        twin_by_region = {at: twin for at, twin in twins.items() if twin < len(rows)}
        shifted_rows += [row | {"px": px, "twin": twin_by_region.get(row["region"])} for row in rows_at_px]
    return rows, dropped_rows, shifted_rows


def _match_twins(before: list[tuple[str, Component]], after: list[tuple[str, Component]], side: int) -> dict[int, int]:
    """Return {index of a shifted component: index of the original}, for pairs that overlap only each other."""
    met: dict[int, set[int]] = {at: set() for at in range(len(after))}
    for label in {label for label, _ in before}:
        plane = np.zeros((side, side), np.int32)
        for at, (component_label, component) in enumerate(before):
            if component_label == label:
                plane[component.window][component.pixels] = at + 1
        for at, (component_label, component) in enumerate(after):
            if component_label == label:
                met[at] |= set((np.unique(plane[component.window][component.pixels]) - 1).tolist()) - {-1}
    parts = Counter(chain.from_iterable(met.values()))
    return {
        at: next(iter(overlaps))
        for at, overlaps in met.items()
        if len(overlaps) == 1 and parts[next(iter(overlaps))] == 1
    }


def _regions(
    row: Mapping, planes: Planes, options: RegionsSettings, seed: int
) -> tuple[list[dict], list[dict], list[tuple[str, Component]]]:
    """Return an image's rows, the rows of its specks, and all (class, component) pairs, regions first, by number."""
    side = planes.picture.shape[0]
    labelled_components = _labelled_components(row, planes, side)
    regions, dropped = [], []
    for label, component in labelled_components:
        (dropped if component.area < options.min_px else regions).append((label, component))
    has_masks = not row["boxes"]
    grey = cv2.cvtColor(planes.picture, cv2.COLOR_RGB2GRAY)
    taken = np.ones(grey.shape, bool)
    x_min, y_min, x_max, y_max = row["extent"]
    taken[y_min:y_max, x_min:x_max] = False
    for _, component in labelled_components:
        taken[component.window] |= component.pixels
    free, open_classes = _candidates(row, regions, seed), _open_classes(regions, dropped, OPEN_FRACTION)
    zones = planes.zones if row["anatomy"] == "found" else {}
    rows = [
        _place(row, label, component)
        | {"region": number, "candidate": number in free, "open_class": label in open_classes}
        | _geometry(component, row, side, has_masks)
        | _appearance(component, grey, taken, has_masks)
        | {
            "zones": [float(zone[component.window][component.pixels].mean()) for zone in zones.values()] or None,
            "within": _overlaps_with_others(number, component, regions) if has_masks else None,
        }
        for number, (label, component) in enumerate(regions)
    ]
    _add_ranks(rows)
    dropped_rows = [_place(row, label, component) | {"reason": "too_small"} for label, component in dropped]
    return rows, dropped_rows, regions + dropped


def _place(row: Mapping, label: str, component: Component) -> dict:
    box = dict(zip(CORNERS, component.box, strict=True))
    return {"image_id": row["image_id"], "label": label, **box, "area": component.area}


def _labelled_components(row: Mapping, planes: Planes, side: int) -> list[tuple[str, Component]]:
    labelled_components = []
    for box in row["boxes"] or ():
        x1, y1 = (max(0, math.floor(box[name] + 0.5)) for name in ("x1", "y1"))
        x2, y2 = (min(side, math.floor(box[name] + 0.5)) for name in ("x2", "y2"))
        x2, y2 = max(x2, x1 + 1), max(y2, y1 + 1)
        shape = (y2 - y1, x2 - x1)
        component = Component((x1, y1, x2, y2), np.ones(shape, bool), shape[0] * shape[1])
        labelled_components.append((box["label"], component))
    if labelled_components:
        return sorted(labelled_components, key=lambda pair: (pair[0], position_key(pair[1])))
    for label in sorted(planes.mask):
        mask = planes.mask[label]
        is_numbered = planes.instances is not None
        parts = find_instances(planes.instances, mask) if is_numbered else find_components(mask, CONNECTIVITY)
        labelled_components += [(label, component) for component in parts]
    return labelled_components


def _candidates(row: Mapping, regions: list[tuple[str, Component]], seed: int) -> set[int]:
    """Return the numbers of the candidates: not cut by a tile's edge, at most :data:`MAX_BOXES`."""
    cut_edges = [(at, row["extent"][at]) for at, is_cut in enumerate(row["inner"]) if is_cut]
    free = [
        number
        for number, (_, component) in enumerate(regions)
        if not any(component.box[at] == edge for at, edge in cut_edges)
    ]
    if len(free) > MAX_BOXES:
        free = make_rng(seed, "candidates", row["image_id"]).sample(free, MAX_BOXES)
    return set(free)


def _open_classes(regions: list, dropped: list, share: float) -> set[str]:
    dropped_area, kept_area = Counter(), Counter()
    for areas, labelled_components in ((dropped_area, dropped), (kept_area, regions)):
        for label, component in labelled_components:
            areas[label] += component.area
    return {label for label, area in dropped_area.items() if area > share * (area + kept_area[label])}


def _geometry(component: Component, row: Mapping, side: int, has_masks: bool) -> dict:
    x1, y1, x2, y2 = component.box
    x_min, y_min, x_max, y_max = row["extent"]
    grid = box_on_grid(component.box, side)
    cx, cy = centroid(component)
    shape_measures = {"solidity": solidity, "elongation": elongation, "compactness": compactness}
    return {
        **dict(zip(GRID_CORNERS, grid, strict=True)),
        "grid_iou": float(paired_iou(np.array(component.box, np.float64) * GRID / side, np.array(grid, np.float64))),
        "area_ratio": component.area / ((x_max - x_min) * (y_max - y_min)),
        "width": (x2 - x1) / side,
        "height": (y2 - y1) / side,
        "aspect": (x2 - x1) / (y2 - y1),
        "cx": cx / side,
        "cy": cy / side,
        "extent": component.area / ((x2 - x1) * (y2 - y1)) if has_masks else None,
        **{name: measure(component) if has_masks else None for name, measure in shape_measures.items()},
        "touches_border": any(edge == limit for edge, limit in zip(component.box, row["extent"], strict=True)),
    }


def _appearance(component: Component, grey: np.ndarray, taken: np.ndarray, has_masks: bool) -> dict:
    values = contrast_and_texture(component, grey, taken) if has_masks else (math.nan, math.nan)
    finite_values = (value if math.isfinite(value) else None for value in values)
    return dict(zip(("contrast", "texture"), finite_values, strict=True))


def _overlaps_with_others(number: int, component: Component, regions: list[tuple[str, Component]]) -> list[dict]:
    """Return the fractions of a region's pixels inside each region of another class."""
    x1, y1, x2, y2 = component.box
    overlaps = []
    for region, (label, part) in enumerate(regions):
        a1, b1, a2, b2 = part.box
        if label == regions[number][0] or a1 >= x2 or a2 <= x1 or b1 >= y2 or b2 <= y1:
            continue
        low, high = (max(x1, a1), max(y1, b1)), (min(x2, a2), min(y2, b2))
        mine = component.pixels[low[1] - y1 : high[1] - y1, low[0] - x1 : high[0] - x1]
        its = part.pixels[low[1] - b1 : high[1] - b1, low[0] - a1 : high[0] - a1]
        if shared := int((mine & its).sum()):
            overlaps.append({"region": region, "share": shared / component.area})
    return overlaps


def _add_ranks(rows: list[dict]) -> None:
    for prefix, key in (("", lambda row: 0), ("class_", lambda row: row["label"])):
        for name, sign in (("area", -1), ("cx", 1), ("cy", 1)):
            next_rank: dict = {}
            for row in sorted(rows, key=lambda row: (sign * row[name], row["region"])):
                row[f"{prefix}rank_{name}"] = next_rank.get(key(row), 0)
                next_rank[key(row)] = row[f"{prefix}rank_{name}"] + 1


def run_shard(
    *, sources: str, images: str, output: str, dropped: str, shifted: str, excluded: str, options: RegionsSettings,
    seed: int,
) -> None:  # fmt: skip
    """Write one shard's regions, those of shifted outlines, the dropped specks and the images without a region."""
    cv2.setNumThreads(1)
    files, ledger = ((output, REGIONS), (dropped, DROPPED), (shifted, SHIFTED)), Ledger("medground_regions")
    all_rows: tuple[list[dict], ...] = tuple([] for _ in files)
    with Shard(sources) as shard:
        facts, row_by_image = Facts.from_shard(shard), read_images(images)
        for image_id in progress(sorted(shard.ids), len(shard.ids), "regions"):
            image_rows = measure_image(row_by_image[image_id], read_planes(shard, facts, image_id), options, seed)
            for rows, new_rows in zip(all_rows, image_rows, strict=True):
                rows += new_rows
            ledger.accept(image_id) if image_rows[0] else ledger.exclude(image_id, "", "no_regions")
        ledger.finish(excluded, shard.ids)
    for (path, columns), rows in zip(files, all_rows, strict=True):
        write_rows(path, ({name: row[name] for name in columns} for row in rows), columns)


def shift_outlines(row: Mapping, planes: Planes, px: int) -> tuple[dict, Planes]:
    """Return an image's row and planes with all outlines shifted outwards by ``px``, or inwards if it is negative.

    Masks are dilated or eroded by a square of side 2 ``px`` + 1, within the image without padding, whose edge is no
    outline. Instances grow only into background.
    """
    x_min, y_min, x_max, y_max = row["extent"]
    window, square = np.s_[y_min:y_max, x_min:x_max], np.ones((2 * abs(px) + 1,) * 2, np.uint8)

    def inside(plane: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        changed = np.zeros_like(plane)
        changed[window] = change(np.ascontiguousarray(plane[window]))
        return changed

    def mask(plane: np.ndarray) -> np.ndarray:
        pixels = plane.astype(np.uint8)
        return (cv2.dilate(pixels, square) if px > 0 else cv2.erode(pixels, square)) > 0

    def instances(numbers: np.ndarray) -> np.ndarray:
        most = cv2.dilate(numbers, square)
        if px > 0:
            return np.where(numbers > 0, numbers, most)
        return np.where(cv2.erode(numbers, square) == most, numbers, 0).astype(numbers.dtype)

    masks = {label: inside(plane, mask) for label, plane in planes.mask.items()}
    numbers = None if planes.instances is None else inside(planes.instances, instances)
    boxes = row["boxes"] and [_shift_box(box, row["extent"], px) for box in row["boxes"]]
    return dict(row) | {"boxes": boxes}, Planes(planes.picture, masks, numbers, planes.zones)


def _shift_box(box: Mapping, extent: tuple[int, int, int, int], px: int) -> dict:
    """Return a box with its edges shifted outwards by ``px``, within the image; an edge at the image's edge stays."""
    shifted_box = dict(box)
    for name, edge, way in zip(CORNERS, extent, (-1, -1, 1, 1), strict=True):
        limit = max if way < 0 else min
        shifted_box[name] = edge if box[name] == edge else limit(box[name] + way * px, edge)
    for low, high in (("x1", "x2"), ("y1", "y2")):
        if shifted_box[high] <= shifted_box[low]:  # collapsed to its centre
            shifted_box[low] = shifted_box[high] = (box[low] + box[high]) / 2
    return shifted_box
