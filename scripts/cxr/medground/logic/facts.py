"""Facts about a source (one set of images with masks), and readers of tables that several stages share."""

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table

Row = TypeVar("Row", bound=Mapping)
File = TypeVar("File")
GRID = 1000
GRID_CORNERS = ("gx1", "gy1", "gx2", "gy2")  # column names of a box on the grid of 1000
FACTS = "facts"  # shard attribute that holds the facts as JSON
MANY = 5  # number of candidates above which an image gets twice as many queries


@dataclass(frozen=True)
class Facts:
    """Facts about a source, stored in its shards. ``labels``: its classes in the order of the array ``mask``.
    ``classes``: {class: its settings, such as nouns}. ``fields``: names of further arrays in the shards. ``zones``:
    lung zones in the order of the array ``zones``. ``allow``: words that queries may use although they belong to
    another image domain. ``boxes_only``: whether the source has boxes, not masks."""

    labels: Sequence[str]
    classes: Mapping[str, Mapping]
    fields: Sequence[str] = ()
    zones: Sequence[str] = ()
    allow: Sequence[str] = ()
    modality: str = ""
    boxes_only: bool = False

    @classmethod
    def from_shard(cls, shard: Shard) -> "Facts":
        """Return the facts that an open shard stores."""
        return cls(**json.loads(shard.attrs[FACTS]))

    @classmethod
    def read(cls, path: str) -> "Facts":
        """Return the facts that the shard at ``path`` stores."""
        with Shard(path) as shard:
            return cls.from_shard(shard)


@dataclass(frozen=True)
class Planes:
    """Arrays of one image: picture uint8 (S, S, 3), masks {class: bool (S, S)}, instances uint16 (S, S) or None, and
    zones {name: bool (S, S)}."""

    picture: np.ndarray
    mask: Mapping[str, np.ndarray]
    instances: np.ndarray | None = None
    zones: Mapping[str, np.ndarray] = field(default_factory=dict)


def read_planes(shard: Shard, facts: Facts, image_id: str) -> Planes:
    """Read the arrays of an image from a shard. Raises StoreError if they are damaged."""
    masks = dict(zip(facts.labels, shard.get("mask", image_id), strict=True))
    instances = shard.get("instances", image_id) if "instances" in facts.fields else None
    zones = dict(zip(facts.zones, shard.get("zones", image_id), strict=True)) if "zones" in facts.fields else {}
    return Planes(shard.get("picture", image_id), masks, instances, zones)


def count_queries(num_candidates: int, per_image: int) -> int:
    """Return how many queries an image gets: ``per_image``, or twice as many if over five regions may be answers."""
    return 2 * per_image if num_candidates > MANY else per_image


def read_images(path: str | Path) -> dict[str, dict]:
    """Return {image_id: row} of a source's table of images."""
    return {row["image_id"]: row for row in read_table(path).iter_rows(named=True)}


def group_by_image(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return {image id: its rows, in their order}. An image without rows gives []."""
    rows_by_image: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        rows_by_image[row["image_id"]].append(row)
    return rows_by_image


def read_regions(path: str | Path) -> dict[str, list[dict]]:
    """Return {image id: rows of its regions} from a shard's table. An image without regions gives []."""
    return group_by_image(read_table(path).iter_rows(named=True))


def paths_by_source(names: Sequence[str], paths: Sequence[File]) -> Iterator[tuple[str, Sequence[File]]]:
    """Yield (source, its files). ``paths`` lists equally many files for each source, in the order of ``names``."""
    count = len(paths) // max(1, len(names))
    return ((name, paths[at * count : (at + 1) * count]) for at, name in enumerate(names))


def read_pictures(
    names: Sequence[str], regions: Sequence[str], sources: Sequence[str], keys: Container[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], np.ndarray, list[dict]]]:
    """Yield ((source, image id), pixels, rows of its regions) for all images in ``keys``. ``names``: sources.
    ``regions`` and ``sources``: paths of tables and of shards, equally many per source."""
    for source, files in paths_by_source(names, list(zip(regions, sources, strict=True))):
        for table, path in files:
            rows_by_image = read_regions(table)
            with Shard(path) as shard:
                for image_id in (name for name in shard.ids if (source, name) in keys):
                    yield (source, image_id), shard.get("picture", image_id), rows_by_image[image_id]


def find_answer(answers: Mapping[str, dict], subject: str, name: str, stage: str) -> dict:
    """Return the line with a model's answer about an image or query. ``subject`` is "image" or "query", and ``name``
    its id. Raises UserError if there is no answer. ``stage``: "queries" or "verification", the stage that asked."""
    if name not in answers:
        rule = f"medground_{stage}_told"
        raise UserError(f"{rule} has no answer for the {subject} {name}: ask again with `snakemake --forcerun {rule}`")
    return answers[name]


def keep_audited(lines: Sequence[Mapping], audit: str) -> list[Mapping]:
    """Return the lines of the queries that experts accepted. ``audit``: the table of their votes. Raises UserError if a
    vote is about a query that is not in ``lines``."""
    votes = read_table(audit)
    if missing_ids := set(votes["query_id"]) - {line["query_id"] for line in lines}:
        raise UserError(
            f"medground.audit has votes on {len(missing_ids)} queries that are no longer in the dataset, such as "
            f"{min(missing_ids)}: review the queries again"
        )
    accepted_ids = set(votes.filter("accepted")["query_id"])
    return [line for line in lines if line["query_id"] in accepted_ids]
