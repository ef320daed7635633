"""Measure the regions of one shard: their boxes, their attributes, and whether they may be answers (candidates)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import cv2
import numpy as np

from cxr.base.columns import read_columns
from cxr.base.hdf5 import Shard
from cxr.base.jobs import progress
from cxr.base.ledger import Ledger
from cxr.base.seeds import make_rng
from cxr.base.tables import write_rows
from cxr.geometry.boxes import CORNERS, paired_iou
from cxr.medground.logic.components import Component, contrast_and_texture, find_components, find_instances
from cxr.medground.logic.facts import GRID, GRID_CORNERS, Facts, Planes, read_images, read_planes
from cxr.medground.stage_settings import RegionsSettings

RESOURCE_FILES = ("columns/medground_regions.toml",)
WHERE = read_columns("medground_regions", "where")
REGIONS = WHERE | read_columns("medground_regions", "regions")
DROPPED = WHERE | read_columns("medground_regions", "dropped")
SHIFTED = read_columns("medground_regions", "shifted") | {
    name: REGIONS[name]
    for name in (
        *WHERE, "region", "candidate", "area_ratio", "cx", "cy", "solidity", "elongation", "contrast", "texture",
        "zones", "within", "open_class",
    )
}  # fmt: skip
Rows = list[dict]
MAX_BOXES = 60  # most regions per image that may be answers (candidates); all other regions are distractors
OPEN_FRACTION = 0.01  # a class is open if more than this fraction of its area was dropped as too small


def box_on_grid(box: Sequence[int], side: int) -> tuple[int, int, int, int]:
    """Convert a box from pixels of a frame with this ``side`` to the grid of 1000 cells per side. Both boxes are
    half-open (x1, y1, x2, y2). The result is rounded outwards and never empty."""
    x1, y1, x2, y2 = (int(edge) for edge in box)
    low = [max(0, min(GRID - 1, GRID * edge // side)) for edge in (x1, y1)]
    high = [min(GRID, -(-GRID * edge // side)) for edge in (x2, y2)]
    return low[0], low[1], max(high[0], low[0] + 1), max(high[1], low[1] + 1)


def measure_image(row: Mapping, planes: Planes, options: RegionsSettings, seed: int) -> tuple[Rows, Rows, Rows]:
    """Return three lists of rows: an image's regions, its components that are too small, and its regions after shifts
    of all outlines. ``row``: the image's row in the table of images. ``planes``: the image's arrays."""
    rows, dropped_rows, components = _measure(row, planes, options, seed)
    shifted_rows = []
    for px in (options.outline_px, -options.outline_px) if options.outline_px else ():
        rows_at_px, _, shifted_components = _measure(*shift_outlines(row, planes, px), options, seed)
        twin_by_region = _match_twins(components, shifted_components, planes.picture.shape[0])
        for shifted_row in rows_at_px:
            twin = twin_by_region.get(shifted_row["region"], len(rows))
            # indices from len(rows) on are dropped components, not regions
            shifted_rows.append(shifted_row | {"px": px, "twin": twin if twin < len(rows) else None})
    return rows, dropped_rows, shifted_rows


Components = list[tuple[str, Component]]  # (class, component) of all components of an image, regions first, by number


def _number_planes(components: Components, side: int) -> dict[str, np.ndarray]:
    """Return {class: int32 (side, side)}, the index of the component at each pixel plus 1, or 0 without a component."""
    planes: dict[str, np.ndarray] = {}
    for number, (label, component) in enumerate(components, 1):
        plane = planes.setdefault(label, np.zeros((side, side), np.int32))
        plane[component.window][component.pixels] = number
    return planes


def _match_twins(before: Components, after: Components, side: int) -> dict[int, int]:
    """Return {index in ``after``: index in ``before``} of the components that match after a shift of the outlines. They
    match if they overlap each other and no other component of their class. ``side``: side of the frame, px."""
    planes, nothing = _number_planes(before, side), np.zeros((side, side), np.int32)
    pixels = (planes.get(label, nothing)[component.window][component.pixels] for label, component in after)
    overlaps = [np.setdiff1d(values, [0]).tolist() for values in pixels]
    counts = Counter(chain.from_iterable(overlaps))
    return {at: numbers[0] - 1 for at, numbers in enumerate(overlaps) if len(numbers) == 1 and counts[numbers[0]] == 1}


def _measure(image: Mapping, planes: Planes, options: RegionsSettings, seed: int) -> tuple[Rows, Rows, Components]:
    """Return the rows of an image's regions, the rows of its components that are too small, and all its components."""
    side, (x_min, y_min, x_max, y_max) = planes.picture.shape[0], image["extent"]
    grey, taken = cv2.cvtColor(planes.picture, cv2.COLOR_RGB2GRAY), np.ones((side, side), bool)
    taken[y_min:y_max, x_min:x_max] = False
    regions, dropped, areas, dropped_areas = [], [], Counter(), Counter()
    for label, component in _list_components(image, planes, side):
        is_speck = component.area < options.min_px
        (dropped if is_speck else regions).append((label, component))
        taken[component.window] |= component.pixels
        areas[label] += component.area
        dropped_areas[label] += is_speck * component.area
    candidates, numbers = _candidates(image, regions, seed), _number_planes(regions, side)
    zones = planes.zones if image["anatomy"] == "found" else {}
    places = [
        {"image_id": image["image_id"], "label": label, "area": component.area}
        | dict(zip(CORNERS, component.box, strict=True))
        for label, component in regions + dropped
    ]
    rows = places[: len(regions)]
    for number, (row, (label, component)) in enumerate(zip(rows, regions, strict=True)):
        row |= _geometry(component, image["extent"], side) | dict.fromkeys((*SHAPE, "within"))
        if not image["boxes"]:
            row |= _shape(component, grey, taken) | {"within": _overlaps(label, component, numbers)}
        shares = [float(zone[component.window][component.pixels].mean()) for zone in zones.values()]
        row |= {"region": number, "candidate": number in candidates, "zones": shares or None}
        row["open_class"] = dropped_areas[label] > OPEN_FRACTION * areas[label]
    for prefix in ("", "class_"):
        for name, sign in (("area", -1), ("cx", 1), ("cy", 1)):
            next_rank: Counter = Counter()
            for region in sorted(rows, key=lambda region: (sign * region[name], region["region"])):
                group = prefix and region["label"]
                region[f"{prefix}rank_{name}"] = next_rank[group]
                next_rank[group] += 1
    return rows, [place | {"reason": "too_small"} for place in places[len(regions) :]], regions + dropped


def _list_components(row: Mapping, planes: Planes, side: int) -> Components:
    components = []
    for box in row["boxes"] or ():
        x1, y1, x2, y2 = (math.floor(box[name] + 0.5) for name in CORNERS)
        x1, y1 = max(0, x1), max(0, y1)
        x2, y2 = max(min(side, x2), x1 + 1), max(min(side, y2), y1 + 1)
        pixels = np.ones((y2 - y1, x2 - x1), bool)
        components.append((box["label"], Component((x1, y1, x2, y2), pixels, pixels.size)))
    for label, mask in planes.mask.items() if not components else ():
        has_numbers = planes.instances is not None
        parts = find_instances(planes.instances, mask) if has_numbers else find_components(mask)
        components += [(label, component) for component in parts]
    return sorted(components, key=lambda pair: (pair[0], pair[1].position))


def _candidates(row: Mapping, regions: Components, seed: int) -> set[int]:
    """Return the numbers of the regions that may be answers: at most MAX_BOXES, and none cut by a tile's edge."""
    cut_edges = [(at, row["extent"][at]) for at, is_inner in enumerate(row["inner"]) if is_inner]
    is_cut = [any(component.box[at] == edge for at, edge in cut_edges) for _, component in regions]
    candidates = np.flatnonzero(~np.array(is_cut, bool)).tolist()
    if len(candidates) > MAX_BOXES:
        candidates = make_rng(seed, "candidates", row["image_id"]).sample(candidates, MAX_BOXES)
    return set(candidates)


def _geometry(component: Component, extent: Sequence[int], side: int) -> dict:
    x_min, y_min, x_max, y_max = extent
    (x1, y1, x2, y2), (cx, cy), grid = component.box, component.centroid, box_on_grid(component.box, side)
    iou = paired_iou(np.array(component.box, np.float64) * GRID / side, np.array(grid, np.float64))
    row = dict(zip(GRID_CORNERS, grid, strict=True)) | {"cx": cx / side, "cy": cy / side, "grid_iou": float(iou)}
    row |= {"width": (x2 - x1) / side, "height": (y2 - y1) / side, "aspect": (x2 - x1) / (y2 - y1)}
    row["area_ratio"] = component.area / ((x_max - x_min) * (y_max - y_min))
    return row | {"touches_border": any(edge == limit for edge, limit in zip(component.box, extent, strict=True))}


SHAPE = ("extent", "solidity", "elongation", "compactness", "contrast", "texture")
"""Columns that are null if the source has boxes instead of masks."""


def _shape(component: Component, grey: np.ndarray, taken: np.ndarray) -> dict:
    values = [component.area / component.pixels.size, component.solidity, component.elongation]
    values += [component.compactness, *contrast_and_texture(component, grey, taken)]
    return {name: value if math.isfinite(value) else None for name, value in zip(SHAPE, values, strict=True)}


def _overlaps(label: str, component: Component, planes: Mapping[str, np.ndarray]) -> list[dict]:
    """Return [{region, share}] of the regions of other classes than ``label`` that overlap a component. The share is
    the fraction of the component's pixels inside the region. ``planes``: result of :func:`_number_planes`."""
    overlaps = []
    for other_label, plane in sorted(planes.items()):
        if other_label != label:
            numbers, counts = np.unique(plane[component.window][component.pixels], return_counts=True)
            pairs = zip(numbers.tolist(), counts.tolist(), strict=True)
            overlaps += [{"region": number - 1, "share": count / component.area} for number, count in pairs if number]
    return overlaps


def run_shard(
    *, sources: str, images: str, output: str, dropped: str, shifted: str, excluded: str, options: RegionsSettings,
    seed: int,
) -> None:  # fmt: skip
    """Write four tables of one shard: its regions (``output``), its regions with shifted outlines, its dropped
    components, and its images without a region (``excluded``)."""
    cv2.setNumThreads(1)
    files, ledger = ((output, REGIONS), (dropped, DROPPED), (shifted, SHIFTED)), Ledger("medground_regions")
    all_rows: tuple[Rows, ...] = tuple([] for _ in files)
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
    """Return an image's row and planes with all outlines shifted outwards by ``px``, or inwards if ``px`` is negative.
    The edge of the image is not an outline. Instances grow only into the background."""
    x_min, y_min, x_max, y_max = row["extent"]
    window, square = np.s_[y_min:y_max, x_min:x_max], np.ones((2 * abs(px) + 1,) * 2, np.uint8)

    def shifted(plane: np.ndarray, *, has_numbers: bool) -> np.ndarray:
        part = np.ascontiguousarray(plane[window]).astype(plane.dtype if has_numbers else np.uint8)
        most, least = cv2.dilate(part, square), cv2.erode(part, square)
        new_plane = np.zeros_like(plane)
        new_plane[window] = np.where(part > 0, part, most) if px > 0 else np.where(least == most, part, 0)
        return new_plane

    masks = {label: shifted(plane, has_numbers=False) for label, plane in planes.mask.items()}
    numbers = None if planes.instances is None else shifted(planes.instances, has_numbers=True)
    boxes = row["boxes"] and [_shift_box(box, row["extent"], px) for box in row["boxes"]]
    return dict(row) | {"boxes": boxes}, Planes(planes.picture, masks, numbers, planes.zones)


def _shift_box(box: Mapping, extent: tuple[int, int, int, int], px: int) -> dict:
    shifted_box = dict(box)
    for name, edge, way, limit in zip(CORNERS, extent, (-1, -1, 1, 1), (max, max, min, min), strict=True):
        shifted_box[name] = edge if box[name] == edge else limit(box[name] + way * px, edge)
    for low, high in (("x1", "x2"), ("y1", "y2")):
        if shifted_box[high] <= shifted_box[low]:  # collapsed to its centre
            shifted_box[low] = shifted_box[high] = (box[low] + box[high]) / 2
    return shifted_box
