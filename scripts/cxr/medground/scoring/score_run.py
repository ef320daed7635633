"""Score one run's answers to the test split."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import schema
from cxr.base.errors import UserError, refuse_empty
from cxr.base.tables import read_lines, read_table, write_table
from cxr.geometry.unions import union_ious
from cxr.medground.scoring.columns import BLIND, QUERIES, SCORES, SENSITIVITY
from cxr.medground.scoring.measures import both_right, matched_iou, means
from cxr.vlm.grounding import GRID, read_answer

Key = tuple[str, str]
"""Source and image."""
PARTS = {
    "all": pl.lit(True),
    "not_trivial": ~pl.col("trivial"),
    "not_by_class": ~pl.col("by_class"),
    "single": pl.col("kind") == "single",
    "subset": pl.col("kind") == "subset",
    "all_of_class": pl.col("kind") == "all",
}
CLASSES = {"all": (True, False), "same_class": (True,), "other_classes": (False,)}


@dataclass(frozen=True)
class ScoringOptions:
    """The settings ``medground.scoring``: thresholds of IoU, which queries count, failures, intervals."""

    tau: float
    taus: list
    test: str
    failed: str
    replicates: int
    interval: float
    seed: int


@dataclass(frozen=True)
class Blind:
    """What the blind answers are made of. candidates: {image: its candidates' boxes, the largest first}; mean_box:
    {source: of its training lines}.
    """

    candidates: Mapping[Key, np.ndarray]
    mean_box: Mapping[str, np.ndarray]

    def answers(self, key: Key) -> dict[str, np.ndarray]:
        """Return {baseline: its boxes} for an image; without those that there are none of."""
        held = self.candidates.get(key, np.zeros((0, 4), np.int64))
        found = {"largest": held[:1], "candidates": held, "picture": np.array([[0, 0, GRID, GRID]])}
        if key[0] in self.mean_box:
            found["mean_box"] = self.mean_box[key[0]][None]
        return {name: boxes for name, boxes in found.items() if len(boxes)}


def blind_of(regions: Sequence[pl.DataFrame], sources: Sequence[str], train: Sequence[Mapping]) -> Blind:
    """Return what the blind answers are made of; ``sources``: of each table of regions."""
    corners = ["gx1", "gy1", "gx2", "gy2"]
    candidates: dict[Key, np.ndarray] = {}
    for source, table in zip(sources, regions, strict=True):
        ordered = table.filter("candidate").sort("image_id", "area", "region", descending=[False, True, False])
        for (image_id,), held in ordered.group_by("image_id", maintain_order=True):
            candidates[source, image_id] = held.select(corners).to_numpy().astype(np.int64)
    boxes: dict[str, list] = defaultdict(list)
    for line in train:
        boxes[line["source"]] += line["boxes"]
    return Blind(candidates, {name: np.rint(np.mean(held, axis=0)).astype(np.int64) for name, held in boxes.items()})


def score_queries(
    lines: Sequence[Mapping], answers: Mapping[str, Mapping], blind: Blind, options: ScoringOptions
) -> Iterator[dict]:
    """Yield a row of :data:`QUERIES` for each test line, in order."""
    of_image: dict[Key, list[Mapping]] = defaultdict(list)
    read = {}
    for line in lines:
        of_image[line["source"], line["image_id"]].append(line)
        read[line["query_id"]] = _read(answers.get(line["query_id"]))
    true = [np.array(line["boxes"], np.int64) for line in lines]
    given = [_given(line, read, of_image[line["source"], line["image_id"]], blind) for line in lines]
    pairs = [(boxes, own) for own, held in zip(true, given, strict=True) for boxes in held.values()]
    ious = iter(union_ious([boxes for boxes, _ in pairs], [own for _, own in pairs]).tolist())
    for line, own, held in zip(lines, true, given, strict=True):
        answer, found = read[line["query_id"]], dict(zip(held, islice(ious, len(held)), strict=True))
        gone = answer["outcome"] == "failed" and options.failed == "leave_out"
        yield {
            **{name: line[name] for name in ("query_id", "source", "image_id", "subject_id", "kind")},
            **{name: line[name] for name in ("trivial", "by_class")},
            "true": len(own),
            "boxes": answer["found"].tolist(),
            **{name: answer[name] for name in ("convention", "outcome", "reason", "notes")},
            "iou": None if gone else found["iou"],
            "matched": None if gone else matched_iou(answer["found"], own),
            "paper": None if gone else found["paper"],
            **{name: found.get(name) for name in BLIND},
        }


def _given(line: Mapping, read: Mapping[str, Mapping], of_image: Sequence[Mapping], blind: Blind) -> dict:
    """Return {measure: boxes} that are compared with a line's own: its answer's, and those that read no query."""
    answer = read[line["query_id"]]
    others = [one for one in of_image if one["regions"] != line["regions"]]
    shuffled = {"shuffled": read[others[0]["query_id"]]["found"]} if others else {}
    told = {"iou": answer["found"], "paper": answer["paper"]}
    return told | blind.answers((line["source"], line["image_id"])) | shuffled


def _read(line: Mapping | None) -> dict:
    """Return how an answer was read, with its boxes as ``found``, and as ``paper`` those on a grid of 1000."""
    none = np.zeros((0, 4), np.int64)
    if line is None or line["failure"]:
        reason = line["failure"] if line else "not_given"
        same = {"convention": line["convention"] if line else "", "outcome": "failed", "reason": reason, "notes": []}
        return same | {"found": none, "paper": none}
    reading, found = read_answer(line["text"], line["convention"], tuple(line["seen"]))
    notes = sorted([*reading.notes, *(["truncated"] if line["stop"] == "length" else [])])
    return {
        "convention": line["convention"], "outcome": reading.outcome, "reason": reading.reason, "notes": notes,
        "found": found, "paper": read_answer(line["text"], "grid1000", tuple(line["seen"]))[1],
    }  # fmt: skip


def scores(table: pl.DataFrame, options: ScoringOptions) -> Iterator[dict]:
    """Yield a row of :data:`SCORES` for each source and part that has a query, and for all sources."""
    named = ["iou", "acc", "matched", "paper", "unreadable", *BLIND]
    table = table.with_columns(
        acc=(pl.col("iou") > options.tau).cast(pl.Float64),
        unreadable=pl.when(pl.col("iou").is_not_null()).then((pl.col("outcome") != "boxes").cast(pl.Float64)),
    )
    for source in [*sorted(set(table["source"])), "total"]:
        own = table if source == "total" else table.filter(source=source)
        for part, chosen in PARTS.items():
            held = own.filter(chosen)
            if not len(held):
                continue
            values = held.select(pl.col(named).cast(pl.Float64).fill_null(np.nan)).to_numpy() * 100
            mean, low, high = means(
                values, held["subject_id"].to_list(), replicates=options.replicates, level=options.interval,
                seed=options.seed,
            )  # fmt: skip
            found, lows, highs = (dict(zip(named, _nulls(ends), strict=True)) for ends in (mean, low, high))
            yield {
                "source": source,
                "part": part,
                "queries": int(held["iou"].is_not_null().sum()),
                "subjects": held["subject_id"].n_unique(),
                "iou": found["iou"],
                "iou_low": lows["iou"],
                "iou_high": highs["iou"],
                "acc": found["acc"],
                "acc_low": lows["acc"],
                "acc_high": highs["acc"],
                **{name: found[name] for name in ("matched", "paper", "unreadable")},
                "failed": int((held["outcome"] == "failed").sum()),
                **{name: found[name] for name in BLIND},
            }


def _nulls(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def sensitivity(
    pairs: Sequence[Mapping], table: pl.DataFrame, truth: Mapping[str, np.ndarray], options: ScoringOptions
) -> Iterator[dict]:
    """Yield a row of :data:`SENSITIVITY` for each source, kind of pair and threshold that has a pair.

    ``truth``: {query: its boxes}.
    """
    ious = {row["query_id"]: row["iou"] for row in table.iter_rows(named=True) if row["iou"] is not None}
    boxes = {row["query_id"]: np.array(row["boxes"], np.int64).reshape(-1, 4) for row in table.iter_rows(named=True)}
    subject = dict(table.select("query_id", "subject_id").iter_rows())
    crossed = [
        (pair["first"], pair["second"], one, other)
        for pair in pairs
        for one, other in ((pair["first"], pair["second"]), (pair["second"], pair["first"]))
        if one in ious and other in ious
    ]
    measured = union_ious([boxes[other] for *_, other in crossed], [truth[one] for *_, one, _ in crossed])
    swapped = dict(zip((one[:3] for one in crossed), measured.tolist(), strict=True))
    for source in [*sorted({pair["source"] for pair in pairs}), "total"]:
        own = [pair for pair in pairs if source in (pair["source"], "total")]
        for name, classes in CLASSES.items():
            held = [pair for pair in own if pair["same_class"] in classes]
            for tau in options.taus if held else ():
                right = both_right(held, ious, tau) * 100
                kept = [pair for pair, value in zip(held, right, strict=True) if not np.isnan(value)]
                if not kept:
                    continue
                exchanged = [
                    min(swapped[pair["first"], pair["second"], one] for one in (pair["first"], pair["second"])) > tau
                    for pair in kept
                ]
                mean, low, high = means(
                    right[~np.isnan(right)][:, None], [subject[pair["first"]] for pair in kept],
                    replicates=options.replicates, level=options.interval, seed=options.seed,
                )  # fmt: skip
                yield {
                    "source": source,
                    "pairs_of": name,
                    "tau": tau,
                    "pairs": len(kept),
                    "left_out": len(held) - len(kept),
                    "sensitivity": float(mean[0]),
                    "low": _nulls(low)[0],
                    "high": _nulls(high)[0],
                    "swapped": float(np.mean(exchanged)) * 100,
                }


def audited(lines: Sequence[Mapping], votes: pl.DataFrame) -> list[Mapping]:
    """Return the lines that experts let stand, and those that none judged are left out.

    Raises UserError for votes on queries that are no longer there, with their number.
    """
    known = {line["query_id"] for line in lines}
    gone = set(votes["query_id"]) - known
    if gone:
        raise UserError(
            f"medground.audit has votes on {len(gone)} queries that no longer stand, such as {min(gone)}: audit again"
        )
    standing = set(votes.filter("accepted")["query_id"])
    return [line for line in lines if line["query_id"] in standing]


def run_scores(
    *,
    answers: str,
    lines: str,
    train: str,
    pairs: str,
    regions: list[str],
    queries: str,
    scored: str,
    pairs_scored: str,
    options: ScoringOptions,
    audit: str | list[str] = "",
    drawn: str | list[str] = "",
) -> None:
    """Score the ``answers`` to the test ``lines``; write tables of queries, scores and sensitivity.

    ``train``: lines that the mean box is of; ``regions``: of all shards, each in its source's folder; ``audit``: the
    experts' votes, after which ``options.test`` leaves lines out; ``drawn``: lines that were asked, where not all were,
    and the others are left out too. Raises UserError for answers to other queries.
    """
    refuse_empty(lines, "to score")
    asked = list(read_lines(lines))
    given = {line["sample_id"]: line for line in read_lines(answers)}
    if unknown := given.keys() - {line["query_id"] for line in asked}:
        raise UserError(f"{answers} answers {min(unknown)}, which is no query of {lines}: ask again")
    votes = audit if isinstance(audit, str) else "".join(audit[:1])
    kept = audited(asked, read_table(votes)) if votes and options.test == "audited" else asked
    if drawn:
        some = {line["query_id"] for line in read_lines("".join(drawn))}
        kept = [line for line in kept if line["query_id"] in some]
    sources = [Path(path).parent.name for path in regions]
    blind = blind_of([read_table(path) for path in regions], sources, list(read_lines(train)))
    table = pl.DataFrame(list(score_queries(kept, given, blind, options)), schema=schema(QUERIES))
    write_table(queries, table, QUERIES)
    write_table(scored, pl.DataFrame(list(scores(table, options)), schema=schema(SCORES)), SCORES)
    truth = {line["query_id"]: np.array(line["boxes"], np.int64) for line in kept}
    known = [pair for pair in read_lines(pairs) if {pair["first"], pair["second"]} & truth.keys()]
    found = pl.DataFrame(list(sensitivity(known, table, truth, options)), schema=schema(SENSITIVITY))
    write_table(pairs_scored, found, SENSITIVITY)
