"""Make pairs from a report's tuples through the masks and dataset stages, on a toy image.

The picture is 64 x 80 px, eight zones side by side, lobes over them. What a finding's mask shows is given, not
segmented, so that every case of grounded, half grounded and not grounded occurs.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from cxr.base.vocabulary import ANATOMY_LABELS, LESIONS, ZONE_LABELS, zones_of
from cxr.ils.dataset.make_pairs import make_image_pairs
from cxr.ils.dataset.pairs import Pair
from cxr.ils.masks.evidence import compute_location_evidence
from cxr.ils.masks.findings import Finding, find_related_lesions, read_positive_findings
from cxr.ils.masks.make_masks import MaskWriter, make_unit_rows
from cxr.ils.masks.outcomes import Outcome
from cxr.ils.masks.settings import Rules
from cxr.ils.masks.units import make_positive_units
from cxr.ils.masks.zones import Zones, count_pixels, name_locations
from dataset_cases import BARS, OPTIONS, SIGNS, line, tuple_

LUNG_LESIONS = [lesion for lesion in LESIONS if lesion != "cardiomegaly"]
STRICT = dict.fromkeys(("predicted_other", "blocking", "kinds", "joint_location", "one_answer"), "strict")
RULES = Rules()
UNDER = {
    "opacity": {"opacity", "consolidation", "pneumonia", "atelectasis", "edema"},
    "consolidation": {"consolidation", "pneumonia", "atelectasis", "edema"},
}


def toy_zones() -> dict[str, np.ndarray]:
    """Right lung in columns 0..39, left in 40..79; zones are bands of 16 rows; lobes overlap the mid zones."""
    masks = {label: np.zeros((64, 80), bool) for label in ANATOMY_LABELS}
    for side, start in (("right", 0), ("left", 40)):
        for band, zone in enumerate(zones_of(side)):
            masks[zone][band * 16 : band * 16 + 16, start : start + 40] = True
            masks[f"{side} lung"] |= masks[zone]
    masks["lung upper lobe right"][0:32, 0:40] = True
    masks["lung middle lobe right"][32:48, 0:20] = True
    masks["lung lower lobe right"][40:64, 0:40] = True
    masks["lung upper lobe left"][0:44, 40:80] = True
    masks["lung lower lobe left"][44:64, 40:80] = True
    masks["heart"][30:60, 34:50] = True
    return masks


MASKS = toy_zones()
ZONES = Zones(np.stack([np.packbits(MASKS[label], axis=-1) for label in ANATOMY_LABELS]), ANATOMY_LABELS)


@dataclass
class Case:
    """What unit_rows reads of a case."""

    study_id: str = "s1"
    names: dict = field(
        default_factory=lambda: {"study_id": "s1", "image_id": "i1", "subject_id": "p1", "split": "train"}
    )


def shown(finding: Finding, labels: tuple[str, ...]) -> Outcome:
    """The outcome of a finding whose mask shows these of its labels, a patch in each."""
    if finding.target is None:
        return Outcome(finding, reason=finding.reason)
    if finding.heart:
        return Outcome(finding, ZONES["heart"], count_pixels(ZONES["heart"]))
    if not labels:
        return Outcome(finding, reason="no_productive_box")
    mask = np.zeros((64, 80), bool)
    for label in labels:
        rows, columns = np.nonzero(MASKS[label])
        mask[rows.min() : rows.max() + 1, columns.min() + 4 : columns.max() - 3] = True
    packed = np.packbits(mask, axis=-1)
    held = {label: int((mask & MASKS[label]).sum()) for label in ZONE_LABELS}
    never = [label for label in finding.reported if label not in labels]
    place_names = tuple(name_locations(labels, held, int(mask.sum()), min_share=0.1, excluded_zones=never))
    return Outcome(
        finding, packed, int(mask.sum()), tuple(labels), place_names, reason=None if place_names else "no_name"
    )


def pairs_of(
    tuples: list[dict],
    grounded: dict[int, list[str]] | None = None,
    ctr: float = 0.4,
    seed: int = 7,
    more: dict | None = None,
    **logic: str,
) -> list[Pair]:
    """Go from tuples to pairs. ``grounded``: tuple index -> the labels its mask shows (default: all of them).

    ``more``: further fields of the report line.
    """
    rules = replace(RULES, **logic)
    options = replace(OPTIONS, kinds=rules.kinds, one_answer=rules.one_answer)
    report = line(tuples, **more or {})
    outcomes = []
    for finding in read_positive_findings(tuples, rules):
        labels = finding.reported if grounded is None else grounded.get(finding.index, finding.reported)
        outcomes.append(shown(finding, tuple(label for label in ZONE_LABELS if label in labels)))
    units = make_unit_rows(Case(), make_positive_units(outcomes, ZONES.union, rules), MaskWriter(lambda *_: None))
    others = read_positive_findings(report.get("other_tuples", []), rules)
    row = compute_location_evidence(outcomes, others, find_related_lesions(report), ZONES, rules)
    made, _ = make_image_pairs(Case().names | {"ctr": ctr, "signs": SIGNS} | row, units, report, options, seed, BARS)
    return made


def says(lesion: str | None, labels: list[str] | None = None, **changes: object) -> dict:
    """A positive tuple."""
    place = {"location": labels or None, "labels": labels or []}
    return tuple_(lesion, "positive", **place | changes)


def negated_texts(tuples: list[dict], seeds: int = 150, **changes: object) -> set[str]:
    """Every negative instruction that some seed gives."""
    return {
        pair.instruction for seed in range(seeds) for pair in pairs_of(tuples, seed=seed, **changes) if not pair.seg
    }


def texts(made: list[Pair]) -> list[tuple[str, str]]:
    return [(pair.instruction, pair.answer) for pair in made if pair.seg]
