"""Queries of the test split for experts: each with its image, its boxes and, on a key press, all candidates."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import polars as pl

from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.review_units import REVIEW_UNITS
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, read_table, write_table
from cxr.plotting.encoding import encode_image

QUESTION = "Does this query mean exactly the marked boxes?"
SIDES = ("x1", "y1", "x2", "y2")
FRAME = 256
"""Image side per pixel of a frame's line width."""


@dataclass(frozen=True)
class AuditUnitsOptions:
    """queries: number to sample, 0 for all; sources: names, in the order of the files."""

    queries: int
    seed: int
    sources: list[str]
    shards: list[str]


def run(
    *, lines: str, images: list[str], regions: list[str], sources: list[str], units: str, options: AuditUnitsOptions
) -> None:
    """Write the table of :data:`cxr.base.review_units.REVIEW_UNITS` of the drawn queries; the unit is the query's id.

    ``images``: a table for each source; ``regions`` and ``sources``: for each source and shard. Raises UserError where
    the test split has no query.
    """
    sampled_lines = sample_lines(list(read_lines(lines)), options)
    if not sampled_lines:
        raise UserError(f"{lines} holds no query, so there is nothing to audit: give a source with a test split")
    lines_by_image: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for line in sampled_lines:
        lines_by_image[line["source"], line["image_id"]].append(line)
    rows, count = [], len(options.shards)
    for at, source in enumerate(options.sources):
        facts = {row["image_id"]: row for row in read_table(images[at]).iter_rows(named=True)}
        for number in range(at * count, (at + 1) * count):
            candidates_by_image = defaultdict(list)
            for row in read_table(regions[number]).filter("candidate").iter_rows(named=True):
                candidates_by_image[row["image_id"]].append(row)
            with Shard(sources[number]) as shard:
                for image_id in sorted(
                    {name for line_source, name in lines_by_image if line_source == source} & set(shard.ids)
                ):
                    picture, candidates = shard.get("picture", image_id), candidates_by_image[image_id]
                    frames_png = _png(draw_frames(candidates, picture.shape[:2]), bits=True)
                    png = _png(picture[..., ::-1])
                    for line in lines_by_image[source, image_id]:
                        rows.append(_row(line, png, frames_png, candidates, picture.shape[:2], facts[image_id]))
    write_table(units, pl.DataFrame(rows, schema=schema(REVIEW_UNITS), orient="row").sort("unit"), REVIEW_UNITS)


def sample_lines(lines: Sequence[dict], options: AuditUnitsOptions) -> list[dict]:
    """Return the first ``options.queries`` lines by the hash of their ids; all for 0."""
    order = sorted(lines, key=lambda line: stable_hash(options.seed, "audit", line["query_id"]))
    return order[: options.queries] if options.queries else order


def _row(
    line: Mapping, png: bytes, frames_png: bytes, candidates: list[dict], shape: tuple[int, int], image: Mapping
) -> tuple:
    answer = [row for row in candidates if row["region"] in line["regions"]]
    facts = [["Query", line["query"]], ["Kind of image", image["modality"] or image["domain"]]]
    hint = "Left and right are the patient's." if image["radiological"] else ""
    mask = _png(fill_boxes(answer, shape), bits=True)
    return line["query_id"], png, mask, QUESTION, hint, facts, "", "", frames_png, bool(image["radiological"])


def fill_boxes(rows: Iterable[Mapping], shape: tuple[int, int]) -> np.ndarray:
    """Return the boxes of regions as a mask, uint8 (H, W), 255 inside."""
    plane = np.zeros(shape, np.uint8)
    for row in rows:
        x1, y1, x2, y2 = (row[name] for name in SIDES)
        plane[y1:y2, x1:x2] = 255
    return plane


def draw_frames(rows: Iterable[Mapping], shape: tuple[int, int]) -> np.ndarray:
    """Return the outlines of regions' boxes, uint8 (H, W), 255 on the lines."""
    plane = np.zeros(shape, np.uint8)
    for row in rows:
        x1, y1, x2, y2 = (row[name] for name in SIDES)
        cv2.rectangle(plane, (x1, y1), (x2 - 1, y2 - 1), 255, max(1, round(shape[0] / FRAME)))
    return plane


def _png(image: np.ndarray, bits: bool = False) -> bytes:
    parameters = [cv2.IMWRITE_PNG_COMPRESSION, 6, *((cv2.IMWRITE_PNG_BILEVEL, 1) if bits else ())]
    return encode_image(".png", image, parameters)
