"""Queries of the test split for experts: each with its image, its boxes and, on a key press, all candidates."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import cv2
import numpy as np

from cxr.base.errors import UserError
from cxr.base.review_units import REVIEW_UNITS
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, write_rows
from cxr.geometry.boxes import CORNERS
from cxr.medground.logic.facts import read_images, read_pictures
from cxr.plotting.encoding import encode_image

QUESTION = "Does this query mean exactly the marked boxes?"
FRAME = 256
"""Image side per pixel of a frame's line width."""


def run(
    *, lines: str, images: list[str], regions: list[str], sources: list[str], units: str, source_names: list[str],
    queries: int, seed: int,
) -> None:  # fmt: skip
    """Write the table of :data:`cxr.base.review_units.REVIEW_UNITS` of the drawn queries; the unit is the query's id.

    ``images``: a table for each source; ``regions`` and ``sources``: for each source and shard; ``queries``: number to
    sample, 0 for all. Raises UserError where the test split has no query.
    """
    sampled_lines = sample_lines(list(read_lines(lines)), queries, seed)
    if not sampled_lines:
        raise UserError(f"{lines} holds no query, so there is nothing to audit: give a source with a test split")
    row_by_image = dict(zip(source_names, map(read_images, images), strict=True))
    lines_by_key = defaultdict(list)
    for line in sampled_lines:
        lines_by_key[line["source"], line["image_id"]].append(line)
    rows = []
    for key, picture, region_rows in read_pictures(source_names, regions, sources, lines_by_key):
        candidates, shape = [row for row in region_rows if row["candidate"]], picture.shape[:2]
        png, frames_png = _png(picture[..., ::-1]), _png(draw_frames(candidates, shape), bits=True)
        image = row_by_image[key[0]][key[1]]
        rows += [_row(line, png, frames_png, candidates, shape, image) for line in lines_by_key[key]]
    write_rows(units, sorted(rows, key=lambda row: row[0]), REVIEW_UNITS)


def sample_lines(lines: Sequence[dict], count: int, seed: int) -> list[dict]:
    """Return the first ``count`` lines by the hash of their ids; all for 0."""
    order = sorted(lines, key=lambda line: stable_hash(seed, "audit", line["query_id"]))
    return order[:count] if count else order


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
        x1, y1, x2, y2 = (row[name] for name in CORNERS)
        plane[y1:y2, x1:x2] = 255
    return plane


def draw_frames(rows: Iterable[Mapping], shape: tuple[int, int]) -> np.ndarray:
    """Return the outlines of regions' boxes, uint8 (H, W), 255 on the lines."""
    plane = np.zeros(shape, np.uint8)
    for row in rows:
        x1, y1, x2, y2 = (row[name] for name in CORNERS)
        cv2.rectangle(plane, (x1, y1), (x2 - 1, y2 - 1), 255, max(1, round(shape[0] / FRAME)))
    return plane


def _png(image: np.ndarray, bits: bool = False) -> bytes:
    parameters = [cv2.IMWRITE_PNG_COMPRESSION, 6, *((cv2.IMWRITE_PNG_BILEVEL, 1) if bits else ())]
    return encode_image(".png", image, parameters)
