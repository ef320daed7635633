"""Compute the outcome of each finding: a lesion mask with the zones that it confirms, or why there is no mask."""

from dataclasses import dataclass, field

import numpy as np

from cxr.ils.masks.algorithm import CONDITION_BITS
from cxr.ils.masks.findings import Finding
from cxr.ils.masks.inputs import Case
from cxr.ils.masks.segmenter import Decision, Lesion
from cxr.ils.masks.thresholds import ThresholdSet
from cxr.ils.masks.zones import count_pixels, list_possible_names, merge_locations, name_locations


@dataclass(frozen=True)
class Outcome:
    """A finding with its lesion mask, or with the reason why the finding makes no instruction-answer pair."""

    finding: Finding
    mask: np.ndarray | None = None  # uint8 packed (H, W / 8)
    area: int = 0  # Area of the mask in pixels
    grounded: tuple[str, ...] = ()  # Reported zone labels that the mask confirms
    locations: tuple[str, ...] = ()  # Valid locations by which an instruction names the mask
    reported_locations: tuple[str, ...] = ()  # Valid locations by which the reported labels may be named
    reason: str | None = None  # Code of the reason why there is no mask, no grounded label or no location
    verdicts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))  # Each box's failed conditions
    num_productive_boxes: int = 0
    num_pixels_outside: int = 0  # Pixels of the mask outside the reported zones

    @property
    def ungrounded(self) -> tuple[str, ...]:
        """Reported zone labels that the mask does not confirm."""
        return tuple(label for label in self.finding.reported if label not in self.grounded)


def compute_outcome(finding: Finding, case: Case, thresholds: ThresholdSet) -> Outcome:
    """Return the lesion mask of one finding under a threshold set, or the reason why there is none."""
    reported = finding.reported
    if finding.target is None:
        return Outcome(finding, reason=finding.reason, reported_locations=tuple(_all_names(reported)))
    if finding.heart:
        mask = case.heart
        area = count_pixels(mask)
        return Outcome(finding, mask, area) if area else Outcome(finding, reason="no_heart")
    if not reported:
        return Outcome(finding, reason="no_labels")
    if all(case.zones.is_empty(label) for label in reported):
        return Outcome(finding, reason="no_anatomy", reported_locations=tuple(_all_names(reported)))
    lesion = case.segmenter.segment(reported, thresholds.for_target(finding.target), fill=finding.basal)
    return _make_outcome(finding, lesion, case.rules.name_min_share)


def compute_decision(finding: Finding, case: Case, thresholds: ThresholdSet) -> Decision | None:
    """Return the boxes and the grey level that thresholds select for a finding; None if it needs no threshold."""
    reported = finding.reported
    if finding.target is None or finding.heart or all(case.zones.is_empty(label) for label in reported):
        return None
    return case.segmenter.decide(reported, thresholds.for_target(finding.target), fill=finding.basal)


def _make_outcome(finding: Finding, lesion: Lesion, name_min_share: float) -> Outcome:
    limits = {"min_share": name_min_share, "excluded_zones": set(finding.reported) - set(lesion.grounded)}
    names = tuple(name_locations(lesion.grounded, lesion.pixels_by_label, lesion.area, **limits))
    if lesion.mask is None:
        has_passed = (lesion.verdicts == CONDITION_BITS["empty_after_refine"]).any()
        reason = "empty_after_refine" if has_passed else "no_productive_box"
    elif not lesion.grounded:
        reason = "no_grounded_label"
    else:
        reason = None if names else "no_name"
    texts = lesion.grounded, names, tuple(_all_names(finding.reported)), reason
    num_productive = int(np.count_nonzero(lesion.verdicts == 0))
    return Outcome(finding, lesion.mask, lesion.area, *texts, lesion.verdicts, num_productive, lesion.outside)


def _all_names(labels: tuple[str, ...]) -> list[str]:
    """Return all valid locations by which zone labels may be named. A lobe is named by all its zones."""
    return merge_locations(place for label in labels for place in list_possible_names(label))
