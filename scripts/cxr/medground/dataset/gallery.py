"""Gallery of accepted and rejected queries and of sensitivity pairs: numbered candidates, the answer highlighted."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np

from cxr.base.atomic import atomic_folder
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.geometry.boxes import CORNERS
from cxr.llm.guards import neutralize
from cxr.medground.logic.facts import read_pictures
from cxr.plotting.encoding import encode_image
from cxr.plotting.numbered_boxes import draw_numbered_boxes

ANSWERS = ((230, 159, 0), (0, 200, 140))
"""RGB colours of the answers of one or two queries."""
MAX_OBSERVED = 120
"""Longest observation of a language model in a caption, in characters."""
WIDTH = 520
"""Side of a picture of the gallery, px."""
EACH = 3
"""Images per source (accepted and pairs) and per reason (rejected)."""


@dataclass(frozen=True)
class Case:
    """One image of the gallery. kind: accepted, rejected or pair; lines: one query, or the two of a pair."""

    kind: str
    source: str
    image_id: str
    lines: tuple[Mapping, ...]
    captions: Mapping[str, str] = field(default_factory=dict)


def run(
    *, accepted: list[str], queries: list[str], rejected: str, sensitivity: str, regions: list[str], sources: list[str],
    folder: str, source_names: list[str], quality: int, seed: int,
) -> None:  # fmt: skip
    """Write ``gallery.jsonl`` and its images, JPEG of ``quality``, into ``folder``.

    ``accepted`` and ``queries``: accepted lines and candidates; ``rejected``, ``sensitivity``: rejected queries and
    pairs; ``regions``, ``sources``: of each source and shard.
    """
    accepted_lines = [line for path in accepted for line in read_lines(path)]
    line_by_id = {line["query_id"]: line for path in queries for line in read_lines(path)}
    cases = [
        *_accepted(accepted_lines, seed), *_rejected(read_table(rejected).to_dicts(), line_by_id, seed),
        *_pairs(list(read_lines(sensitivity)), {line["query_id"]: line for line in accepted_lines}, seed),
    ]  # fmt: skip
    keys = {(case.source, case.image_id) for case in cases}
    images = {key: (picture, rows) for key, picture, rows in read_pictures(source_names, regions, sources, keys)}
    rows = []
    with atomic_folder(folder) as staging_dir:
        for number, case in enumerate(cases):
            name = f"{case.kind}-{number:02d}.jpg"
            answers = [line["regions"] for line in case.lines]
            framed_image = draw_case(*images[case.source, case.image_id], answers)
            jpeg = encode_image(".jpg", framed_image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
            (staging_dir / name).write_bytes(jpeg)
            rows.append(_row(case, name, hashlib.sha256(jpeg).hexdigest()[:16]))
        write_lines(staging_dir / "gallery.jsonl", rows)


def _row(case: Case, name: str, digest: str) -> dict:
    first = case.lines[0]
    row = {"kind": case.kind, "file": name, "digest": digest, "source": case.source, "image_id": case.image_id}
    row |= {"split": first["split"], "trivial": first.get("trivial", False)}
    queries = [{"query": line["query"], "regions": [at + 1 for at in line["regions"]]} for line in case.lines]
    return row | {"queries": queries} | dict(case.captions)


def _sample_by_group(rows: Sequence[Mapping], names: tuple[str, ...], seed: int) -> Iterator[Mapping]:
    """Yield the first :data:`EACH` rows of every group, by the hash of their ids, at most one per image."""
    groups: dict[tuple, list] = defaultdict(list)
    for row in sorted(rows, key=lambda row: stable_hash(seed, "gallery", row.get("query_id", row.get("first")))):
        group = groups[tuple(row[name] for name in names)]
        if len(group) < EACH and row["image_id"] not in {member["image_id"] for member in group}:
            group.append(row)
    for key in sorted(groups):
        yield from groups[key]


def _accepted(lines: Sequence[Mapping], seed: int) -> Iterator[Case]:
    plain = [line for line in lines if not line["trivial"]] or list(lines)
    for line in _sample_by_group(plain, ("source",), seed):
        checks = line["checks"]
        captions = {"verdict": checks["verdict"], "judge": checks["judge"], "reason": _describe_checks(checks)}
        yield Case("accepted", line["source"], line["image_id"], (line,), captions)


def _describe_checks(checks: Mapping) -> str:
    """Return the claims and measurements of the checks in words."""
    observed = checks["observed"]
    effects = [f"{each['effect']:+.1f}" for each in observed if each.get("effect") is not None]
    parts = {
        "read: ": ", ".join(checks["read"]), "order: ": checks["ordinal"], "not read: ": ", ".join(checks["unread"]),
        "contrast of the boxes: ": f"{', '.join(effects)} SD" if effects else "",
    }  # fmt: skip
    words = [neutralize(each["observed"])[:MAX_OBSERVED] for each in observed if each.get("observed")]
    return "; ".join(
        [*(name + text for name, text in parts.items() if text), *(f"the judge saw: {text}" for text in words)]
    )


def _rejected(rows: Sequence[Mapping], line_by_id: Mapping[str, Mapping], seed: int) -> Iterator[Case]:
    rows_with_regions = [row for row in rows if line_by_id.get(row["query_id"], {}).get("regions")]
    for row in _sample_by_group(rows_with_regions, ("stage", "reason"), seed):
        reason = f"{row['reason']} {row['detail']}".strip()
        captions = {"verdict": f"rejected by stage {row['stage']}", "reason": reason}
        yield Case("rejected", row["source"], row["image_id"], (line_by_id[row["query_id"]],), captions)


def _pairs(pairs: Sequence[Mapping], line_by_id: Mapping[str, Mapping], seed: int) -> Iterator[Case]:
    for pair in _sample_by_group(pairs, ("source",), seed):
        lines = line_by_id[pair["first"]], line_by_id[pair["second"]]
        captions = {"verdict": "pair", "reason": "of one class" if pair["same_class"] else "of two classes"}
        yield Case("pair", pair["source"], pair["image_id"], lines, captions)


def draw_case(image: np.ndarray, rows: Sequence[Mapping], answers: Sequence[Sequence[int]]) -> np.ndarray:
    """Return an image uint8 (WIDTH, WIDTH, 3) with numbered candidates (from 1), each answer in its colour."""
    colours = {region + 1: colour for answer, colour in zip(answers, ANSWERS, strict=False) for region in answer}
    boxes = {row["region"] + 1: [row[side] for side in CORNERS] for row in rows if row["candidate"]}
    return draw_numbered_boxes(image, boxes, colours, WIDTH, show_numbers=True)
