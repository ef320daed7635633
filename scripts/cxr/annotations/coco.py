"""COCO's JSON: boxes, polygons or run lengths. A phrase is in ``label_text``, as in MS-CXR's JSON.

A category's label is its ``name``; where it has a ``finding``, as those of SemiSynCXR have, it is that.
"""

import json
from pathlib import Path

from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import from_sides, sides
from cxr.base.errors import UserError

WHAT = "COCO JSON with boxes, polygons or run lengths"
HOLDS = ("box", "drawn", "phrase", "size", "split")
LESIONS: dict[str, str] = {}


def read(key: str, path: Path) -> Annotations:
    """Read the JSON; every image that it lists counts as read by an annotator. Raises UserError."""
    try:
        with open(path, encoding="utf-8") as file:
            held = json.load(file)
        labels = {row["id"]: row.get("finding") or row["name"] for row in held["categories"]}
        images = {row["id"]: row for row in held["images"]}
        found = [_region(row, images[row["image_id"]], labels[row["category_id"]]) for row in held["annotations"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{key} is {str(path)!r}, which is no whole COCO JSON ({what}): check it") from None
    return Annotations(found, {row["file_name"] for row in images.values()})


def _region(row: dict, image: dict, label: str) -> Annotation:
    return Annotation(
        image["file_name"],
        label,
        from_sides(row["bbox"]) if row.get("bbox") else None,
        row.get("segmentation"),
        size=(int(image["height"]), int(image["width"])) if image.get("height") and image.get("width") else None,
        phrase=row.get("label_text") or "",
        split=image.get("split") or "",
    )


def write(path: Path, held: Annotations) -> None:
    """Write the JSON. An image's size and split are those of its first region. Masks in files are not supported."""
    firsts = {one.image: one for one in reversed(held.regions)}
    numbers = {image: number for number, image in enumerate(sorted(held.seen | firsts.keys()), 1)}
    labels = {label: number for number, label in enumerate(sorted({one.label for one in held.regions}), 1)}
    images = [{"id": number, "file_name": image} | _facts(firsts.get(image)) for image, number in numbers.items()]
    found = [
        {"id": number, "image_id": numbers[one.image], "category_id": labels[one.label]} | _told(one)
        for number, one in enumerate(held.regions, 1)
    ]
    categories = [{"id": number, "name": label} for label, number in labels.items()]
    text = json.dumps({"categories": categories, "images": images, "annotations": found})
    path.write_text(text, encoding="utf-8")


def _facts(first: Annotation | None) -> dict:
    size = {"height": first.size[0], "width": first.size[1]} if first and first.size else {}
    return size | ({"split": first.split} if first and first.split else {})


def _told(one: Annotation) -> dict:
    parts = {"bbox": list(sides(one.box)) if one.box else None, "segmentation": one.drawn, "label_text": one.phrase}
    return {name: value for name, value in parts.items() if value}
