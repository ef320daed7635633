"""Scores of each run (a model's answers to the test split), compared with blind baselines and the paper's models."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl
from scipy.optimize import linear_sum_assignment

from cxr.base.columns import Columns, read_columns, schema
from cxr.base.errors import UserError, refuse_empty
from cxr.base.resources import load_resource
from cxr.base.tables import read_lines, read_table, write_rows, write_table
from cxr.geometry.boxes import box_iou
from cxr.geometry.unions import union_ious
from cxr.medground.logic.facts import GRID_CORNERS, keep_audited
from cxr.medground.stage_settings import ScoringOptions
from cxr.metrics.intervals import ratio_intervals, sums_by_subject
from cxr.vlm.conventions import GRID
from cxr.vlm.reading import read_answer

BLIND = {
    "largest": "the largest candidate",
    "candidates": "all candidates",
    "mean_box": "the mean box of the source's training lines",
    "picture": "the whole picture",
    "shuffled": "the model's own answer to another query of the image",
}
"""{blind baseline: its answer}. Blind baselines answer without reading the query."""
QUERIES = read_columns("medground_scoring", "queries")
SCORES = read_columns("medground_scoring", "scores")
SENSITIVITY = read_columns("medground_scoring", "sensitivity")
COMPARISON = read_columns("medground_scoring", "comparison")
RESOURCE_FILES = ("medground/paper_tables.yaml", "columns/medground_scoring.toml")
Key = tuple[str, str]  # source and image
PARTS = {
    "all": pl.lit(True),
    "not_trivial": ~pl.col("trivial"),
    "not_by_class": ~pl.col("by_class"),
    "single": pl.col("kind") == "single",
    "subset": pl.col("kind") == "subset",
    "all_of_class": pl.col("kind") == "all",
}
CLASSES = {"all": (True, False), "same_class": (True,), "other_classes": (False,)}
TAUS = (0.3, 0.5, 0.7)  # thresholds of the table of Semantic Sensitivity
INTERVAL = 0.95  # coverage of the intervals
NO_BOXES = np.zeros((0, 4), np.int64)


def read_baselines(regions: Sequence[str], train: str) -> tuple[dict[Key, np.ndarray], dict[str, np.ndarray]]:
    """Return the boxes with which blind baselines answer: {(source, image id): boxes of the candidates, which are
    regions that may be answers, largest first} and {source: mean box of the training queries}. ``train``: file of
    training queries."""
    candidates: dict[Key, np.ndarray] = {}
    for path in regions:
        table = read_table(path).filter("candidate")
        ordered = table.sort("image_id", "area", "region", descending=[False, True, False])
        for (image_id,), rows in ordered.group_by("image_id", maintain_order=True):
            boxes = rows.select(GRID_CORNERS).to_numpy().astype(np.int64)
            candidates[Path(path).parent.name, str(image_id)] = boxes
    boxes_by_source: dict[str, list] = defaultdict(list)
    for line in read_lines(train):
        boxes_by_source[line["source"]] += line["boxes"]
    means = {source: np.rint(np.mean(boxes, axis=0)) for source, boxes in boxes_by_source.items()}
    return candidates, {source: box.astype(np.int64)[None] for source, box in means.items()}


def score_queries(
    lines: Sequence[Mapping], answers: Mapping[str, Mapping], candidates: Mapping[Key, np.ndarray],
    mean_boxes: Mapping[str, np.ndarray],
) -> Iterator[dict]:  # fmt: skip
    """Yield a row of :data:`QUERIES` for each test line, in order. A query without an answer counts as wrong.
    ``answers``: {query id: line of the answer}. The last two arguments are the results of :func:`read_baselines`."""
    readings = {line["query_id"]: _read_answer_line(answers.get(line["query_id"])) for line in lines}
    lines_by_image: dict[Key, list[Mapping]] = defaultdict(list)
    for line in lines:
        lines_by_image[line["source"], line["image_id"]].append(line)

    def boxes_by_measure(line: Mapping) -> dict[str, np.ndarray]:
        key = line["source"], line["image_id"]
        answer, image_candidates = readings[line["query_id"]], candidates.get(key, NO_BOXES)
        other_lines = [image_line for image_line in lines_by_image[key] if image_line["regions"] != line["regions"]]
        blind = {"largest": image_candidates[:1], "candidates": image_candidates}
        blind |= {"picture": np.array([[0, 0, GRID, GRID]]), "mean_box": mean_boxes.get(line["source"], NO_BOXES)}
        measures = {name: boxes for name, boxes in blind.items() if len(boxes)}
        measures |= {"iou": answer["found"], "paper": answer["paper"]}
        return measures | ({"shuffled": readings[other_lines[0]["query_id"]]["found"]} if other_lines else {})

    compared = [(np.array(line["boxes"], np.int64), boxes_by_measure(line)) for line in lines]
    pairs = [(boxes, true_boxes) for true_boxes, measures in compared for boxes in measures.values()]
    ious = iter(union_ious([boxes for boxes, _ in pairs], [true_boxes for _, true_boxes in pairs]).tolist())
    for line, (true_boxes, measures) in zip(lines, compared, strict=True):
        answer = readings[line["query_id"]]
        row = line | answer | {"true": len(true_boxes), "boxes": answer["found"].tolist()}
        row |= {"matched": matched_iou(answer["found"], true_boxes)} | dict.fromkeys(("iou", "paper", *BLIND))
        row |= {name: next(ious) for name in measures}
        yield {name: row[name] for name in QUERIES}


def _read_answer_line(line: Mapping | None) -> dict:
    """Return the content of a model's answer. ``found``: its boxes, read in the coordinate convention of the model.
    ``paper``: its boxes if every number is read as 1/1000 of a side, as in the paper."""
    if line is None or line["failure"]:
        reason, convention = (line["failure"], line["convention"]) if line else ("not_given", "")
        answer = {"convention": convention, "outcome": "failed", "reason": reason, "notes": []}
        return answer | {"found": NO_BOXES, "paper": NO_BOXES}
    size = tuple(line["seen"])
    (reading, boxes), (_, paper) = (read_answer(line["text"], name, size) for name in (line["convention"], "grid1000"))
    notes = sorted([*reading.notes, *(["truncated"] if line["stop"] == "length" else [])])
    answer = {"convention": line["convention"], "outcome": reading.outcome, "reason": reading.reason, "notes": notes}
    return answer | {"found": boxes, "paper": paper}


def scores(table: pl.DataFrame, options: ScoringOptions, seed: int) -> Iterator[dict]:
    """Yield rows of :data:`SCORES` for each source and for all sources together, one for each part of the queries in
    :data:`PARTS` that is not empty. ``table``: rows of :func:`score_queries`."""
    columns = ["iou", "acc", "matched", "paper", "unreadable", *BLIND]
    table = table.with_columns(
        acc=(pl.col("iou") > options.tau).cast(pl.Float64),
        unreadable=pl.when(pl.col("iou").is_not_null()).then((pl.col("outcome") != "boxes").cast(pl.Float64)),
    )
    for source in [*sorted(set(table["source"])), "total"]:
        source_table = table if source == "total" else table.filter(source=source)
        for part, condition in PARTS.items():
            rows = source_table.filter(condition)
            if rows.is_empty():
                continue
            values = rows.select(pl.col(columns).cast(pl.Float64).fill_null(np.nan)).to_numpy() * 100
            subjects = rows["subject_id"].to_list()
            ends = mean_with_interval(values, subjects, replicates=options.replicates, level=INTERVAL, seed=seed)
            row = {"source": source, "part": part, "queries": int(rows["iou"].is_not_null().sum())}
            row |= {"subjects": len(set(subjects)), "failed": int((rows["outcome"] == "failed").sum())}
            for ending, end in zip(("", "_low", "_high"), ends, strict=True):
                row |= {f"{name}{ending}": value for name, value in zip(columns, _nulls(end), strict=True)}
            yield {name: row[name] for name in SCORES}


def _nulls(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def sensitivity(
    pairs: Sequence[Mapping], table: pl.DataFrame, truth: Mapping[str, np.ndarray], options: ScoringOptions, seed: int
) -> Iterator[dict]:
    """Yield a row of :data:`SENSITIVITY` for each source, kind of pair (key of :data:`CLASSES`) and IoU threshold.
    Semantic Sensitivity is the percentage of pairs with two correct answers. ``truth``: {query id: its true boxes}."""
    rows = {row["query_id"]: row for row in table.iter_rows(named=True)}
    ious = {query_id: row["iou"] for query_id, row in rows.items() if row["iou"] is not None}
    scored_pairs = [pair for pair in pairs if {pair["first"], pair["second"]} <= ious.keys()]
    crossings = [ids for pair in scored_pairs for ids in permutations((pair["first"], pair["second"]))]
    answers = [np.array(rows[answer_id]["boxes"], np.int64).reshape(-1, 4) for _, answer_id in crossings]
    measured = union_ious(answers, [truth[truth_id] for truth_id, _ in crossings]).tolist()
    swapped = dict(zip(crossings, measured, strict=True))
    for source in [*sorted({pair["source"] for pair in pairs}), "total"]:
        for name, classes in CLASSES.items():
            class_pairs, scored = (
                [pair for pair in part if source in (pair["source"], "total") and pair["same_class"] in classes]
                for part in (pairs, scored_pairs)
            )
            members = [(pair["first"], pair["second"]) for pair in scored]
            subjects = [rows[first]["subject_id"] for first, _ in members]
            for tau in TAUS if scored else ():
                right = both_correct(scored, ious, tau)[:, None] * 100
                ends = mean_with_interval(right, subjects, replicates=options.replicates, level=INTERVAL, seed=seed)
                exchanged = [min(swapped[first, second], swapped[second, first]) > tau for first, second in members]
                row = {"source": source, "pairs_of": name, "tau": tau, "pairs": len(scored)}
                row |= {"left_out": len(class_pairs) - len(scored)}
                row |= dict(zip(("sensitivity", "low", "high"), (_nulls(end)[0] for end in ends), strict=True))
                yield row | {"swapped": float(np.mean(exchanged)) * 100}


def run_scores(
    *, answers: str, lines: str, train: str, pairs: str, regions: list[str], queries: str, scored: str,
    pairs_scored: str, options: ScoringOptions, seed: int, audit: Sequence[str] = (), sampled: Sequence[str] = (),
) -> None:  # fmt: skip
    """Score the ``answers`` to the test ``lines``, and write tables of queries, scores and Semantic Sensitivity.
    ``train``: training lines, whose mean box is a baseline. ``audit``: [votes]; only accepted queries are scored.
    ``sampled``: [the queries that were asked], if not all were. Raises UserError for an answer to an unknown query."""
    refuse_empty(lines, "to score")
    test_lines = list(read_lines(lines))
    answer_by_id = {line["sample_id"]: line for line in read_lines(answers)}
    if unknown := answer_by_id.keys() - {line["query_id"] for line in test_lines}:
        raise UserError(f"{answers} answers the query {min(unknown)}, which {lines} lacks: delete {answers} and rerun")
    scored_lines = keep_audited(test_lines, audit[0]) if audit else test_lines
    if sampled:
        sampled_ids = {line["query_id"] for line in read_lines(sampled[0])}
        scored_lines = [line for line in scored_lines if line["query_id"] in sampled_ids]
    rows = score_queries(scored_lines, answer_by_id, *read_baselines(regions, train))
    table = pl.DataFrame(list(rows), schema=schema(QUERIES))
    write_table(queries, table, QUERIES)
    write_rows(scored, scores(table, options, seed), SCORES)
    truth = {line["query_id"]: np.array(line["boxes"], np.int64) for line in scored_lines}
    scored_pairs = [pair for pair in read_lines(pairs) if {pair["first"], pair["second"]} & truth.keys()]
    write_rows(pairs_scored, sensitivity(scored_pairs, table, truth, options, seed), SENSITIVITY)


def matched_iou(predicted: np.ndarray, reference: np.ndarray) -> float:
    """Return the largest sum of IoU over one-to-one matches of boxes, divided by the larger number of boxes, or 0 if
    there is no box on one side."""
    if not len(predicted) or not len(reference):
        return 0.0
    table = box_iou(predicted.astype(np.float64), reference.astype(np.float64))
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / max(table.shape))


def mean_with_interval(
    values: np.ndarray, subjects: Sequence[str], *, replicates: int, level: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (means, lower ends, upper ends) of the columns of ``values`` (N, K), three arrays (K,). NaN is ignored.
    The intervals have the coverage ``level``, by a bootstrap that resamples ``subjects``, the patient of each row."""
    has_value = ~np.isnan(values)
    _, subject = np.unique(np.asarray(subjects, str), return_inverse=True)
    count = int(subject.max(initial=-1)) + 1
    tops = sums_by_subject(subject, count, np.where(has_value, values, 0.0))
    below = sums_by_subject(subject, count, has_value.astype(np.float64))
    total = below.sum(axis=0)
    mean = np.divide(tops.sum(axis=0), total, out=np.full(values.shape[1], np.nan), where=total > 0)
    return mean, *ratio_intervals(tops, below, replicates=replicates, level=level, seed=seed)


def both_correct(pairs: Sequence[Mapping], ious: Mapping[str, float], tau: float) -> np.ndarray:
    """Return for each pair of queries, float64 (N,), 1 if both IoUs exceed ``tau``, otherwise 0."""
    return np.array([float(min(ious[pair["first"]], ious[pair["second"]]) > tau) for pair in pairs])


def _row(by: str, table: str, model: str, source: str, number: int | None, *values: float | None) -> dict:
    return dict(zip(COMPARISON, (by, table, model, source, number, *(*values, None, None)[:3]), strict=True))


def run_rows(run: str, scores: pl.DataFrame, pairs: pl.DataFrame, tau: float) -> Iterator[dict]:
    """Yield a run's rows of the comparison from its tables ``scores`` and ``pairs``: mean IoU and Semantic Sensitivity
    at the IoU threshold ``tau``, each with blind baselines."""
    for row in scores.filter(part="all").iter_rows(named=True):
        yield _row("ours", "iou", run, row["source"], row["queries"], row["iou"], row["iou_low"], row["iou_high"])
        for name in (name for name in BLIND if row[name] is not None):
            model = f"{run}: {name}" if name == "shuffled" else name
            yield _row("blind", "iou", model, row["source"], row["queries"], row[name])
    for row in pairs.filter((pl.col("pairs_of") == "all") & (pl.col("tau") == tau)).iter_rows(named=True):
        yield _row("ours", "sensitivity", run, row["source"], row["pairs"], row["sensitivity"], row["low"], row["high"])
        yield _row("blind", "sensitivity", f"{run}: swapped", row["source"], row["pairs"], row["swapped"])


def paper_rows() -> Iterator[dict]:
    """Yield the rows of the paper's Tables 3 and 4, as printed."""
    tables = load_resource(RESOURCE_FILES[0])
    third, fourth = tables["table3"], tables["table4"]
    for state in ("base", "finetuned", "delta"):
        for model, values in third[state].items():
            for source, value in zip(third["columns"], values, strict=True):
                yield _row("paper", "iou", f"{model}, {state}", source, None, float(value))
    for model, states in fourth["rows"].items():
        for state, values in states.items():
            for source, value in zip(fourth["columns"], values, strict=True):
                yield _row("paper", "sensitivity", f"{model}, {state}", source, None, float(value))


def read_declared(path: str | Path, columns: Columns) -> pl.DataFrame:
    """Read a table. A column without values gets its type in ``columns``, because a text file does not store types."""
    table = read_table(path)
    empty = [name for name in table.columns if table[name].dtype == pl.String and columns[name].kind != pl.String]
    return table.with_columns(pl.lit(None, columns[name].kind).alias(name) for name in empty)


def run_comparison(
    *, scored: list[str], pairs_scored: list[str], comparison: str, runs: list[str], zero_shot_runs: list[str],
    tau: float, zero_shot: list[str] | None = None,
) -> None:  # fmt: skip
    """Write one table with the scores of the runs, of the blind baselines and of the paper's models. ``zero_shot``:
    score tables of ``zero_shot_runs`` on sources that no training uses."""
    rows = []
    for run, scores, pairs in zip(runs, scored, pairs_scored, strict=True):
        rows += run_rows(run, read_declared(scores, SCORES), read_declared(pairs, SENSITIVITY), tau)
    rows += paper_rows()
    for run, path in zip(zero_shot_runs, zero_shot or (), strict=True):
        zero_shot_rows = run_rows(run, read_declared(path, SCORES), pl.DataFrame(schema=schema(SENSITIVITY)), tau)
        rows += (row | {"table": "zero_shot"} for row in zero_shot_rows)
    unique_rows: dict[tuple, dict] = {}
    for row in rows:  # most baselines are the same for all runs
        unique_rows.setdefault(tuple(row[part] for part in ("by", "table", "model", "source")), row)
    write_rows(comparison, unique_rows.values(), COMPARISON)
