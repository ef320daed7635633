"""The masks stage: make the lesion masks of one shard under one threshold set, and join the shards.

Every image of :class:`cxr.ils.masks.inputs.ShardCases` is accepted, because a study without a positive finding still
gets negative pairs in the dataset stage.

The HDF5 file ``output`` (key ``mask_id``) has the field ``mask``, packed (512, 512), with each distinct mask once.
Three tables are sorted by study and image. ``findings`` has one row per positive finding, of any lesion type, in the
report section that is used. ``units`` has one row per positive instruction, still without its text. A unit without a
reason in the column ``dropped`` becomes a pair. ``studies`` has one row per image, which says where lesions may be
denied.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import cv2
import numpy as np
import polars as pl

from cxr.base.columns import read_columns, schema
from cxr.base.hdf5 import Shard, ShardWriter, mask_id
from cxr.base.jobs import progress
from cxr.base.ledger import Ledger
from cxr.base.tables import EXCLUDED, read_table, write_table
from cxr.ils.masks.evidence import compute_cardiothoracic_ratio, compute_location_evidence
from cxr.ils.masks.inputs import Case, ShardCases
from cxr.ils.masks.outcomes import Outcome, compute_outcome
from cxr.ils.masks.settings import MasksSettings
from cxr.ils.masks.thresholds import ThresholdSet
from cxr.ils.masks.units import Unit, make_positive_units
from cxr.ils.masks.zones import count_pixels
from cxr.instructions.mimic_ils import INDEX, make_index_table

RESOURCE_FILES = ("columns/masks.toml",)
NAMES = read_columns("masks", "names")
FINDINGS, UNITS, STUDIES = (NAMES | read_columns("masks", table) for table in ("findings", "units", "studies"))


class MaskWriter:
    """Writer that stores each distinct mask of a shard once."""

    def __init__(self, write: Callable[[str, np.ndarray], None]) -> None:
        """``write``: function that stores a mask, called with (mask_id, uint8 packed (H, W / 8))."""
        self._write = write
        self._written: set[str] = set()
        self._study: str | None = None
        self._named: dict[int, tuple[np.ndarray, str]] = {}

    def add(self, study_id: str, packed: np.ndarray | None) -> str | None:
        """Return the id of a mask, uint8 packed (H, W / 8), and store it if it is new. Return None for None."""
        if packed is None:
            return None
        if study_id != self._study:
            self._study, self._named = study_id, {}
        # a unit often shares its finding's array; the stored reference keeps Python from reusing its id()
        _, name = self._named.get(id(packed), (packed, None))
        if name is None:
            name = mask_id(study_id, packed)
            self._named[id(packed)] = packed, name
        if name not in self._written:
            self._written.add(name)
            self._write(name, packed)
        return name


def make_finding_rows(case: Case, outcomes: list[Outcome], masks: MaskWriter) -> list[dict]:
    """Return an image's rows of the findings table, and store the masks of the findings."""
    rows = []
    lesions = [outcome for outcome in outcomes if outcome.mask is not None and not outcome.finding.heart]
    for outcome in outcomes:
        finding = outcome.finding
        is_lesion = outcome.mask is not None and not finding.heart
        lesions_beside = [lesion for lesion in lesions if is_lesion and lesion is not outcome]
        shared = [lesion.finding.index for lesion in lesions_beside if (lesion.mask & outcome.mask).any()]
        row = {"finding": finding.index, "word": finding.word if finding.target else None}
        row |= {name: getattr(finding, name) for name in ("entity", "sentence_index", "target", "certainty", "hedge")}
        row |= {"reported": finding.reported, "mask_id": masks.add(case.study_id, outcome.mask), "shared_with": shared}
        row |= {
            name: getattr(outcome, name) for name in ("grounded", "locations", "reported_locations", "area", "reason")
        }
        row |= {"productive_boxes": outcome.num_productive_boxes, "box_verdicts": outcome.verdicts.tolist()}
        row |= {"share_outside": outcome.num_pixels_outside / outcome.area if is_lesion else None}
        rows.append(case.names | row)
    return rows


def make_unit_rows(case: Case, units: Iterable[Unit], masks: MaskWriter) -> list[dict]:
    """Return an image's rows of the units table, and store the masks of the units (positive instructions)."""
    rows = []
    shared_names = "kind", "target", "word", "certainty", "sentence_index", "location"
    for number, unit in enumerate(units):
        row = {name: getattr(unit, name) for name in (*shared_names, "inference", "dropped", "inference_dropped")}
        row |= {"unit": number, "grounded_location": unit.grounded, "reported_location": unit.reported}
        row |= {"finding": unit.findings, "mask_id": masks.add(case.study_id, unit.mask)}
        rows.append(case.names | row | {"area": 0 if unit.mask is None else count_pixels(unit.mask)})
    return rows


def run_shard(
    *,
    output: str | Path,
    findings: str | Path,
    units: str | Path,
    studies: str | Path,
    excluded: str | Path,
    options: MasksSettings,
    attrs: dict,
    **inputs: str | Path,
) -> None:
    """Write the lesion masks ``output`` and the tables of one shard under one threshold set (see the module).

    ``attrs``: attributes of the HDF5 file; ``inputs``: paths that :class:`cxr.ils.masks.inputs.ShardCases` takes. One
    core and the memory of one image are used. Raises StoreError for a damaged input.
    """
    cv2.setNumThreads(1)
    thresholds = ThresholdSet.from_settings(options.thresholds.as_dict())
    ledger = Ledger("masks")
    tables: dict[str, list[dict]] = {"findings": [], "units": [], "studies": []}
    with (
        ShardCases(options, thresholds.smallest_level, **inputs) as population,
        ShardWriter(output, key="mask_id", attrs=attrs, empty={"mask": (population.frame, bool)}) as writer,
    ):
        masks = MaskWriter(lambda name, packed: writer.append(name, mask=packed))
        for case in progress(population, len(population), "masks"):
            outcomes = [compute_outcome(finding, case, thresholds) for finding in case.findings]
            tables["findings"] += make_finding_rows(case, outcomes, masks)
            case_units = make_positive_units(outcomes, case.zones.union, options)
            tables["units"] += make_unit_rows(case, case_units, masks)
            row = compute_location_evidence(outcomes, case.blocking_findings, case.related, case.zones, options)
            ratio = compute_cardiothoracic_ratio(case.heart, case.lungs, case.to_original)
            tables["studies"].append(case.names | {"ctr": ratio} | row | {"signs": case.measure_signs()})
            ledger.accept(case.image_id)
    declared = {findings: FINDINGS, units: UNITS, studies: STUDIES}
    for (path, table_columns), rows in zip(declared.items(), tables.values(), strict=True):
        write_table(path, pl.DataFrame(rows, schema=schema(table_columns)), table_columns)
    ledger.finish(excluded, (row["image_id"] for row in population.rows))


def run_index(
    *, masks: list[str], findings_parts: list[str], excluded_parts: list[str], index: str, findings: str, excluded: str
) -> None:
    """Join the shards. Write the ``index`` (where each mask is stored) and the tables ``findings`` and ``excluded``."""
    rows = []
    for path in masks:
        with Shard(path, key="mask_id") as shard:
            rows += [(name, Path(path).stem, row) for row, name in enumerate(shard.ids)]
    write_table(index, make_index_table(rows), INDEX)
    finding_table = pl.concat(map(read_table, findings_parts)).sort("study_id", "image_id", "finding")
    write_table(findings, finding_table, FINDINGS)
    write_table(excluded, pl.concat(map(read_table, excluded_parts)).sort("image_id", "study_id"), EXCLUDED)
