"""The masks stage: one threshold set, one shard (ils.md sections 5 to 7, but for texts and negatives).

Population: the images of the anatomy shard that the boxes stage did not exclude and that have a report line. All are
accepted: a study without a positive finding still gets negatives.

Read from a report line: ``study_id``, ``subject_id``, ``tuples``, ``other_tuples`` (of the section that was not used;
they only block), ``related`` (lesion types a neighbouring term of which stands). Read from a tuple: ``entity``,
``sentence_index``, ``presence``, ``certainty``, ``hedge``, ``location``, ``category``, ``labels``, ``lesion_type``,
``predicted_lesion_type``, and where present ``candidates`` (several lesion types), ``block`` (valid locations) and
``related``.

``output`` (HDF5, key ``mask_id``): ``mask`` packed (512, 512), the distinct masks of the findings and units tables,
image by image in the order of those tables.

``findings``, sorted by (study_id, image_id, finding): one row per positive tuple of the used section, of the seven
types or not (then ``target`` is null and ``reason`` tells why it only blocks).
    study_id, image_id, subject_id, split; finding (index of the tuple in the line's ``tuples``); entity;
    sentence_index; target; word ("opacity" if tentative, the target otherwise); certainty; hedge (the weaker of the
    finding's own grade and of its explanation's);
    reported, grounded (zone labels, in the order of ``labels.ZONE_LABELS``); named, named_reported (valid locations,
    in the order of Table 9); mask_id; area (px); productive_boxes (count); reason (null for a grounded mask, else
    ``no_lesion`` ``predicted_other`` ``related_term`` ``weak_hedge`` ``no_labels`` ``no_anatomy`` ``no_productive_box``
    ``empty_after_refine`` ``no_grounded_label`` ``no_name`` ``no_heart``); share_outside (of the mask, outside its own
    labels); shared_with (findings whose masks overlap it, the heart left out); box_verdicts (one uint8 per kept box of
    the image, in the order of the boxes table: the bits of ``labels.BOX_CONDITIONS``, 0 = productive; an empty list
    where Algorithm 1 did not run).

``units``, sorted by (study_id, image_id, unit): the positive instructions before their text.
    study_id, image_id, unit (from 0 in each image: basics in the order of their findings, then globals in the order of
    ``labels.LESIONS``); kind ("basic" | "global"); target; word; certainty; sentence_index; location (valid locations
    in the order of Table 9, ["heart"] for cardiomegaly); grounded_location, reported_location (zone labels; ["heart"]
    for cardiomegaly); finding (list of tuple indexes: the finding itself, then those joined or merged); mask_id (null
    if dropped); area (px); inference (true: the basic gets a lesion-inference twin with the same mask, location,
    target, certainty); dropped (null, or the reason it makes no pair: ``ungrounded_sibling``); inference_dropped
    (null, or why a basic of pneumonia, atelectasis or edema has no twin: ``several_candidates`` ``several_types``
    ``conflicting_answer``). A pair is made of every row whose ``dropped`` is null.

``studies``, sorted by (study_id, image_id): one row per image.
    study_id, image_id, subject_id, split; ctr (float, null without heart or lungs; original pixels);
    reported (valid locations that overlap a zone mask reported by any positive finding); blocked (valid locations
    blocked in the sense of section 6); occupied (valid locations that hold a pixel of a lesion mask, the heart left
    out); empty (valid locations a negative may name); standing (list of {lesion, locations}: each type that is
    affirmed, hedged, a candidate or blocking *itself*, not through a kind under it, and the valid locations it meets
    or could be in; cardiomegaly with no location); related (lesion types a neighbouring term of which stands);
    lesion_blocked (list of {lesion, locations, anywhere, global_blocked}, all seven types in order, hierarchy applied
    if ``kinds`` is strict: locations that meet a finding of it or of a kind under it; whether one stands anywhere; and
    whether a global negative is forbidden by one, by a related term of it or of a kind under it, or, for opacity, by a
    location that is not empty). All location lists are in the order of Table 9.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import polars as pl

from cxr.base.hdf5 import ShardWriter, mask_id
from cxr.base.jobs import progress
from cxr.base.ledger import Ledger
from cxr.base.tables import write_table
from cxr.ils.masks.evidence import evidence
from cxr.ils.masks.inputs import Case, Population
from cxr.ils.masks.options import Rules
from cxr.ils.masks.outcomes import Outcome, outcome
from cxr.ils.masks.thresholds import ThresholdSet
from cxr.ils.masks.units import Unit, positive_units
from cxr.ils.masks.zones import pixels

TEXTS, NUMBERS = pl.List(pl.String), pl.List(pl.Int64)
NAMES = dict.fromkeys(("study_id", "image_id", "subject_id", "split"), pl.String)
FINDINGS = NAMES | {
    "finding": pl.Int64,
    "entity": pl.String,
    "sentence_index": pl.Int64,
    "target": pl.String,
    "word": pl.String,
    "certainty": pl.String,
    "hedge": pl.String,
    "reported": TEXTS,
    "grounded": TEXTS,
    "named": TEXTS,
    "named_reported": TEXTS,
    "mask_id": pl.String,
    "area": pl.Int64,
    "productive_boxes": pl.Int64,
    "reason": pl.String,
    "share_outside": pl.Float64,
    "shared_with": NUMBERS,
    "box_verdicts": pl.List(pl.UInt8),
}
UNITS = NAMES | {
    "unit": pl.Int64,
    "kind": pl.String,
    "target": pl.String,
    "word": pl.String,
    "certainty": pl.String,
    "sentence_index": pl.Int64,
    "location": TEXTS,
    "grounded_location": TEXTS,
    "reported_location": TEXTS,
    "finding": NUMBERS,
    "mask_id": pl.String,
    "area": pl.Int64,
    "inference": pl.Boolean,
    "dropped": pl.String,
    "inference_dropped": pl.String,
}
STUDIES = NAMES | {
    "ctr": pl.Float64,
    "reported": TEXTS,
    "blocked": TEXTS,
    "occupied": TEXTS,
    "empty": TEXTS,
    "standing": pl.List(pl.Struct({"lesion": pl.String, "locations": TEXTS})),
    "related": TEXTS,
    "lesion_blocked": pl.List(
        pl.Struct({"lesion": pl.String, "locations": TEXTS, "anywhere": pl.Boolean, "global_blocked": pl.Boolean})
    ),
}


@dataclass(frozen=True)
class MasksOptions(Rules):
    """The rules of the masks, and the threshold set."""

    thresholds: dict
    """``{"general": {"ano", "anatomy", "conf", "signal", "size"}, "edema": {...}}``, plain floats."""


def outcomes_of(case: Case, thresholds: ThresholdSet, rules: Rules) -> list[Outcome]:
    """Return the result of every positive finding of an image under one threshold set."""
    return [outcome(finding, case.picture, case.zones, case.heart, thresholds, rules) for finding in case.findings]


class Masks:
    """The distinct masks of a shard, written as they come. ``write`` takes (mask_id, uint8 packed (H, W / 8))."""

    def __init__(self, write: Callable[[str, np.ndarray], None]) -> None:
        self._write = write
        self._written: set[str] = set()
        self._study: str | None = None
        self._named: dict[int, tuple[np.ndarray, str]] = {}

    def add(self, study_id: str, packed: np.ndarray | None) -> str | None:
        """Keep a mask (uint8 packed (H, W / 8), not changed afterwards); return its name, None for none."""
        if packed is None:
            return None
        if study_id != self._study:
            self._study, self._named = study_id, {}
        # a unit often has the very array of its finding; the array is held, so its id stays its own
        _, name = self._named.get(id(packed), (packed, None))
        if name is None:
            name = mask_id(study_id, packed)
            self._named[id(packed)] = packed, name
        if name not in self._written:
            self._written.add(name)
            self._write(name, packed)
        return name


def finding_rows(case: Case, outcomes: list[Outcome], masks: Masks) -> list[dict]:
    """Return the rows of the findings table for one image."""
    rows = []
    for one in outcomes:
        finding = one.finding
        shared = [other.finding.index for other in outcomes if other is not one and _overlap(one, other)]
        rows.append(
            case.names
            | {
                "finding": finding.index,
                "entity": finding.entity,
                "sentence_index": finding.sentence_index,
                "target": finding.target,
                "word": finding.word if finding.target else None,
                "certainty": finding.certainty,
                "hedge": finding.hedge,
                "reported": list(finding.reported),
                "grounded": list(one.grounded),
                "named": list(one.named),
                "named_reported": list(one.named_reported),
                "mask_id": masks.add(case.study_id, one.mask),
                "area": one.area,
                "productive_boxes": one.productive,
                "reason": one.reason,
                "share_outside": one.outside / one.area if one.area and not finding.heart else None,
                "shared_with": shared,
                "box_verdicts": one.verdicts.tolist(),
            }
        )
    return rows


def _overlap(one: Outcome, other: Outcome) -> bool:
    if one.mask is None or other.mask is None or one.finding.heart or other.finding.heart:
        return False
    return bool((one.mask & other.mask).any())


def unit_rows(case: Case, units: Iterable[Unit], masks: Masks) -> list[dict]:
    """Return the rows of the units table for one image."""
    return [
        case.names
        | {
            "unit": number,
            "kind": unit.kind,
            "target": unit.target,
            "word": unit.word,
            "certainty": unit.certainty,
            "sentence_index": unit.sentence_index,
            "location": list(unit.location),
            "grounded_location": unit.grounded,
            "reported_location": unit.reported,
            "finding": unit.findings,
            "mask_id": masks.add(case.study_id, unit.mask),
            "area": 0 if unit.mask is None else pixels(unit.mask),
            "inference": unit.inference,
            "dropped": unit.dropped,
            "inference_dropped": unit.inference_dropped,
        }
        for number, unit in enumerate(units)
    ]


def _table(rows: list[dict], schema: dict) -> pl.DataFrame:
    """Make a table of rows. Lists go through JSON: polars takes them from Python at a fifth of the speed."""
    columns = []
    for name, dtype in schema.items():
        values = [row[name] for row in rows]
        if rows and isinstance(dtype, pl.List):
            columns.append(pl.Series(name, [json.dumps(values)]).str.json_decode(pl.List(dtype)).explode())
        else:
            columns.append(pl.Series(name, values, dtype))
    return pl.DataFrame(columns)


def run_shard(
    *,
    output: str | Path,
    findings: str | Path,
    units: str | Path,
    studies: str | Path,
    excluded: str | Path,
    options: MasksOptions,
    attrs: dict,
    threads: int,
    **inputs: str | Path,
) -> None:
    """Make the lesion masks, findings, units and study evidence of one shard under one threshold set.

    ``inputs`` are the paths that :class:`cxr.ils.masks.inputs.Population` takes.
    One image is in memory at a time. The work is arithmetic on one image: it runs on one core whatever ``threads``
    says, and many shards run side by side. Raises StoreError for a damaged input.
    """
    cv2.setNumThreads(1)
    thresholds = ThresholdSet.of(options.thresholds)
    ledger = Ledger("masks")
    tables: dict[str, list[dict]] = {"findings": [], "units": [], "studies": []}
    with (
        Population(**inputs, rules=options, smallest_level=thresholds.smallest_level) as population,
        ShardWriter(output, key="mask_id", attrs=attrs, empty={"mask": (population.frame, bool)}) as writer,
    ):
        masks = Masks(lambda name, packed: writer.append(name, mask=packed))
        for case in progress(population, len(population), "masks"):
            outcomes = outcomes_of(case, thresholds, options)
            tables["findings"] += finding_rows(case, outcomes, masks)
            made = positive_units(outcomes, case.zones.union, options)
            tables["units"] += unit_rows(case, made, masks)
            row = evidence(outcomes, case.others, case.related, case.zones, options)
            tables["studies"].append(case.names | {"ctr": case.ratio()} | row)
            ledger.accept(case.image_id)
    write_table(findings, _table(tables["findings"], FINDINGS))
    write_table(units, _table(tables["units"], UNITS))
    write_table(studies, _table(tables["studies"], STUDIES))
    ledger.finish(excluded, (row["image_id"] for row in population.rows))
