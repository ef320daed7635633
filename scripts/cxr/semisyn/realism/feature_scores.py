"""Metrics of features: distances between edited and real images, and similarity of images to their prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cxr.base.jobs import log
from cxr.semisyn.realism import scores
from cxr.semisyn.realism.features import read_features, stack_features


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
        values_by_metric[name] = scores.mean_over_draws(stack_features(featured.similarity, jobs["job_id"]), draws)
    if featured.real and len(images):
        ours, real = stack_features(featured.edited, jobs["job_id"]), stack_features(featured.real, images)
        if (name := featured.names.get("kernel")) and min(len(ours), len(real)) > 1:
            values_by_metric[name] = scores.kernel_distance(ours, real, draws)
        if name := featured.names.get("frechet"):
            distance = scores.frechet_distance(ours, real, small=small)
            if distance is None:
                warning_fields = (jobs["finding"][0], name, len(ours), len(real), ours.shape[1])
                log.warning(
                    "realism: %s has no %s: %d edited and %d real images are too few for %d features", *warning_fields
                )
            else:
                values_by_metric[name] = np.array([distance])
    return values_by_metric
