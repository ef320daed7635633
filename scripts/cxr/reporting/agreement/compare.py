"""The agreement stage: score masks, anomaly maps and boxes against references (files of human annotations).

An image is compared if it is in the reference and has a frame (its 512 × 512 version, on which the pipeline works).
Every other image, and every annotated region that cannot be compared, has one row in the table ``excluded`` with a
reason of :data:`cxr.reporting.agreement.references.EXCLUSION_REASONS`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import polars as pl

from cxr.base.columns import Column, interval_columns, schema
from cxr.base.edited_images import is_unedited
from cxr.base.errors import UserError
from cxr.base.hdf5 import FRAME_SIZE, Shard
from cxr.base.jobs import progress
from cxr.base.paths import group_by_folder
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import LUNGS
from cxr.geometry.boxes import CORNERS
from cxr.geometry.masks import component_boxes
from cxr.metrics.intervals import ratio_intervals
from cxr.reporting.agreement import measures
from cxr.reporting.agreement.measures import Measure
from cxr.reporting.agreement.references import (
    ANY,
    EXCLUSION_REASONS,
    MIN_COMPONENT_PX,
    PAINTED,
    Reference,
    Region,
    drop_duplicates,
    included_lesions,
    load_reference,
    region_in_frame,
    union_mask,
)
from cxr.reporting.agreement.settings import ReferenceSettings

HEART = "cardiomegaly"
COVERAGE = 0.95
"""Coverage of the confidence intervals."""
REPLICATES = 1000
"""Number of bootstrap replicates, which resample patients."""
BOX_IOUS = (0.3, 0.5)
"""Minimum IoUs at which a detected box matches an annotated one. Each one is scored; the curves show the first."""
SAME_BOX_IOU = 0.5
"""Minimum IoU at which two readers' boxes of the same lesion type count as duplicates."""
NO_BOXES = pl.DataFrame(schema=dict.fromkeys((*CORNERS, "confidence"), pl.Float64))
ANOMALY_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
"""Values of tau_ano, the threshold of the anomaly map, at which the map is scored; fractions of 255."""
CONFIDENCE_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
"""Minimum confidences of the detected boxes at which boxes are scored."""
KEY_COLUMNS = {
    "reference": Column(pl.String, "Reference, by its name in `agreement.references`."),
    "output": Column(pl.String, "What is scored: `masks {thresholds}`, `anomaly map` or `boxes`."),
    "lesion": Column(pl.String, "Lesion type, or `any`: all except cardiomegaly."),
    "measure": Column(pl.String, "Name of the measure ([agreement.md](../how-to/agreement.md#what-is-measured))."),
    "at": Column(pl.Float64, "Threshold of the measure: tau_ano for the map, confidence for boxes; null for masks."),
}
VALUES = KEY_COLUMNS | {
    "subject_id": Column(pl.String, "Patient."),
    "image_id": Column(pl.String, "Image."),
    "top": Column(pl.Float64, "Numerator of the image's measure."),
    "below": Column(pl.Float64, "Denominator; a score is the sum of `top` over the sum of `below`."),
}
SCORES = KEY_COLUMNS | {
    "value": Column(pl.Float64, "Score; null if its denominator is 0."),
    **interval_columns("", "its 95 % interval, by patients"),
    "images": Column(pl.Int64, "Number of images that the score counts."),
    "patients": Column(pl.Int64, "Number of patients of these images."),
}
EXCLUSIONS = {
    "reference": Column(pl.String, "Reference."),
    "image_id": Column(pl.String, "Id of the image as the reference gives it; the cohort may lack the image."),
    "reason": Column(pl.String, "Code of the reason ([agreement.md](../how-to/agreement.md#what-is-measured))."),
    "detail": Column(pl.String, "Label of the region, or the reason why the image has no frame; else empty."),
}
POPULATION = {
    "reference": Column(pl.String, "Reference."),
    "outcome": Column(pl.String, "`compared`, or the code of the reason for an exclusion."),
    "number": Column(pl.Int64, "Number of images compared, or of images or regions excluded."),
    "meaning": Column(pl.String, "Meaning of the outcome."),
}
KEYS = list(KEY_COLUMNS)


@dataclass(frozen=True)
class CohortPart:
    """The open files and the tables of one shard of the cohort."""

    frames: Shard
    organs: Shard
    anomaly: Shard
    boxes: Mapping[str, pl.DataFrame]
    """{image_id: detected boxes of the classes that the masks stage uses}."""
    without_boxes: set[str]
    """Ids of the images that the boxes stage excluded."""
    findings: Mapping[str, Mapping[str, list[dict]]]
    """{threshold set: {image_id: findings whose masks are used}} for the images that reached the masks stage."""
    masks: Mapping[str, Shard]


def run_images(
    *,
    reference: str,
    images: str,
    frames: list[str],
    organs: list[str],
    anomaly: list[str],
    boxes: list[str],
    boxes_excluded: list[str],
    findings: list[str],
    studies: list[str],
    masks: list[str],
    values: str,
    excluded: str,
    options: ReferenceSettings,
    name: str,
    sets: Sequence[str],
) -> None:
    """Compare the results with the annotation file ``reference``. Write tables of ``values`` and ``excluded``.

    ``name`` and ``options`` are the name and the settings of the reference. ``sets`` are the threshold sets to compare.
    Lists have one file per shard, but ``findings``, ``studies`` and ``masks`` have one per shard and threshold set.
    """
    key = f"agreement.references.{name}.path"
    reference_data = load_reference(key, options.format, reference, options.classes, options.image_id)
    row_by_image = {row["image_id"]: row for row in read_table(images).iter_rows(named=True)}
    exclusions = [*reference_data.exclusions]
    exclusions += [(image, "no_image", "") for image in reference_data.regions if image not in row_by_image]
    tables = [pl.DataFrame(schema=schema(VALUES))]
    framed: set[str] = set()
    findings_by_set, studies_by_set, masks_by_set = map(group_by_folder, (findings, studies, masks))
    for place in progress(range(len(frames)), len(frames), f"agreement with {name}"):
        rows: list[tuple] = []
        with ExitStack() as stack:
            used_boxes = read_table(boxes[place]).filter("is_used").partition_by("image_id", as_dict=True)
            maps = [stack.enter_context(Shard(paths[place])) for paths in (frames, organs, anomaly)]
            shards = CohortPart(
                maps[0],
                maps[1],
                maps[2],
                {str(image_id): rows for (image_id,), rows in used_boxes.items()},
                set(read_table(boxes_excluded[place])["image_id"]),
                {key: _read_used_findings(findings_by_set[key][place], studies_by_set[key][place]) for key in sets},
                {key: stack.enter_context(Shard(masks_by_set[key][place], key="mask_id")) for key in sets},
            )
            painted = stack.enter_context(Shard(reference)) if options.format == PAINTED else None
            framed.update(shards.frames.ids)
            for image_id in shards.frames.ids:
                if image_id not in reference_data.regions:
                    exclusions.append((image_id, "no_reference", ""))
                    continue
                regions = _regions_in_frame(image_id, reference_data, shards.frames, painted, exclusions)
                subject = row_by_image[image_id]["subject_id"]
                rows += [
                    (name, output, lesion, value.name, value.at, subject, image_id, value.numerator, value.denominator)
                    for output, lesion, value in _measure_image(image_id, regions, reference_data.lesions, shards)
                ]
        tables.append(pl.DataFrame(rows, schema=schema(VALUES), orient="row"))  # a list of tuples needs far more memory
    unframed = [image for image in reference_data.regions if image in row_by_image and image not in framed]
    exclusions += [(image, "no_frame", row_by_image[image]["reason"] or "frames") for image in unframed]
    write_table(values, pl.concat(tables).sort(*VALUES), VALUES)
    table = pl.DataFrame([(name, *row) for row in exclusions], schema=schema(EXCLUSIONS), orient="row")
    write_table(excluded, table.sort(*EXCLUSIONS), EXCLUSIONS)


def _read_used_findings(findings: str, studies: str) -> dict[str, list[dict]]:
    findings_by_image: dict[str, list[dict]] = {image: [] for image in read_table(studies)["image_id"]}
    used = read_table(findings).filter(pl.col("mask_id").is_not_null() & pl.col("reason").is_null())
    for row in used.select("image_id", "target", "mask_id").iter_rows(named=True):
        findings_by_image[row["image_id"]].append(row)
    return findings_by_image


def _regions_in_frame(
    image_id: str, reference: Reference, frames: Shard, painted: Shard | None, exclusions: list[tuple]
) -> list[Region]:
    """Return an image's annotated regions in its frame, or its ground truth from the shard ``painted`` if there is one.
    Append regions that cannot be compared to ``exclusions``."""
    if painted is not None:
        masks = painted.masks(image_id)
        return [
            Region(name, masks[name], component_boxes(masks[name], MIN_COMPONENT_PX))
            for name in reference.lesions
            if masks[name].any()
        ]
    shape = tuple(int(side) for side in frames.get("original_shape", image_id))
    affine = frames.get("to_original", image_id)
    regions = []
    for annotation in reference.regions[image_id]:
        lesion = reference.lesion_by_label[annotation.label]
        region, why = region_in_frame(annotation, lesion, affine, shape, FRAME_SIZE)
        if region is None:
            exclusions.append((image_id, why, annotation.label))
        else:
            regions.append(region)
    distinct_regions, num_duplicates = drop_duplicates(regions, SAME_BOX_IOU)
    exclusions += [(image_id, "drawn_twice", "")] * num_duplicates
    return distinct_regions


def _measure_image(
    image_id: str, regions: Sequence[Region], lesions: Sequence[str], shards: CohortPart
) -> Iterator[tuple[str, str, Measure]]:
    """Yield ("masks <set>", "anomaly map" or "boxes"; lesion type; measure) for each lesion type marked in an image.
    The number of false boxes belongs to the lesion type ``any`` and is yielded even if no lesion is marked."""
    chest = [lesion for lesion in lesions if lesion != HEART]
    masks = {lesion: union_mask(regions, lesion, FRAME_SIZE) for lesion in (*lesions, *([ANY] if chest else []))}
    region_by_lesion = {lesion: region for lesion, region in masks.items() if region.any()}
    for name, of_image in shards.findings.items():
        if image_id in of_image:
            for lesion, region in region_by_lesion.items():
                mask_ids = {row["mask_id"] for row in of_image[image_id] if row["target"] in included_lesions(lesion)}
                lesion_masks = [shards.masks[name].get("mask", mask_id) for mask_id in sorted(mask_ids)]
                mask = np.logical_or.reduce([np.zeros_like(region), *lesion_masks])
                yield from ((f"masks {name}", lesion, value) for value in measures.measure_mask(mask, region))
    places = {lesion: region for lesion, region in region_by_lesion.items() if lesion != HEART}
    if image_id in shards.anomaly and places and not is_unedited(shards.anomaly, image_id):
        organs = shards.organs.masks(image_id)
        lungs = organs[LUNGS[0]] | organs[LUNGS[1]]
        anomaly_map = shards.anomaly.get("anomaly", image_id)
        for lesion, region in places.items():
            values = measures.measure_map(anomaly_map, region, lungs, ANOMALY_STEPS)
            yield from (("anomaly map", lesion, value) for value in values)
    if image_id not in shards.without_boxes and chest:
        rows = shards.boxes.get(image_id, NO_BOXES)
        detected = rows.select(CORNERS).to_numpy(), rows["confidence"].to_numpy()
        for lesion in places:
            values = measures.measure_boxes(*detected, _reference_boxes(regions, lesion), BOX_IOUS, CONFIDENCE_STEPS)
            yield from (("boxes", lesion, value) for value in values)
        for iou in BOX_IOUS:
            values = measures.count_false_boxes(*detected, _reference_boxes(regions, ANY), iou, CONFIDENCE_STEPS)
            yield from (("boxes", ANY, value) for value in values)


def _reference_boxes(regions: Sequence[Region], lesion: str) -> np.ndarray:
    box_arrays = [region.boxes for region in regions if region.lesion in included_lesions(lesion)]
    return np.concatenate([np.zeros((0, 4)), *box_arrays])


def run_scores(
    *, values: list[str], excluded_parts: list[str], scores: str, excluded: str, population: str, seed: int
) -> None:
    """Write the tables of scores, exclusions and counts (``population``). Raises UserError if no image was compared."""
    table = pl.concat([read_table(path) for path in values])
    exclusions = pl.concat([read_table(path) for path in excluded_parts])
    if table.is_empty():
        reasons = exclusions.group_by("reason").len().sort("reason").iter_rows()
        numbers = [f"{number} {reason} ({EXCLUSION_REASONS[reason]})" for reason, number in reasons]
        summary = ", ".join(numbers) or "the references contain no image"
        raise UserError(
            f"agreement.references: no image could be compared: {summary}. Set image_id of the reference so that it "
            "gives the cohort's image ids, or look up why the images were excluded in results/cohort/excluded.parquet"
        )
    write_table(scores, tabulate_scores(table, REPLICATES, seed), SCORES)
    write_table(excluded, exclusions.sort(exclusions.columns), EXCLUSIONS)
    write_table(population, tabulate_population(table, exclusions), POPULATION)


def tabulate_scores(table: pl.DataFrame, replicates: int, seed: int) -> pl.DataFrame:
    """Return the rows of :data:`SCORES`: one per reference, output, lesion type, measure and threshold.
    ``table`` has the rows of :data:`VALUES`. The bootstrap resamples patients. A score with denominator 0 is null."""
    score_tables = []
    for of_reference in table.partition_by("reference", maintain_order=True):
        groups = of_reference.select(KEYS).unique(maintain_order=True).sort(KEYS).with_row_index("column")
        subjects = of_reference.select("subject_id").unique().sort("subject_id").with_row_index("subject")
        placed = of_reference.join(groups, on=KEYS, nulls_equal=True).join(subjects, on="subject_id")
        sums = placed.group_by("subject", "column").agg(pl.col("top", "below").sum())
        top, below = (np.zeros((len(subjects), len(groups))) for _ in range(2))
        at = sums["subject"].to_numpy(), sums["column"].to_numpy()
        top[at], below[at] = sums["top"].to_numpy(), sums["below"].to_numpy()
        low, high = ratio_intervals(top, below, replicates=replicates, level=COVERAGE, seed=seed)
        denominators = below.sum(axis=0)
        value = np.divide(top.sum(axis=0), denominators, out=np.full(len(groups), np.nan), where=denominators > 0)
        group_sizes = placed.filter(pl.col("below") > 0).group_by("column").agg(
            images=pl.col("image_id").n_unique(), patients=pl.col("subject_id").n_unique()
        )  # fmt: skip
        numbers = pl.DataFrame({"value": value, "low": low, "high": high}, nan_to_null=True).select(pl.all().round(6))
        numbers = numbers.with_row_index("column")
        rows = groups.join(numbers, on="column").join(group_sizes, on="column", how="left").sort("column")
        score_tables.append(rows.with_columns(pl.col("images", "patients").fill_null(0).cast(pl.Int64)).drop("column"))
    return pl.concat(score_tables)


def tabulate_population(table: pl.DataFrame, exclusions: pl.DataFrame) -> pl.DataFrame:
    """Return :data:`POPULATION`: per reference, the numbers of images in ``table`` and of exclusions by reason."""
    compared = table.group_by("reference").agg(number=pl.col("image_id").n_unique())
    rows = [(name, "compared", number, "images with a measure") for name, number in compared.iter_rows()]
    for name, reason, number in exclusions.group_by("reference", "reason").len().iter_rows():
        rows.append((name, reason, number, EXCLUSION_REASONS[reason]))
    return pl.DataFrame(rows, schema=schema(POPULATION), orient="row").sort("reference", "outcome")
