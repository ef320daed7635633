"""Images for people: a gallery of queries, and of pairs of queries about one image, and items for expert review."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import cv2
import numpy as np

from cxr.base.atomic import atomic_folder
from cxr.base.errors import UserError
from cxr.base.review_units import REVIEW_UNITS
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, read_table, write_lines, write_rows
from cxr.geometry.boxes import CORNERS
from cxr.llm.guards import neutralize
from cxr.medground.logic.facts import read_images, read_pictures
from cxr.plotting.encoding import encode_image
from cxr.plotting.numbered_boxes import draw_numbered_boxes

ANSWERS = ((230, 159, 0), (0, 200, 140))  # RGB colours of the answers of one or two queries
MAX_OBSERVED = 120  # longest observation of a language model in a caption, in characters
WIDTH = 520  # side of a picture of the gallery, px
EACH = 3  # images per source (accepted and pairs) and per reason (rejected)
QUESTION = "Does this query mean exactly the marked boxes?"
FRAME = 256  # pixels of the image's side for each pixel of a box's line width
Case = tuple[str, Sequence[Mapping], Mapping[str, str]]
"""(kind, query lines, captions) of a gallery image. The kind is ``accepted``, ``rejected`` or ``pair`` (of queries)."""


def run(
    *, accepted: list[str], queries: list[str], rejected: str, sensitivity: str, regions: list[str], sources: list[str],
    folder: str, source_names: list[str], quality: int, seed: int,
) -> None:  # fmt: skip
    """Write ``gallery.jsonl`` and its images, JPEG files of this ``quality``, to ``folder``. ``accepted`` and
    ``queries``: files of accepted and of all queries. ``sensitivity``: file of pairs of queries about one image."""
    accepted_lines = [line for path in accepted for line in read_lines(path)]
    line_by_id = {line["query_id"]: line for path in queries for line in read_lines(path)}
    pairs = list(read_lines(sensitivity))
    cases = list(_list_cases(accepted_lines, read_table(rejected).to_dicts(), pairs, line_by_id, seed))
    keys = {(lines[0]["source"], lines[0]["image_id"]) for _, lines, _ in cases}
    images = {key: (picture, rows) for key, picture, rows in read_pictures(source_names, regions, sources, keys)}
    rows = []
    with atomic_folder(folder) as staging_dir:
        for number, (kind, lines, captions) in enumerate(cases):
            name, first = f"{kind}-{number:02d}.jpg", lines[0]
            framed_image = draw_case(*images[first["source"], first["image_id"]], [line["regions"] for line in lines])
            jpeg = encode_image(".jpg", framed_image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
            (staging_dir / name).write_bytes(jpeg)
            row = {"kind": kind, "file": name, "digest": hashlib.sha256(jpeg).hexdigest()[:16]}
            row |= {name: first[name] for name in ("source", "image_id", "split")}
            row["trivial"] = first.get("trivial", False)
            row["queries"] = [{"query": line["query"], "regions": [at + 1 for at in line["regions"]]} for line in lines]
            rows.append(row | dict(captions))
        write_lines(staging_dir / "gallery.jsonl", rows)


def _sample_by_group(rows: Sequence[Mapping], names: tuple[str, ...], seed: int) -> Iterator[Mapping]:
    """Yield up to :data:`EACH` random rows per group, at most one per image. A group shares the values of ``names``."""
    groups: dict[tuple, list] = defaultdict(list)
    for row in sorted(rows, key=lambda row: stable_hash(seed, "gallery", row.get("query_id", row.get("first")))):
        group = groups[tuple(row[name] for name in names)]
        if len(group) < EACH and row["image_id"] not in {member["image_id"] for member in group}:
            group.append(row)
    for key in sorted(groups):
        yield from groups[key]


def _list_cases(
    accepted: Sequence[Mapping], rejected: Sequence[Mapping], pairs: Sequence[Mapping], lines: Mapping, seed: int
) -> Iterator[Case]:
    """Yield the gallery's images: accepted queries, rejected queries, then pairs. ``lines``: {query id: its line}."""
    for line in _sample_by_group([line for line in accepted if not line["trivial"]] or accepted, ("source",), seed):
        captions = {name: line["checks"][name] for name in ("verdict", "judge")}
        yield "accepted", (line,), captions | {"reason": _describe_checks(line["checks"])}
    rows_with_regions = [row for row in rejected if lines.get(row["query_id"], {}).get("regions")]
    for row in _sample_by_group(rows_with_regions, ("stage", "reason"), seed):
        reason = f"{row['reason']} {row['detail']}".strip()
        captions = {"verdict": f"rejected by stage {row['stage']}", "reason": reason}
        yield "rejected", (lines[row["query_id"]],), captions
    for pair in _sample_by_group(pairs, ("source",), seed):
        captions = {"verdict": "pair", "reason": "of one class" if pair["same_class"] else "of two classes"}
        yield "pair", (lines[pair["first"]], lines[pair["second"]]), captions


def _describe_checks(checks: Mapping) -> str:
    observed = checks["observed"]
    effects = [f"{each['effect']:+.1f}" for each in observed if each.get("effect") is not None]
    parts = {
        "read: ": ", ".join(checks["read"]), "order: ": checks["ordinal"], "not read: ": ", ".join(checks["unread"]),
        "contrast of the boxes: ": f"{', '.join(effects)} SD" if effects else "",
    }  # fmt: skip
    texts = [name + text for name, text in parts.items() if text]
    observations = (each["observed"] for each in observed if each.get("observed"))
    return "; ".join([*texts, *(f"the judge saw: {neutralize(text)[:MAX_OBSERVED]}" for text in observations)])


def draw_case(image: np.ndarray, rows: Sequence[Mapping], answers: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the image, uint8 (WIDTH, WIDTH, 3), with the numbered boxes of all regions that may be answers. Each of
    the ``answers``, lists of regions, has its own colour. ``rows``: the rows of the image's regions."""
    colours = {region + 1: colour for answer, colour in zip(answers, ANSWERS, strict=False) for region in answer}
    boxes = {row["region"] + 1: [row[side] for side in CORNERS] for row in rows if row["candidate"]}
    return draw_numbered_boxes(image, boxes, colours, WIDTH, show_numbers=True)


def run_units(
    *, lines: str, images: list[str], regions: list[str], sources: list[str], units: str, source_names: list[str],
    queries: int, seed: int,
) -> None:  # fmt: skip
    """Write the table ``units`` of queries that experts review. ``lines``: file of test queries. ``queries``: number of
    queries that are drawn from it at random, or 0 for all. Raises UserError if the file has no query."""
    all_lines = sorted(read_lines(lines), key=lambda line: stable_hash(seed, "audit", line["query_id"]))
    if not all_lines:
        raise UserError(f"{lines} has no query, so there is nothing to review: add a source with a test split")
    row_by_image = dict(zip(source_names, map(read_images, images), strict=True))
    lines_by_key = defaultdict(list)
    for line in all_lines[: queries or None]:
        lines_by_key[line["source"], line["image_id"]].append(line)
    rows = []
    for key, picture, region_rows in read_pictures(source_names, regions, sources, lines_by_key):
        candidates, image = [row for row in region_rows if row["candidate"]], row_by_image[key[0]][key[1]]
        is_sided, frames, png = bool(image["radiological"]), np.zeros(picture.shape[:2], np.uint8), _png(picture)
        hint = "Left and right are the patient's." if is_sided else ""
        for row in candidates:
            corners = (row["x1"], row["y1"]), (row["x2"] - 1, row["y2"] - 1)
            cv2.rectangle(frames, *corners, 255, max(1, round(len(frames) / FRAME)))
        frames_png = _png(frames)
        for line in lines_by_key[key]:
            facts = [["Query", line["query"]], ["Kind of image", image["modality"] or image["domain"]]]
            mask = np.zeros_like(frames)
            for row in candidates:
                if row["region"] in line["regions"]:
                    mask[row["y1"] : row["y2"], row["x1"] : row["x2"]] = 255
            rows.append((line["query_id"], png, _png(mask), QUESTION, hint, facts, "", "", frames_png, is_sided))
    write_rows(units, sorted(rows, key=lambda row: row[0]), REVIEW_UNITS)


def _png(image: np.ndarray) -> bytes:
    """Encode an image (H, W, 3: R, G, B), or a mask (H, W) with one bit per pixel, as PNG."""
    bits = (cv2.IMWRITE_PNG_BILEVEL, 1) if image.ndim == 2 else ()
    return encode_image(".png", image[..., ::-1] if image.ndim == 3 else image, [cv2.IMWRITE_PNG_COMPRESSION, 6, *bits])
