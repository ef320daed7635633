"""Facts about a source, stored in its shards: classes, their words, and the fields of its images."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from cxr.base.hdf5 import Shard

FACTS = "facts"
"""Shard attribute that holds the facts as JSON."""


@dataclass(frozen=True)
class Facts:
    """labels: classes in the order of the field ``mask``; classes: {class: {one, many, parents, ask}}; fields: further
    fields of the images (instances, zones, …); zones: labels of the field ``zones``; allow: words exempt from the deny
    lists; touching: whether touching instances may have merged into one region.
    """

    labels: Sequence[str]
    classes: Mapping[str, Mapping]
    fields: Sequence[str] = ()
    zones: Sequence[str] = ()
    allow: Sequence[str] = ()
    touching: bool = False
    modality: str = ""
    boxes_only: bool = False

    def to_attrs(self) -> dict:
        """Return the shard attribute."""
        return {FACTS: asdict(self)}

    @classmethod
    def from_shard(cls, shard: Shard) -> "Facts":
        """Return the facts of an open shard."""
        return cls(**json.loads(shard.attrs[FACTS]))


@dataclass(frozen=True)
class Planes:
    """An image's picture uint8 (S, S, 3), masks {class: bool (S, S)}, instances uint16 (S, S) and zones (Z, S, S)."""

    picture: np.ndarray
    mask: Mapping[str, np.ndarray]
    instances: np.ndarray | None = None
    zones: Mapping[str, np.ndarray] = field(default_factory=dict)


def read_planes(shard: Shard, facts: Facts, image_id: str) -> Planes:
    """Return the planes of an image. Raises StoreError for a damaged chunk."""
    mask = shard.get("mask", image_id)
    zones = shard.get("zones", image_id) if "zones" in facts.fields else ()
    return Planes(
        shard.get("picture", image_id),
        dict(zip(facts.labels, mask, strict=True)),
        shard.get("instances", image_id) if "instances" in facts.fields else None,
        dict(zip(facts.zones, zones, strict=True)) if len(zones) else {},
    )
