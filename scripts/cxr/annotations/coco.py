"""COCO JSON with boxes, polygons or run lengths. Phrases are read from ``label_text``, as in MS-CXR's JSON. The label
of a category is its ``finding`` if it has one, as in SemiSynCXR's exports, otherwise its ``name``."""

import json
import logging
from pathlib import Path
from typing import Any

from cxr.annotations.regions import UNLISTED, Annotation, Annotations
from cxr.annotations.tabular import box_from_sides, parse_numbers, refuse_damaged
from cxr.base.errors import count_phrase
from cxr.base.ids import clean_id

log = logging.getLogger("cxr")
WHAT = "COCO JSON with boxes, polygons or run-length masks"


def read(key: str, path: Path) -> Annotations:
    """Read the JSON file ``path``, which the setting ``key`` names. All listed images count as annotated.

    If the file does not list an annotation's image, the image's name is UNLISTED. If it does not list the category, the
    label is "". Raises UserError if the file is damaged."""
    with refuse_damaged(path, f"{key} is {str(path)!r}, which is not a complete COCO JSON"):
        content = json.loads(path.read_bytes())
        labels = {_normalise_id(row["id"]): str(row.get("finding") or row["name"]) for row in content["categories"]}
        images = {_normalise_id(row["id"]): row | {"file_name": str(row["file_name"])} for row in content["images"]}
        if len(images) < len(content["images"]) or len(labels) < len(content["categories"]):
            raise ValueError("two images or two categories have the same id")
        regions = [_parse_region(row, images, labels) for row in content["annotations"]]
    if orphans := sum(region.image == UNLISTED or not region.label for region in regions):
        number = count_phrase(orphans, "annotation names", "annotations name")
        log.warning("%s: %s an image or a category that %s does not list", key, number, path.name)
    return Annotations(regions, {row["file_name"] for row in images.values()})


def _normalise_id(value: object) -> str:
    """Return an id as text. The ids 7 and 7.0 are both "7", because some programs write ids as decimal numbers."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else clean_id(str(value))


def _parse_region(row: dict, images: dict[str, dict], labels: dict[str, str]) -> Annotation:
    image = images.get(_normalise_id(row.get("image_id")), {"file_name": UNLISTED})
    box = row.get("bbox")
    if isinstance(box, dict):
        box = [box.get(side) for side in ("x", "y", "width", "height")]
    size = parse_numbers(image.get(side) for side in ("height", "width"))
    return Annotation(
        image["file_name"],
        labels.get(_normalise_id(row.get("category_id")), ""),
        box_from_sides(box) if isinstance(box, list) and len(box) == 4 else None,
        _parse_segmentation(row.get("segmentation")),
        size=(int(size[0]), int(size[1])) if size and min(size) > 0 else None,
        phrase=row.get("label_text") or "",
        split=image.get("split") or "",
    )


def _parse_segmentation(segmentation: Any) -> dict | list | None:
    """Return run lengths unchanged, and polygons as flat lists x, y, x, y …. Points may also be given as pairs or as
    {x, y}. Polygons of fewer than three points are dropped. Return None if no polygon is left."""
    if not isinstance(segmentation, list) or not segmentation:
        return segmentation or None
    if any(isinstance(part, dict) and "counts" in part for part in segmentation):
        return segmentation[0] if len(segmentation) == 1 else segmentation
    first = segmentation[0]
    is_pair = isinstance(first, list) and len(first) == 2 and all(isinstance(part, int | float) for part in first)
    polygons = segmentation if isinstance(first, list) and not is_pair else [segmentation]
    flat_polygons = []
    for points in (polygon for polygon in polygons if isinstance(polygon, list)):
        pairs = ([point.get("x"), point.get("y")] if isinstance(point, dict) else point for point in points)
        flat = [part for pair in pairs for part in (pair if isinstance(pair, list) else [pair])]
        flat_polygons += [flat] if len(flat) > 4 else []
    return flat_polygons or None
