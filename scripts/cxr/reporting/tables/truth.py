"""Compare results on the project's synthetic cohort with its ground truth: masks, confirmed zones, read findings.

The ground truth of a synthetic X-ray is its painted lesions, one mask per lesion type, in the frame. The ground truth
of its report is the plan from which the report was written.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.hdf5 import Shard, Shards
from cxr.base.paths import group_by_folder
from cxr.base.tables import THRESHOLDS, read_lines, read_tables, write_table
from cxr.base.vocabulary import LESIONS, LUNG_LESIONS
from cxr.metrics import masks

ALL = "all"
MIN_LESION_PX = 64
"""A zone contains a lesion if it has at least this number of painted pixels of the lesion."""
TRUTH = {
    "measure": Column(pl.String, "Measure of the results against the ground truth."),
    "lesion": Column(pl.String, "Lesion type, or `all`."),
    "value": Column(pl.Float64, "Mean Dice or fraction of hits, 0 to 1; null without a comparison."),
    "trials": Column(pl.Int64, "Number of comparisons with the ground truth."),
}
Trial = tuple[str, str, float]
"""(measure, lesion type, value). The value is True for a hit, False for a miss, or a Dice from 0 to 1."""
MASK_MEASURES = ("mask Dice", "grounding precision", "grounding recall")
TEXT_MEASURES = (
    "text precision", "text recall", "text labels", "text certainty", "text denial precision", "text denial recall",
)  # fmt: skip


def mask_measures(
    findings: pl.DataFrame, mask: Callable[[str], np.ndarray], truth: Callable[[str], Mapping[str, np.ndarray] | None]
) -> Iterator[Trial]:
    """Compare lesion masks, and the zones that they confirm (``grounded``), with the painted lesions. Yield a trial for
    each comparison in :data:`MASK_MEASURES`.

    ``mask`` returns a mask by its id. ``truth`` returns {name: mask} of an image's painted lesions and zones, or None
    for an unknown image. Dice compares the union of an image's grounded masks of a lesion type (of all its masks for
    cardiomegaly) with the painted lesion. The other measures count the reported zones of all types except cardiomegaly.
    Precision is the fraction of the confirmed zones that contain the painted lesion. Recall is the fraction of the
    zones with the painted lesion that are confirmed.
    """
    dice, precision, recall = MASK_MEASURES
    rows = findings.filter(pl.col("target").is_not_null()).sort("image_id", "finding")
    for (image_id,), group in rows.group_by(["image_id"], maintain_order=True):
        painted = truth(str(image_id))
        if painted is None:
            continue
        unions: dict[str, np.ndarray] = {}
        for row in group.iter_rows(named=True):
            lesion, usable = row["target"], row["grounded"] or row["target"] not in LUNG_LESIONS
            if row["mask_id"] is not None and usable:
                lesion_mask = mask(row["mask_id"])
                unions[lesion] = unions[lesion] | lesion_mask if lesion in unions else lesion_mask
            for label in row["reported"] if lesion in LUNG_LESIONS else ():
                holds = int((painted[lesion] & painted[label]).sum()) >= MIN_LESION_PX
                grounded = label in row["grounded"]
                if grounded:
                    yield precision, lesion, holds
                if holds:
                    yield recall, lesion, grounded
        for lesion, lesion_mask in unions.items():
            yield dice, lesion, masks.dice(*masks.overlap(lesion_mask, painted[lesion]), empty=1.0)


def text_measures(lines: Iterable[Mapping], truths: Mapping[str, Mapping]) -> Iterator[Trial]:
    """Compare findings read from each report with the plan it was written from. Yield trials of :data:`TEXT_MEASURES`.

    Text precision and recall compare which lesion types are stated in each study. If both the report and the plan state
    the type, its zone labels and its certainty are hits if they are equal. The denial measures compare which lesion
    types are denied. ``truths`` is {study_id: plan}.
    """
    for line in lines:
        truth = truths.get(line["study_id"])
        if truth is None or truth["report_fault"]:
            continue
        affirmed = [row for row in line["tuples"] if row["presence"] == "positive"]
        read = _stated_findings((_target_lesion(row), row) for row in affirmed)
        written = _stated_findings((row["target"], row) for row in truth["findings"])
        denials = [row for row in line["tuples"] if row["presence"] == "negative" and row.get("denies", True)]
        denied = {row["lesion_type"] for row in denials}
        for lesion in LESIONS:
            ours, theirs = read.get(lesion), written.get(lesion)
            if ours:
                yield "text precision", lesion, theirs is not None
            if theirs:
                yield "text recall", lesion, ours is not None
            if ours and theirs:
                if lesion in LUNG_LESIONS:
                    yield "text labels", lesion, ours[0] == theirs[0]
                yield "text certainty", lesion, ours[1] == theirs[1]
            if lesion in denied:
                yield "text denial precision", lesion, lesion in truth["negatives"]
            if lesion in truth["negatives"]:
                yield "text denial recall", lesion, lesion in denied


def _target_lesion(row: Mapping) -> str | None:
    """Return the lesion type that the report names as a finding's cause, or the finding's own type if it names none."""
    predicted = row["predicted_lesion_type"]
    return predicted if predicted in LESIONS else row["lesion_type"]


def _stated_findings(rows: Iterable[tuple[str | None, Mapping]]) -> dict[str, tuple[frozenset[str], bool]]:
    """Return {lesion type: (zone labels, whether a finding is definitive)} from rows of (lesion type, finding)."""
    labels: dict[str, set[str]] = defaultdict(set)
    sure: Counter = Counter()
    for lesion, row in rows:
        if lesion in LESIONS:
            labels[lesion] |= set(row["labels"])
            sure[lesion] += row["certainty"] == "definitive"
    return {lesion: (frozenset(zone_labels), sure[lesion] > 0) for lesion, zone_labels in labels.items()}


def tabulate_truth(trials: Iterable[Trial]) -> pl.DataFrame:
    """Return the rows of :data:`TRUTH`: per measure, one for each lesion type with a trial, and one for ``all``."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for measure, lesion, value in trials:
        values[measure, lesion].append(value)
        values[measure, ALL].append(value)
    rows = [
        (measure, name, round(sum(hits) / len(hits), 3) if hits else None, len(hits))
        for measure in (*MASK_MEASURES, *TEXT_MEASURES)
        for name in (*LESIONS, ALL)
        if (hits := values[measure, name]) or name == ALL
    ]
    return pl.DataFrame(rows, schema=schema(TRUTH), orient="row")


def run_truth(
    *,
    truth_lines: str,
    truth_masks: str,
    reports: list[str],
    findings: list[str],
    masks: list[str],
    truth_table: str,
    thresholds: list[str],
) -> None:
    """Compare the results on the project's synthetic cohort with its ground truth, for each threshold set.

    ``findings`` and ``masks`` are files in folders named after the threshold sets. The measures of texts do not depend
    on thresholds and are repeated for each set.
    """
    written = {row["study_id"]: row for row in read_lines(truth_lines)}
    text = list(text_measures((line for path in reports for line in read_lines(path)), written))
    masks_by_set, findings_by_set = group_by_folder(masks), group_by_folder(findings)
    tables = []
    with Shard(truth_masks) as painted:

        def painted_masks(image_id: str) -> Mapping[str, np.ndarray] | None:
            return painted.masks(image_id) if image_id in painted else None

        for name in thresholds:
            with Shards(masks_by_set[name], "mask_id") as shards:
                finding_rows = read_tables(findings_by_set[name])
                trials = mask_measures(finding_rows, partial(shards.get, "mask"), painted_masks)
                table = tabulate_truth([*trials, *text])
            tables.append(table.select(pl.lit(name).alias("thresholds"), pl.all()))
    write_table(truth_table, pl.concat(tables), THRESHOLDS | TRUTH)
