"""Score the edited images of one configuration, and compare them with real ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from cxr.base.columns import read_columns, schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shards
from cxr.base.jobs import log
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_tables, write_rows, write_table
from cxr.geometry.boxes import CORNERS
from cxr.metrics.appearance import FEATURES, c2st
from cxr.metrics.average_precision import average_precision, match_predictions
from cxr.metrics.distances import MIN_SAMPLES_PER_DIMENSION, fid, kid_of_subsets
from cxr.metrics.intervals import percentile_ends
from cxr.metrics.matching import Boxes
from cxr.metrics.paired import draw_patient_weights
from cxr.semisyn.realism.measure import JOBS, REFERENCE
from cxr.semisyn.shared import AP_IOUS, AP_RECALLS, CHOSEN_CONFIG, INTERVAL

RESOURCE_FILES = ("columns/semisyn_realism.toml",)
SCORES = read_columns("semisyn_realism", "scores")
REPLICATES = read_columns("semisyn_realism", "replicates")


def draw_patients(patient: Sequence[str], replicates: int, seed: int) -> np.ndarray:
    """Return how often each of N jobs counts, int32 (1 + replicates, N): once in the first row, then by bootstrap draws
    of the patients. ``patient``: the patient of each job's source image."""
    original = np.ones((1, len(patient)), np.int32)
    return np.concatenate([original, *draw_patient_weights(np.asarray(patient, str), replicates, seed)])


def auroc(edited: np.ndarray, source: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return the AUROC (R,) of N edited images' scores against their sources' scores, for ``draws`` (R, N) of jobs."""
    above = (edited[:, None] > source[None]) + 0.5 * (edited[:, None] == source[None])
    count = draws.astype(np.float64)
    return np.einsum("ri,ij,rj->r", count, above, count) / count.sum(axis=1) ** 2


def ap1070(predicted: Boxes, confidence: np.ndarray, true: Boxes, draws: np.ndarray) -> np.ndarray:
    """Return the AP (R,), averaged over :data:`AP_IOUS`, of predicted against requested boxes, for ``draws`` (R, N)."""
    match = match_predictions(predicted, confidence, true, draws.shape[1], AP_IOUS)
    return average_precision(match, AP_RECALLS, draws).mean(axis=1)


def two_sample_test(
    ours: np.ndarray, patients: Sequence[str], real: np.ndarray, real_patients: Sequence[str], draws: np.ndarray
) -> np.ndarray:
    """Return the AUROC of a model that distinguishes edited boxes (features ``ours``, (N, K)) from real ones (M, K),
    for each of the ``draws`` (R, N) of edited boxes. 0.5 means that it cannot distinguish them."""
    names, row_sets = np.asarray(patients, str), (np.repeat(np.arange(len(ours)), count) for count in draws)
    return np.array([c2st(real, ours[rows], list(real_patients), names[rows].tolist()) for rows in row_sets])


def mean_over_draws(values: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return the mean of the finite ``values`` (N,) for each of ``draws`` (R, N), or NaN if a draw has none."""
    values = values.astype(np.float64)
    count = draws[:, np.isfinite(values)].astype(np.float64)
    total = count.sum(axis=1)
    return np.divide(count @ values[np.isfinite(values)], total, out=np.full(len(draws), np.nan), where=total > 0)


def frechet_distance(ours: np.ndarray, real: np.ndarray) -> float | None:
    """Return the Fréchet distance of features (N, D) and (M, D), or None if there are too few images."""
    if min(len(ours), len(real)) < MIN_SAMPLES_PER_DIMENSION * ours.shape[1]:
        return None
    return fid(ours, real)


class EngineFeatures(NamedTuple):
    """Features from one engine. names: {kind: metric} to compute; edited: {job: feature (D,)}; similarity: {job:
    similarity to its prompt}; real: {real image: feature (D,)}."""

    names: Mapping[str, str]
    edited: Mapping[str, np.ndarray]
    similarity: Mapping[str, np.ndarray]
    real: Mapping[str, np.ndarray]


def _read_features(paths: Iterable[str], names: set[str], field: str = "feature") -> dict[str, np.ndarray]:
    """Return {image or job: value of ``field``} of the images or jobs ``names`` that are in the files."""
    with Shards(paths) as shards:
        return {name: shards.get(field, name) for name in shards.ids if name in names}


def score_features(
    featured: EngineFeatures, jobs: pl.DataFrame, images: pl.Series, draws: np.ndarray
) -> dict[str, np.ndarray]:
    """Return {metric: its value, then its replicates} for N jobs of one finding. ``images``: ids of the real images;
    ``draws`` (R, N): how often each job counts. A Fréchet distance has no replicates, because its value depends on the
    number of distinct images."""
    values_by_metric = {}
    if name := featured.names.get("similarity"):
        similarity = np.stack([featured.similarity[job] for job in jobs["job_id"]])
        values_by_metric[name] = mean_over_draws(similarity, draws)
    if featured.real and len(images):
        ours = np.stack([featured.edited[job] for job in jobs["job_id"]])
        real = np.stack([featured.real[image] for image in images])
        if (name := featured.names.get("kernel")) and min(len(ours), len(real)) > 1:
            # a job that a draw counts several times enters once: copies would look like a very narrow distribution
            values_by_metric[name] = kid_of_subsets(ours, real, draws > 0)
        if name := featured.names.get("frechet"):
            if (distance := frechet_distance(ours, real)) is not None:
                values_by_metric[name] = np.array([distance])
            else:
                log.warning(
                    "realism: %s has no %s: %d edited and %d real images are too few for %d features",
                    jobs["finding"][0], name, len(ours), len(real), ours.shape[1],
                )  # fmt: skip
    return values_by_metric


C2ST_REPLICATES = 20
"""Number of bootstrap replicates of the two-sample test, which fits a model in each replicate."""
MEAN_MEASURES = ("change", "leak", "iou_visible", "edge_ratio")
"""Measures of the jobs whose means are scores."""


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """Settings of the scores. classes: {finding: class of the detector}; detector, classifier: engines of the stages
    ``boxes`` and ``semisyn_healthy``; painted: whether images are painted (engine ``lite``); reference: reference with
    the real images; extractors: {feature engine: its METRICS}."""

    config: str
    classes: dict[str, str]
    detector: str
    classifier: str
    painted: bool
    replicates: int
    seed: int
    findings: list[str]
    reference: str
    extractors: dict[str, dict[str, str]]


def run(
    *, jobs: list[str], boxes: list[str], requested_boxes: list[str], detected: list[str], table: str, output: str,
    replicates: str, options: ScoreOptions, references: Sequence[str] = (), **features: list[str],
) -> None:  # fmt: skip
    """Score one configuration. Write ``table`` (measures of all jobs), ``output`` (:data:`SCORES`) and ``replicates``.
    ``jobs``, ``boxes``, ``references``: measures of jobs, their boxes and the real boxes; ``detected``: boxes of the
    detector; ``features``: files ``edited_{engine}`` and ``real_{engine}``. Raise UserError if no image of the
    reference is in the cohort."""
    every = read_tables(jobs).sort("job_id")
    write_table(table, every, JOBS)
    fresh = every.filter(~pl.col("trial"))
    # trial jobs selected the configuration, so other jobs score it if there are any
    scored_jobs = fresh if options.config == CHOSEN_CONFIG and len(fresh) else every.filter("trial")
    parts, conditioning, detections = map(read_tables, (boxes, requested_boxes, detected))
    real = read_tables(references) if references else pl.DataFrame(schema=schema(REFERENCE))
    if references and not len(real):
        raise UserError(
            f"semisyn.references.{options.reference} has no image of the cohort with a finding: name another reference "
            "in semisyn.realism.reference"
        )
    job_ids, image_ids = set(scored_jobs["job_id"]), set(real["image_id"])
    featured = {}
    for engine, names in options.extractors.items():
        edited_paths, real_paths = features[f"edited_{engine}"], features.get(f"real_{engine}", [])
        distances = {kind for kind in names if kind != "similarity" and real_paths}
        featured[engine] = EngineFeatures(
            {kind: name for kind, name in names.items() if kind in {*distances, "similarity"}},
            _read_features(edited_paths, job_ids) if distances else {},
            _read_features(edited_paths, job_ids, "similarity") if "similarity" in names else {},
            _read_features(real_paths, image_ids) if distances else {},
        )
    rows, replicate_rows = [], []
    for finding in options.findings:
        finding_jobs = scored_jobs.filter(pl.col("finding") == finding)
        if not len(finding_jobs):
            continue
        # the draws depend on the source patients alone, so all configurations share them
        seed = stable_hash(options.seed, finding)
        draws = draw_patients(finding_jobs["subject_id"].to_list(), options.replicates, seed)
        theirs = real.filter(pl.col("finding") == finding)
        measures = {name: finding_jobs[name] for name in MEAN_MEASURES}
        measures["ctr_error"] = (finding_jobs["ctr_measured"] - finding_jobs["ctr_requested"]).abs()
        # {metric: its value and replicates, the real images of the comparison, the model that scores}
        values_by_metric = {
            name: (mean_over_draws(values.to_numpy(), draws), "", "")
            for name, values in measures.items()
            if values.null_count() < len(finding_jobs)
        }
        if finding in options.classes:
            class_boxes = detections.filter(pl.col("class_name") == options.classes[finding])
            scores = score_by_detector(finding_jobs, conditioning, class_boxes, draws)
            values_by_metric |= {name: (each, "", options.detector) for name, each in scores.items()}
        ours = parts.filter(pl.col("job_id").is_in(finding_jobs["job_id"].implode()))
        measured = theirs.drop_nulls(FEATURES)
        if len(ours) and len(measured):
            patients = [table["subject_id"].to_list() for table in (ours, measured)]
            test = two_sample_test(
                ours.select(FEATURES).to_numpy(), patients[0], measured.select(FEATURES).to_numpy(), patients[1],
                draw_patients(patients[0], C2ST_REPLICATES, seed),
            )  # fmt: skip
            if np.isfinite(test[0]):
                values_by_metric["c2st"] = test, f"{options.reference}, {len(measured)} boxes", ""
        images = theirs["image_id"].unique().sort()
        for engine, engine_features in featured.items():
            for name, each in score_features(engine_features, finding_jobs, images, draws).items():
                is_similarity = name == engine_features.names.get("similarity")
                reference = "" if is_similarity else f"{options.reference}, {len(images)} images"
                values_by_metric[name] = each, reference, engine
        for metric, (values, reference, engine) in values_by_metric.items():
            low, high = percentile_ends(values[1:, None], INTERVAL) if len(values) > 1 else (np.full(1, np.nan),) * 2
            numbers = (None if np.isnan(number) else float(number) for number in (values[0], low[0], high[0]))
            # an engine lite learnt from painted lesions, so its score of painted images says little
            circular = engine == "lite" and options.painted
            screened = metric == "auroc" and engine == options.classifier
            labels = reference, engine, circular, screened, finding_jobs["trial"][0]
            rows.append((options.config, finding, metric, *numbers, len(finding_jobs), *labels))
            replicate_rows += [
                (finding, options.config, metric, number - 1, None if np.isnan(value) else float(value), circular)
                for number, value in enumerate(values)
            ]
    write_rows(output, rows, SCORES)
    write_rows(replicates, replicate_rows, REPLICATES)


def score_by_detector(
    jobs: pl.DataFrame, conditioning: pl.DataFrame, detected: pl.DataFrame, draws: np.ndarray
) -> dict[str, np.ndarray]:
    """Return {"auroc": values, "ap1070": values} of ``draws``, or {} if no image has a detected box of the finding."""
    if not (pl.concat([jobs["score"], jobs["source_score"]]) > 0).any():
        return {}
    place = {job: number for number, job in enumerate(jobs["job_id"])}
    true = conditioning.filter(pl.col("kind") == "conditioning", pl.col("job_id").is_in(list(place)))
    detections = detected.filter(pl.col("image_id").is_in(list(place))).rename({"image_id": "job_id"})
    predicted_boxes, true_boxes = (
        Boxes(np.array([place[job] for job in table["job_id"]], np.int64), table.select(CORNERS).to_numpy())
        for table in (detections, true)
    )
    return {
        "auroc": auroc(jobs["score"].to_numpy(), jobs["source_score"].to_numpy(), draws),
        "ap1070": ap1070(predicted_boxes, detections["confidence"].to_numpy(), true_boxes, draws),
    }
