"""Score one run's answers to the test split."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from scipy.optimize import linear_sum_assignment

from cxr.base.columns import schema
from cxr.base.errors import UserError, refuse_empty
from cxr.base.tables import read_lines, read_table, write_rows, write_table
from cxr.geometry.boxes import box_iou
from cxr.geometry.unions import union_ious
from cxr.medground.logic.facts import GRID_CORNERS, keep_audited
from cxr.medground.scoring.columns import BLIND, QUERIES, SCORES, SENSITIVITY
from cxr.medground.scoring.settings import ScoringOptions
from cxr.metrics.intervals import ratio_intervals, sums_by_subject
from cxr.vlm.conventions import GRID
from cxr.vlm.reading import read_answer

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
TAUS = (0.3, 0.5, 0.7)
"""Thresholds of the table of Semantic Sensitivity."""
INTERVAL = 0.95
"""Coverage of the intervals."""
LINE_FIELDS = ("query_id", "source", "image_id", "subject_id", "kind", "trivial", "by_class")

NO_BOXES = np.zeros((0, 4), np.int64)


@dataclass(frozen=True)
class BlindBaseline:
    """Answers that read no query. candidates: {image: its candidates' boxes, largest first}; mean_box: {source: mean
    box of its training lines}.
    """

    candidates: Mapping[Key, np.ndarray]
    mean_box: Mapping[str, np.ndarray]

    def answers(self, key: Key) -> dict[str, np.ndarray]:
        """Return {baseline: boxes} for an image; baselines without boxes are absent."""
        candidates = self.candidates.get(key, NO_BOXES)
        mean_box = self.mean_box[key[0]][None] if key[0] in self.mean_box else NO_BOXES
        boxes_by_baseline = {
            "largest": candidates[:1], "candidates": candidates, "picture": np.array([[0, 0, GRID, GRID]]),
            "mean_box": mean_box,
        }  # fmt: skip
        return {name: boxes for name, boxes in boxes_by_baseline.items() if len(boxes)}


def build_baseline(regions: Sequence[pl.DataFrame], sources: Sequence[str], train: Sequence[Mapping]) -> BlindBaseline:
    """Return the blind baselines; ``sources``: the source of each table of regions."""
    candidates: dict[Key, np.ndarray] = {}
    for source, table in zip(sources, regions, strict=True):
        ordered = table.filter("candidate").sort("image_id", "area", "region", descending=[False, True, False])
        for (image_id,), image_rows in ordered.group_by("image_id", maintain_order=True):
            candidates[source, image_id] = image_rows.select(GRID_CORNERS).to_numpy().astype(np.int64)
    boxes: dict[str, list] = defaultdict(list)
    for line in train:
        boxes[line["source"]] += line["boxes"]
    mean_box = {name: np.rint(np.mean(source_boxes, axis=0)).astype(np.int64) for name, source_boxes in boxes.items()}
    return BlindBaseline(candidates, mean_box)


def score_queries(lines: Sequence[Mapping], answers: Mapping[str, Mapping], blind: BlindBaseline) -> Iterator[dict]:
    """Yield a row of :data:`QUERIES` for each test line, in order; a query without an answer counts as wrong."""
    of_image: dict[Key, list[Mapping]] = defaultdict(list)
    for line in lines:
        of_image[line["source"], line["image_id"]].append(line)
    reading_by_query = {line["query_id"]: _read_answer_line(answers.get(line["query_id"])) for line in lines}
    true = [np.array(line["boxes"], np.int64) for line in lines]
    compared_boxes = [
        _compared_boxes(line, reading_by_query, of_image[line["source"], line["image_id"]], blind) for line in lines
    ]
    pairs = [
        (boxes, true_boxes)
        for true_boxes, boxes_by_measure in zip(true, compared_boxes, strict=True)
        for boxes in boxes_by_measure.values()
    ]
    ious = iter(union_ious([boxes for boxes, _ in pairs], [true_boxes for _, true_boxes in pairs]).tolist())
    for line, true_boxes, boxes_by_measure in zip(lines, true, compared_boxes, strict=True):
        answer = reading_by_query[line["query_id"]]
        iou_by_measure = {name: next(ious) for name in boxes_by_measure}
        yield {
            **{name: line[name] for name in LINE_FIELDS},
            "true": len(true_boxes),
            "boxes": answer["found"].tolist(),
            **{name: answer[name] for name in ("convention", "outcome", "reason", "notes")},
            "iou": iou_by_measure["iou"],
            "matched": matched_iou(answer["found"], true_boxes),
            "paper": iou_by_measure["paper"],
            **{name: iou_by_measure.get(name) for name in BLIND},
        }


def _compared_boxes(
    line: Mapping, reading_by_query: Mapping[str, Mapping], of_image: Sequence[Mapping], blind: BlindBaseline
) -> dict:
    """Return {measure: boxes} to compare with a line's true boxes: the answer's, and the blind baselines'."""
    answer = reading_by_query[line["query_id"]]
    other_lines = [other_line for other_line in of_image if other_line["regions"] != line["regions"]]
    shuffled = {"shuffled": reading_by_query[other_lines[0]["query_id"]]["found"]} if other_lines else {}
    boxes_by_measure = {"iou": answer["found"], "paper": answer["paper"]}
    return boxes_by_measure | blind.answers((line["source"], line["image_id"])) | shuffled


def _read_answer_line(line: Mapping | None) -> dict:
    """Return an answer as it was read; ``found``: its boxes, ``paper``: its numbers read on a grid of 1000."""
    if line is None or line["failure"]:
        reason, convention = (line["failure"], line["convention"]) if line else ("not_given", "")
        failure = {"convention": convention, "outcome": "failed", "reason": reason, "notes": []}
        return failure | {"found": NO_BOXES, "paper": NO_BOXES}
    reading, boxes = read_answer(line["text"], line["convention"], tuple(line["seen"]))
    notes = sorted([*reading.notes, *(["truncated"] if line["stop"] == "length" else [])])
    return {
        "convention": line["convention"], "outcome": reading.outcome, "reason": reading.reason, "notes": notes,
        "found": boxes, "paper": read_answer(line["text"], "grid1000", tuple(line["seen"]))[1],
    }  # fmt: skip


def scores(table: pl.DataFrame, options: ScoringOptions, seed: int) -> Iterator[dict]:
    """Yield a row of :data:`SCORES` for each source and part that has a query, and for all sources."""
    columns = ["iou", "acc", "matched", "paper", "unreadable", *BLIND]
    table = table.with_columns(
        acc=(pl.col("iou") > options.tau).cast(pl.Float64),
        unreadable=pl.when(pl.col("iou").is_not_null()).then((pl.col("outcome") != "boxes").cast(pl.Float64)),
    )
    for source in [*sorted(set(table["source"])), "total"]:
        source_table = table if source == "total" else table.filter(source=source)
        for part, condition in PARTS.items():
            part_table = source_table.filter(condition)
            if not len(part_table):
                continue
            values = part_table.select(pl.col(columns).cast(pl.Float64).fill_null(np.nan)).to_numpy() * 100
            mean, low, high = mean_with_interval(
                values, part_table["subject_id"].to_list(), replicates=options.replicates, level=INTERVAL,
                seed=seed,
            )  # fmt: skip
            averages, lows, highs = (dict(zip(columns, _nulls(ends), strict=True)) for ends in (mean, low, high))
            yield {
                "source": source,
                "part": part,
                "queries": int(part_table["iou"].is_not_null().sum()),
                "subjects": part_table["subject_id"].n_unique(),
                **{
                    f"{name}{ending}": values_by_name[name]
                    for name in ("iou", "acc")
                    for ending, values_by_name in (("", averages), ("_low", lows), ("_high", highs))
                },
                **{name: averages[name] for name in ("matched", "paper", "unreadable")},
                "failed": int((part_table["outcome"] == "failed").sum()),
                **{name: averages[name] for name in BLIND},
            }


def _nulls(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def sensitivity(
    pairs: Sequence[Mapping], table: pl.DataFrame, truth: Mapping[str, np.ndarray], options: ScoringOptions, seed: int
) -> Iterator[dict]:
    """Yield a row of :data:`SENSITIVITY` for each source, kind of pair and threshold that has a pair.

    ``truth``: {query: its boxes}.
    """
    ious = {row["query_id"]: row["iou"] for row in table.iter_rows(named=True) if row["iou"] is not None}
    boxes = {row["query_id"]: np.array(row["boxes"], np.int64).reshape(-1, 4) for row in table.iter_rows(named=True)}
    subject = dict(table.select("query_id", "subject_id").iter_rows())
    crossed = [
        (pair["first"], pair["second"], truth_id, answer_id)
        for pair in pairs
        for truth_id, answer_id in ((pair["first"], pair["second"]), (pair["second"], pair["first"]))
        if truth_id in ious and answer_id in ious
    ]
    measured = union_ious(
        [boxes[answer_id] for *_, answer_id in crossed], [truth[truth_id] for *_, truth_id, _ in crossed]
    )
    swapped = dict(zip((crossing[:3] for crossing in crossed), measured.tolist(), strict=True))
    for source in [*sorted({pair["source"] for pair in pairs}), "total"]:
        source_pairs = [pair for pair in pairs if source in (pair["source"], "total")]
        for name, classes in CLASSES.items():
            class_pairs = [pair for pair in source_pairs if pair["same_class"] in classes]
            for tau in TAUS if class_pairs else ():
                right = both_correct(class_pairs, ious, tau) * 100
                scored_pairs = [pair for pair, value in zip(class_pairs, right, strict=True) if not np.isnan(value)]
                if not scored_pairs:
                    continue
                members = [(pair["first"], pair["second"]) for pair in scored_pairs]
                exchanged = [min(swapped[*ids, query_id] for query_id in ids) > tau for ids in members]
                mean, low, high = mean_with_interval(
                    right[~np.isnan(right)][:, None], [subject[first] for first, _ in members],
                    replicates=options.replicates, level=INTERVAL, seed=seed,
                )  # fmt: skip
                yield {
                    "source": source,
                    "pairs_of": name,
                    "tau": tau,
                    "pairs": len(scored_pairs),
                    "left_out": len(class_pairs) - len(scored_pairs),
                    "sensitivity": float(mean[0]),
                    "low": _nulls(low)[0],
                    "high": _nulls(high)[0],
                    "swapped": float(np.mean(exchanged)) * 100,
                }


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
    seed: int,
    audit: Sequence[str] = (),
    sampled: Sequence[str] = (),
) -> None:
    """Score the ``answers`` to the test ``lines``; write tables of queries, scores and sensitivity.

    ``train``: lines for the mean box; ``regions``: of all shards, each in its source's folder; ``audit``: the experts'
    votes, if there are any: other lines than those they accepted are excluded; ``sampled``: the lines that were asked,
    if not all were; others are excluded. Raises UserError for answers to other queries.
    """
    refuse_empty(lines, "to score")
    test_lines = list(read_lines(lines))
    answer_by_id = {line["sample_id"]: line for line in read_lines(answers)}
    if unknown := answer_by_id.keys() - {line["query_id"] for line in test_lines}:
        raise UserError(f"{answers} answers {min(unknown)}, which is no query of {lines}: ask again")
    scored_lines = keep_audited(test_lines, audit[0]) if audit else test_lines
    if sampled:
        sampled_ids = {line["query_id"] for line in read_lines(sampled[0])}
        scored_lines = [line for line in scored_lines if line["query_id"] in sampled_ids]
    sources = [Path(path).parent.name for path in regions]
    blind = build_baseline([read_table(path) for path in regions], sources, list(read_lines(train)))
    table = pl.DataFrame(list(score_queries(scored_lines, answer_by_id, blind)), schema=schema(QUERIES))
    write_table(queries, table, QUERIES)
    write_rows(scored, scores(table, options, seed), SCORES)
    truth = {line["query_id"]: np.array(line["boxes"], np.int64) for line in scored_lines}
    scored_pairs = [pair for pair in read_lines(pairs) if {pair["first"], pair["second"]} & truth.keys()]
    write_rows(pairs_scored, sensitivity(scored_pairs, table, truth, options, seed), SENSITIVITY)


def matched_iou(predicted: np.ndarray, reference: np.ndarray) -> float:
    """Return the largest sum of IoU over one-to-one matches of boxes, (N, 4) and (M, 4), divided by max(N, M).

    A surplus box counts like a missing one. 0 if one side is empty.
    """
    if not len(predicted) or not len(reference):
        return 0.0
    table = box_iou(predicted.astype(np.float64), reference.astype(np.float64))
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / max(table.shape))


def mean_with_interval(
    values: np.ndarray, subjects: Sequence[str], *, replicates: int, level: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, lower and upper end, (K,) each, of columns of values (N, K); intervals by subject, NaN excluded."""
    has_value = ~np.isnan(values)
    _, subject = np.unique(np.asarray(subjects, str), return_inverse=True)
    count = int(subject.max(initial=-1)) + 1
    tops = sums_by_subject(subject, count, np.where(has_value, values, 0.0))
    below = sums_by_subject(subject, count, has_value.astype(np.float64))
    total = below.sum(axis=0)
    mean = np.divide(tops.sum(axis=0), total, out=np.full(values.shape[1], np.nan), where=total > 0)
    return mean, *ratio_intervals(tops, below, replicates=replicates, level=level, seed=seed)


def both_correct(pairs: Sequence[Mapping], ious: Mapping[str, float], tau: float) -> np.ndarray:
    """Return whether both IoUs of each pair exceed ``tau``, float64 (N,); NaN if one of them is not scored."""
    iou_pairs = [(ious.get(pair["first"]), ious.get(pair["second"])) for pair in pairs]
    return np.array([np.nan if None in iou_pair else float(min(iou_pair) > tau) for iou_pair in iou_pairs])
