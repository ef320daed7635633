"""Scores of one configuration and finding in R draws of source patients.

The first draw counts every job once and gives the score itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from cxr.base.jobs import log
from cxr.metrics.appearance import c2st
from cxr.metrics.average_precision import average_precision, match_predictions
from cxr.metrics.distances import MIN_SAMPLES_PER_DIMENSION, fid, kid_of_subsets
from cxr.metrics.matching import Boxes
from cxr.metrics.paired import draw_patient_weights
from cxr.semisyn.realism.features import read_features, stack_features


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
