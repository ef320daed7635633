"""A source's images as the worlds that the resolver reads a text against."""

from pathlib import Path

import cv2
import numpy as np

from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from medground_resolver import World, boxed, names_of, things


def worlds(folder: Path, ids: set[str], least: int = 20, flip: bool = False) -> dict[str, World]:
    """Return {image_id: world} of some images of a source in ``folder``; ``flip``: pictures and masks mirrored."""
    import json

    images = {row["image_id"]: row for row in read_table(folder / "sources/images.parquet").iter_rows(named=True)}
    found = {}
    for path in sorted((folder / "sources").glob("*.h5")):
        with Shard(path) as shard:
            facts = json.loads(shard.attrs["facts"])
            for image_id in sorted(ids & set(shard.ids)):
                found[image_id] = _world(shard, facts, images[image_id], least, flip)
    return found


def _world(shard: Shard, facts: dict, image: dict, least: int, flip: bool) -> World:
    name, turn = image["image_id"], (lambda plane: plane[..., ::-1]) if flip else (lambda plane: plane)
    mask = turn(shard.get("mask", name) > 0)
    picture = shard.get("picture", name)
    side = picture.shape[0]
    left, top, right, bottom = image["extent"]
    extent = (side - right, top, side - left, bottom) if flip else (left, top, right, bottom)
    if facts["boxes_only"]:
        boxes = [(box["label"], *(box[edge] for edge in ("x1", "y1", "x2", "y2"))) for box in image["boxes"]]
        if flip:
            boxes = [(label, side - x2, y1, side - x1, y2) for label, x1, y1, x2, y2 in boxes]
        held = boxed(boxes, extent)
    else:
        planes = dict(zip(facts["labels"], mask, strict=True))
        grey = turn(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)) if image["domain"] != "cxr" else None
        numbers = turn(shard.get("instances", name)) if "instances" in facts["fields"] else None
        held = things(planes, planes.keys(), extent, least, numbers, grey)
    zones = {}
    if "zones" in facts["fields"]:
        held_zones = turn(shard.get("zones", name) > 0)
        usable = ("apical", "upper", "mid", "lung base")
        zones = {
            zone: plane
            for zone, plane in zip(facts["zones"], np.asarray(held_zones), strict=True)
            if zone.split(" ")[0] in ("left", "right") and any(word in zone for word in usable)
        }
    return World(held, names_of(facts["classes"]), side, extent, bool(image["radiological"]), zones)


def boxes_of(world: World, chosen: set[int]) -> set[tuple]:
    """Return the boxes of chosen regions."""
    return {world.things[one].box for one in chosen}
