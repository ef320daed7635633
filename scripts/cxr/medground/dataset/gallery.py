"""Pictures of accepted and rejected queries and of sensitivity pairs: numbered candidates, the answer marked."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np

from cxr.base.atomic import whole
from cxr.base.hdf5 import Shard
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.llm.guards import harmless
from cxr.plotting.encoding import encoded
from cxr.plotting.numbered import framed

SIDES = ("x1", "y1", "x2", "y2")
ANSWERS = ((230, 159, 0), (0, 200, 140))
"""Red, green, blue of the answers of one query or two."""
SEEN = 120
"""Characters that are shown of what a language model observed."""
WIDTH = 520
"""Side of a picture of the gallery, px."""


@dataclass(frozen=True)
class GalleryOptions:
    """each: pictures of each source (accepted), reason (rejected) and source (pairs); quality: of JPEG."""

    each: int
    quality: int
    seed: int
    sources: list[str]
    shards: list[str]


@dataclass(frozen=True)
class Case:
    """What is shown. kind: accepted, rejected or pair; lines: one query, or the two of a pair."""

    kind: str
    source: str
    image_id: str
    lines: tuple[Mapping, ...]
    told: Mapping[str, str] = field(default_factory=dict)


def run(
    *, accepted: list[str], made: list[str], rejected: str, sensitivity: str, regions: list[str], sources: list[str],
    folder: str, options: GalleryOptions,
) -> None:  # fmt: skip
    """Write ``gallery.jsonl`` and its pictures into ``folder``.

    ``accepted`` and ``made``: accepted lines and candidates; ``rejected``, ``sensitivity``: rejected queries and
    pairs; ``regions``, ``sources``: of each source and shard.
    """
    held = [line for path in accepted for line in read_lines(path)]
    every = {line["query_id"]: line for path in made for line in read_lines(path)}
    cases = [
        *_accepted(held, options), *_rejected(read_table(rejected).to_dicts(), every, options),
        *_pairs(list(read_lines(sensitivity)), {line["query_id"]: line for line in held}, options),
    ]  # fmt: skip
    images = _images({(case.source, case.image_id) for case in cases}, regions, sources, options)
    rows = []
    with whole(folder) as into:
        for number, case in enumerate(cases):
            name = f"{case.kind}-{number:02d}.jpg"
            answers = [line["regions"] for line in case.lines]
            drawn = picture(*images[case.source, case.image_id], answers)
            data = encoded(".jpg", drawn[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, options.quality])
            (into / name).write_bytes(data)
            rows.append(_row(case, name, hashlib.sha256(data).hexdigest()[:16]))
        write_lines(into / "gallery.jsonl", rows)


def _row(case: Case, name: str, digest: str) -> dict:
    first = case.lines[0]
    shown = {"kind": case.kind, "file": name, "digest": digest, "source": case.source, "image_id": case.image_id}
    shown |= {"split": first["split"], "trivial": first.get("trivial", False)}
    queries = [{"query": line["query"], "regions": [at + 1 for at in line["regions"]]} for line in case.lines]
    return shown | {"queries": queries} | dict(case.told)


def _by(rows: Sequence[Mapping], names: tuple[str, ...], options: GalleryOptions) -> Iterator[Mapping]:
    """Yield the first ``each`` rows of every group, by the hash of their ids, at most one of an image."""
    groups: dict[tuple, list] = defaultdict(list)
    for row in sorted(
        rows, key=lambda row: stable_hash(options.seed, "gallery", row.get("query_id", row.get("first")))
    ):
        held = groups[tuple(row[name] for name in names)]
        if len(held) < options.each and row["image_id"] not in {one["image_id"] for one in held}:
            held.append(row)
    for key in sorted(groups):
        yield from groups[key]


def _accepted(lines: Sequence[Mapping], options: GalleryOptions) -> Iterator[Case]:
    plain = [line for line in lines if not line["trivial"]] or list(lines)
    for line in _by(plain, ("source",), options):
        checks = line["checks"]
        told = {"verdict": checks["verdict"], "judge": checks["judge"], "reason": _measured(checks)}
        yield Case("accepted", line["source"], line["image_id"], (line,), told)


def _measured(checks: Mapping) -> str:
    """Return what the checks read and measured, in words."""
    parts = [f"read: {', '.join(checks['read'])}"] if checks["read"] else []
    parts += [f"order: {checks['ordinal']}"] if checks["ordinal"] else []
    parts += [f"not read: {', '.join(checks['unread'])}"] if checks["unread"] else []
    effects = [f"{one['effect']:+.1f}" for one in checks["observed"] if one.get("effect") is not None]
    parts += [f"contrast of the boxes: {', '.join(effects)} SD"] if effects else []
    seen = [harmless(one["observed"])[:SEEN] for one in checks["observed"] if one.get("observed")]
    return "; ".join([*parts, *(f"the judge saw: {words}" for words in seen)])


def _rejected(rows: Sequence[Mapping], every: Mapping[str, Mapping], options: GalleryOptions) -> Iterator[Case]:
    known = [row for row in rows if row["query_id"] in every and every[row["query_id"]].get("regions")]
    for row in _by(known, ("stage", "reason"), options):
        told = {"verdict": f"rejected by stage {row['stage']}", "reason": f"{row['reason']} {row['detail']}".strip()}
        yield Case("rejected", row["source"], row["image_id"], (every[row["query_id"]],), told)


def _pairs(pairs: Sequence[Mapping], known: Mapping[str, Mapping], options: GalleryOptions) -> Iterator[Case]:
    for pair in _by(pairs, ("source",), options):
        lines = known[pair["first"]], known[pair["second"]]
        told = {"verdict": "pair", "reason": "of one class" if pair["same_class"] else "of two classes"}
        yield Case("pair", pair["source"], pair["image_id"], lines, told)


def _images(
    wanted: set[tuple[str, str]], regions: Sequence[str], sources: Sequence[str], options: GalleryOptions
) -> dict[tuple[str, str], tuple[np.ndarray, list[Mapping]]]:
    """Return {(source, image): its picture and its candidates' rows}."""
    found, count = {}, len(options.shards)
    for number, (table, path) in enumerate(zip(regions, sources, strict=True)):
        source = options.sources[number // count]
        rows: dict[str, list] = defaultdict(list)
        for row in read_table(table).filter("candidate").iter_rows(named=True):
            if (source, row["image_id"]) in wanted:
                rows[row["image_id"]].append(row)
        with Shard(path) as shard:
            for image_id in shard.ids:
                if (source, image_id) in wanted:
                    found[source, image_id] = shard.get("picture", image_id), rows[image_id]
    return found


def picture(image: np.ndarray, candidates: Sequence[Mapping], answers: Sequence[Sequence[int]]) -> np.ndarray:
    """Return an image uint8 (WIDTH, WIDTH, 3), its candidates framed and numbered from 1, each answer in its colour."""
    colours = {region + 1: colour for answer, colour in zip(answers, ANSWERS, strict=False) for region in answer}
    boxes = {row["region"] + 1: [row[side] for side in SIDES] for row in candidates}
    return framed(image, boxes, colours, WIDTH, numbers=True)
