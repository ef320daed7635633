"""Score one configuration, with bootstrap intervals by source patient, and write the replicates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import UserError
from cxr.base.jobs import log
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_table
from cxr.geometry.boxes import CORNERS
from cxr.metrics.appearance import FEATURES, c2st
from cxr.metrics.average_precision import average_precision, match_predictions
from cxr.metrics.distances import MIN_SAMPLES_PER_DIMENSION, fid, kid_of_subsets
from cxr.metrics.intervals import percentile_ends
from cxr.metrics.matching import Boxes
from cxr.metrics.paired import draw_patient_weights
from cxr.semisyn.realism.features import read_features, stack_features
from cxr.semisyn.realism.measure import JOBS
from cxr.semisyn.shared import AP_IOUS, AP_RECALLS, CHOSEN_CONFIG, INTERVAL


class JobBoxes(NamedTuple):
    """A detector's boxes: index of the job int (N,), corners (N, 4), confidence (N,)."""

    job: np.ndarray
    corners: np.ndarray
    confidence: np.ndarray


def draw_patients(patient: Sequence[str], replicates: int, seed: int) -> np.ndarray:
    """Return int32 (1 + replicates, N): how often each of N jobs counts. ``patient``: of each job's source image."""
    original = np.ones((1, len(patient)), np.int32)
    return np.concatenate([original, *draw_patient_weights(np.asarray(patient, str), replicates, seed)])


def auroc(edited: np.ndarray, source: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return AUROC, (R,), of scores of edited images (N,) against those of their unedited sources (N,).

    A draw counts a job and its source equally.
    """
    above = (edited[:, None] > source[None]) + 0.5 * (edited[:, None] == source[None])
    count = draws.astype(np.float64)
    return np.einsum("ri,ij,rj->r", count, above, count) / count.sum(axis=1) ** 2


def ap1070(detections: JobBoxes, true: Boxes, ious: Sequence[float], points: int, draws: np.ndarray) -> np.ndarray:
    """Return the mean AP over ``ious``, (R,), of a detector's boxes against the requested boxes of N jobs."""
    predicted = Boxes(detections.job, detections.corners)
    match = match_predictions(predicted, detections.confidence, true, draws.shape[1], ious)
    return average_precision(match, points, draws).mean(axis=1)


def two_sample_test(
    ours: np.ndarray, patients: Sequence[str], real: np.ndarray, real_patients: Sequence[str], draws: np.ndarray
) -> np.ndarray:
    """Return c2st, (R,), of features of our boxes (N, K) against real ones (M, K); 0.5 = indistinguishable.

    Draws resample our boxes; the real ones stay.
    """
    names = np.asarray(patients, str)
    scores = []
    for count in draws:
        rows = np.repeat(np.arange(len(ours)), count)
        scores.append(c2st(real, ours[rows], list(real_patients), names[rows].tolist()))
    return np.array(scores)


def kernel_distance(ours: np.ndarray, real: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return KID, (R,), of features (N, D) against real ones (M, D); NaN if a draw has fewer than two jobs.

    A job that a draw counts several times enters once, because copies would look like a very narrow distribution.
    """
    return kid_of_subsets(ours, real, draws > 0)


def mean_over_draws(values: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return the mean, (R,), of the finite ones of N values; NaN if a draw has none."""
    is_finite = np.isfinite(values.astype(np.float64))
    count = draws[:, is_finite].astype(np.float64)
    total = count.sum(axis=1)
    return np.divide(
        count @ values[is_finite].astype(np.float64), total, out=np.full(len(draws), np.nan), where=total > 0
    )


def frechet_distance(ours: np.ndarray, real: np.ndarray, *, small: bool) -> float | None:
    """Return FID of features (N, D) and (M, D), or None if the samples are too few and ``small`` is false."""
    if not small and min(len(ours), len(real)) < MIN_SAMPLES_PER_DIMENSION * ours.shape[1]:
        return None
    return fid(ours, real, small=small)


@dataclass(frozen=True)
class EngineFeatures:
    """Features of one engine. names: {kind: metric name}; edited, real: {job or image: (D,)}.

    similarity: {job: similarity of image and prompt}; empty if no metric of the engine needs it.
    """

    names: Mapping[str, str]
    edited: Mapping[str, np.ndarray]
    similarity: Mapping[str, np.ndarray]
    real: Mapping[str, np.ndarray]


def read_engine_features(
    names: Mapping[str, str], edited: Sequence[str], real: Sequence[str], jobs: set[str], images: set[str]
) -> EngineFeatures:
    """Read those features of the shards ``edited`` and ``real`` that the metrics ``names`` need."""
    distances, fits = {"frechet", "kernel"} & set(names), "similarity" in names
    return EngineFeatures(
        names=names if real else {kind: name for kind, name in names.items() if kind == "similarity"},
        edited=read_features(edited, jobs) if distances and real else {},
        similarity=read_features(edited, jobs, "similarity") if fits else {},
        real=read_features(real, images) if distances else {},
    )


def score_features(
    featured: EngineFeatures, jobs: pl.DataFrame, images: pl.Series, draws: np.ndarray, *, small: bool
) -> dict[str, np.ndarray]:
    """Return {metric: value and replicates} of the jobs of one finding.

    ``images``: real images with it; ``draws`` (R, N): how often each job counts; ``small``: whether to compute a
    Fréchet distance of few images. That has no replicates, because its value depends on the number of images.
    """
    values_by_metric = {}
    if name := featured.names.get("similarity"):
        values_by_metric[name] = mean_over_draws(stack_features(featured.similarity, jobs["job_id"]), draws)
    if featured.real and len(images):
        ours, real = stack_features(featured.edited, jobs["job_id"]), stack_features(featured.real, images)
        if (name := featured.names.get("kernel")) and min(len(ours), len(real)) > 1:
            values_by_metric[name] = kernel_distance(ours, real, draws)
        if name := featured.names.get("frechet"):
            distance = frechet_distance(ours, real, small=small)
            if distance is None:
                warning_fields = (jobs["finding"][0], name, len(ours), len(real), ours.shape[1])
                log.warning(
                    "realism: %s has no %s: %d edited and %d real images are too few for %d features", *warning_fields
                )
            else:
                values_by_metric[name] = np.array([distance])
    return values_by_metric


SCORES = {
    "config": Column(pl.String, "Configuration."),
    "finding": Column(pl.String, "Finding."),
    "metric": Column(pl.String, "Metric."),
    "value": Column(pl.Float64, "Its value."),
    "low": Column(pl.Float64, "Lower end of its interval, by source patients; null without replicates."),
    "high": Column(pl.Float64, "Upper end."),
    "images": Column(pl.Int64, "Edited images."),
    "reference": Column(pl.String, "Real boxes or images of the comparison, and their number; empty if none."),
    "engine": Column(pl.String, "Detector or engine of features that scores; empty for a measure without one."),
    "circular": Column(pl.Boolean, "Whether the scorer learnt from the painter that made the images."),
    "screened_by_scorer": Column(pl.Boolean, "Whether the scorer also screened the healthy images."),
    "trial": Column(pl.Boolean, "Whether the images are those that every configuration edits."),
}
REPLICATES = {
    "finding": Column(pl.String, "Finding."),
    "config": Column(pl.String, "Configuration."),
    "metric": Column(pl.String, "Metric."),
    "replicate": Column(pl.Int64, "-1: the value itself; others: bootstrap replicates, alike for all configurations."),
    "value": Column(pl.Float64, "Value of the metric; null where it is not defined."),
    "circular": Column(pl.Boolean, "Whether the scorer learnt from the painter that made the images."),
}
MEAN_MEASURES = ("change", "leak", "iou_visible", "edge_ratio")
"""Measures of the jobs whose means are scores."""


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """classes: {finding: class of the detector}; detector, classifier: engines of the boxes and of the healthy screen.

    painted: whether the images are painted; c2st_replicates: replicates of the two-sample test, which fits a model in
    each; ious, points: of AP; reference: name of the real images, "" for none; extractors: {feature engine: {kind of
    metric: its name}}; fid_small: ``allow`` or ``refuse`` a Fréchet distance of few images.
    """

    config: str
    classes: dict[str, str]
    detector: str
    classifier: str
    painted: bool
    ious: Sequence[float] = AP_IOUS
    points: int = AP_RECALLS
    replicates: int
    c2st_replicates: int = 20
    interval: float = INTERVAL
    seed: int
    findings: list[str] = field(default_factory=list)
    reference: str = ""
    extractors: dict[str, dict[str, str]] = field(default_factory=dict)
    fid_small: str = "refuse"


class MetricValues(NamedTuple):
    """A metric's value and replicates (R,), the real images it compares with, and the model that scores."""

    values: np.ndarray
    reference: str = ""
    engine: str = ""


def run(
    *,
    jobs: list[str],
    boxes: list[str],
    requested_boxes: list[str],
    detected: list[str],
    table: str,
    output: str,
    replicates: str,
    options: ScoreOptions,
    references: Sequence[str] = (),
    **features: list[str],
) -> None:
    """Score one configuration.

    ``jobs`` and ``boxes``: measures of the shards; ``requested_boxes``, ``detected``: boxes of the jobs, and those of a
    detector; ``references``: measures of real boxes; ``features``: files ``edited_{engine}`` and ``real_{engine}``.
    Writes ``table`` (all jobs), ``output`` (:data:`SCORES`) and ``replicates``. Raises UserError for a reference
    without an image of the cohort.
    """
    every = pl.concat(read_table(path) for path in jobs).sort("job_id")
    write_table(table, every, JOBS)
    fresh = every.filter(~pl.col("trial"))
    # trial jobs selected the configuration, so other jobs score it if there are any
    scored_jobs = fresh if options.config == CHOSEN_CONFIG and len(fresh) else every.filter("trial")
    parts, conditioning, detections = (
        pl.concat(read_table(path) for path in paths) for paths in (boxes, requested_boxes, detected)
    )
    real = pl.concat(read_table(path) for path in references) if references else None
    if real is not None and not len(real):
        raise UserError(
            f"semisyn.references.{options.reference} has no image of the cohort with a finding: name another reference "
            "in semisyn.realism.reference"
        )
    needed_ids = set(scored_jobs["job_id"]), set() if real is None else set(real["image_id"])
    featured = {
        name: read_engine_features(names, features[f"edited_{name}"], features.get(f"real_{name}", []), *needed_ids)
        for name, names in options.extractors.items()
    }
    rows, replicate_rows = [], []
    for finding in options.findings:
        finding_jobs = scored_jobs.filter(pl.col("finding") == finding)
        if not len(finding_jobs):
            continue
        values_by_metric = score_finding(finding, finding_jobs, parts, conditioning, detections, real, options)
        values_by_metric |= score_by_features(finding, finding_jobs, real, featured, options)
        for metric, scored in values_by_metric.items():
            values = scored.values
            low, high = (
                percentile_ends(values[1:, None], options.interval) if len(values) > 1 else (np.full(1, np.nan),) * 2
            )
            rows.append(_score_row(finding, metric, scored, (values[0], low[0], high[0]), finding_jobs, options))
            circular = is_circular(scored, options)
            replicate_rows += [
                (finding, options.config, metric, number - 1, None if np.isnan(value) else float(value), circular)
                for number, value in enumerate(values)
            ]
    write_table(output, pl.DataFrame(rows, schema=schema(SCORES), orient="row"), SCORES)
    write_table(replicates, pl.DataFrame(replicate_rows, schema=schema(REPLICATES), orient="row"), REPLICATES)


def score_finding(
    finding: str,
    jobs: pl.DataFrame,
    boxes: pl.DataFrame,
    conditioning: pl.DataFrame,
    detected: pl.DataFrame,
    real: pl.DataFrame | None,
    options: ScoreOptions,
) -> dict[str, MetricValues]:
    """Return {metric: values} of one finding, without metrics that cannot be computed."""
    draws = _draw_jobs(finding, jobs, options)
    values_by_metric = {
        name: MetricValues(mean_over_draws(jobs[name].to_numpy(), draws))
        for name in MEAN_MEASURES
        if jobs[name].null_count() < len(jobs)
    }
    gap = (jobs["ctr_measured"] - jobs["ctr_asked"]).abs().to_numpy()
    if np.isfinite(gap).any():
        values_by_metric["ctr_error"] = MetricValues(mean_over_draws(gap, draws))
    if finding in options.classes and detector_fires(jobs):
        values = auroc(jobs["score"].to_numpy(), jobs["source_score"].to_numpy(), draws)
        values_by_metric["auroc"] = MetricValues(values, engine=options.detector)
        values = _average_precision(jobs, conditioning, detected, options.classes[finding], options, draws)
        values_by_metric["ap1070"] = MetricValues(values, engine=options.detector)
    ours = boxes.filter(pl.col("job_id").is_in(jobs["job_id"].implode()))
    theirs = None if real is None else real.filter(pl.col("finding") == finding).drop_nulls(FEATURES)
    if theirs is not None and len(ours) and len(theirs):
        seed = stable_hash(options.seed, finding)
        test_draws = draw_patients(ours["subject_id"].to_list(), options.c2st_replicates, seed)
        test = two_sample_test(
            ours.select(FEATURES).to_numpy(), ours["subject_id"].to_list(),
            theirs.select(FEATURES).to_numpy(), theirs["subject_id"].to_list(), test_draws,
        )  # fmt: skip
        if np.isfinite(test[0]):
            values_by_metric["c2st"] = MetricValues(test, f"{options.reference}, {len(theirs)} boxes")
    return values_by_metric


def score_by_features(
    finding: str,
    jobs: pl.DataFrame,
    real: pl.DataFrame | None,
    featured: Mapping[str, EngineFeatures],
    options: ScoreOptions,
) -> dict[str, MetricValues]:
    """Return {metric: values} of the metrics of one finding that use features."""
    draws, small = _draw_jobs(finding, jobs, options), options.fid_small == "allow"
    empty = pl.Series([], dtype=pl.String)
    images = empty if real is None else real.filter(pl.col("finding") == finding)["image_id"].unique().sort()
    values_by_metric = {}
    for engine, engine_features in featured.items():
        for name, values in score_features(engine_features, jobs, images, draws, small=small).items():
            alone = name == engine_features.names.get("similarity")
            values_by_metric[name] = MetricValues(
                values, "" if alone else f"{options.reference}, {len(images)} images", engine
            )
    return values_by_metric


def _draw_jobs(finding: str, jobs: pl.DataFrame, options: ScoreOptions) -> np.ndarray:
    """Return the draws of the jobs; they depend on the source patients alone, so all configurations share them."""
    return draw_patients(jobs["subject_id"].to_list(), options.replicates, stable_hash(options.seed, finding))


def detector_fires(jobs: pl.DataFrame) -> bool:
    """True if the detector found the finding in any edited or source image; else its scores are meaningless."""
    return bool((pl.concat([jobs["score"], jobs["source_score"]]) > 0).any())


def _average_precision(
    jobs: pl.DataFrame,
    conditioning: pl.DataFrame,
    detected: pl.DataFrame,
    name: str,
    options: ScoreOptions,
    draws: np.ndarray,
) -> np.ndarray:
    place = {job: number for number, job in enumerate(jobs["job_id"])}
    true = conditioning.filter(pl.col("kind") == "conditioning", pl.col("job_id").is_in(list(place)))
    detections = detected.filter(pl.col("class_name") == name, pl.col("image_id").is_in(list(place)))
    predicted = JobBoxes(
        _indices(detections["image_id"], place),
        detections.select(CORNERS).to_numpy(),
        detections["confidence"].to_numpy(),
    )
    truth = Boxes(_indices(true["job_id"], place), true.select(CORNERS).to_numpy())
    return ap1070(predicted, truth, options.ious, options.points, draws)


def _indices(names: pl.Series, place: Mapping[str, int]) -> np.ndarray:
    return np.array([place[name] for name in names], np.int64)


def is_circular(scored: MetricValues, options: ScoreOptions) -> bool:
    """True if the scorer learnt from the painter that made the images, so that the score says little."""
    return scored.engine == "lite" and options.painted


def _score_row(
    finding: str,
    metric: str,
    scored: MetricValues,
    numbers: tuple[float, ...],
    jobs: pl.DataFrame,
    options: ScoreOptions,
) -> tuple:
    values = (None if np.isnan(number) else float(number) for number in numbers)
    screened = metric == "auroc" and scored.engine == options.classifier
    labels = scored.reference, scored.engine, is_circular(scored, options), screened, jobs["trial"][0]
    return (options.config, finding, metric, *values, len(jobs), *labels)
