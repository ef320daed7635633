"""Count findings with grounded masks under many threshold sets in one pass over a shard (Table 8).

A mask is grounded if it confirms a zone that the report names. The recall of a lesion type is the fraction of its
studies with a grounded mask. A study whose report names no zone cannot have one, and counts as a miss.
"""

from collections.abc import Mapping
from pathlib import Path

import cv2
import polars as pl

from cxr.base.columns import read_columns, schema
from cxr.base.jobs import progress
from cxr.base.tables import write_table
from cxr.base.vocabulary import LESIONS
from cxr.ils.masks.findings import CARDIOMEGALY, Finding
from cxr.ils.masks.inputs import Case, ShardCases
from cxr.ils.masks.outcomes import Outcome, compute_decision, compute_outcome
from cxr.ils.masks.settings import SweepSettings
from cxr.ils.masks.thresholds import ThresholdSet
from cxr.ils.masks.zones import count_pixels, unite_masks

RESOURCE_FILES = ("columns/masks.toml",)
SWEEP = read_columns("masks", "sweep")


def make_sweep_rows(case: Case, sets: Mapping[str, ThresholdSet]) -> dict[str, list[dict]]:
    """Return {threshold set: rows of the sweep table} of one image. Sets that select equal boxes share their masks."""
    by_lesion: dict[str, list[Finding]] = {}
    for finding in case.findings:
        if finding.target and finding.target != CARDIOMEGALY:
            by_lesion.setdefault(finding.target, []).append(finding)
    rows: dict[str, list[dict]] = {name: [] for name in sets}
    for lesion in (lesion for lesion in LESIONS if lesion in by_lesion):
        findings, row_by_decisions = by_lesion[lesion], {}
        for name, thresholds in sets.items():
            decisions = tuple(compute_decision(finding, case, thresholds) for finding in findings)
            if decisions not in row_by_decisions:
                outcomes = [compute_outcome(finding, case, thresholds) for finding in findings]
                row_by_decisions[decisions] = case.names | {"lesion": lesion} | _count_outcomes(outcomes)
            rows[name].append({"thresholds": name} | row_by_decisions[decisions])
    return rows


def _count_outcomes(outcomes: list[Outcome]) -> dict:
    grounded = [lesion_outcome.mask for lesion_outcome in outcomes if lesion_outcome.grounded]
    return {
        "findings": len(outcomes),
        "has_labels": any(lesion_outcome.finding.reported for lesion_outcome in outcomes),
        "masks": sum(lesion_outcome.mask is not None for lesion_outcome in outcomes),
        "grounded": len(grounded),
        "mask_px": count_pixels(unite_masks(grounded)) if grounded else 0,
    }


def run_shard(*, output: str | Path, options: SweepSettings, **inputs: str | Path) -> None:
    """Write a shard's sweep table, a row per image, lesion type and threshold set; ``inputs``: see ShardCases."""
    cv2.setNumThreads(1)
    sets = {name: ThresholdSet.from_settings(values.as_dict()) for name, values in options.sets.items()}
    rows: dict[str, list[dict]] = {name: [] for name in sets}
    smallest_level = min((thresholds.smallest_level for thresholds in sets.values()), default=1)
    with ShardCases(options, smallest_level, **inputs) as population:
        for case in progress(population, len(population), "masks"):
            for name, sweep_rows in make_sweep_rows(case, sets).items():
                rows[name] += sweep_rows
    sweep_rows = [row for part in rows.values() for row in part]
    write_table(output, pl.DataFrame(sweep_rows, schema=schema(SWEEP)), SWEEP)
