"""Compute the result of each finding on its image: mask, grounded labels and names, or the reason for none."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cxr.ils.masks.algorithm import CONDITION_BITS
from cxr.ils.masks.findings import Finding
from cxr.ils.masks.grounding import list_possible_names, merge_locations, name_locations
from cxr.ils.masks.options import Rules
from cxr.ils.masks.segmenter import Decision, Lesion, LesionSegmenter
from cxr.ils.masks.thresholds import ThresholdSet
from cxr.ils.masks.zones import Zones, count_pixels


@dataclass(frozen=True)
class Outcome:
    """A finding with its lesion mask (uint8 packed (H, W / 8), None without one)."""

    finding: Finding
    mask: np.ndarray | None = None
    area: int = 0
    grounded: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    named_reported: tuple[str, ...] = ()
    reason: str | None = None
    verdicts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))
    productive: int = 0
    outside: int = 0

    @property
    def ungrounded(self) -> tuple[str, ...]:
        """Reported labels that the mask does not confirm."""
        return tuple(label for label in self.finding.reported if label not in self.grounded)


def compute_outcome(
    finding: Finding,
    picture: Callable[[], LesionSegmenter],
    zones: Zones,
    heart: Callable[[], np.ndarray],
    thresholds: ThresholdSet,
    rules: Rules,
) -> Outcome:
    """Segment one finding.

    ``picture`` and ``heart`` (the organ engine's heart, uint8 packed) are called only if they are needed.
    """
    reported = finding.reported
    if finding.target is None:
        return Outcome(finding, reason=finding.reason, named_reported=tuple(_all_names(reported)))
    if finding.heart:
        mask = heart()
        area = count_pixels(mask)
        return Outcome(finding, mask, area) if area else Outcome(finding, reason="no_heart")
    if not reported:
        return Outcome(finding, reason="no_labels")
    if all(zones.empty(label) for label in reported):
        return Outcome(finding, reason="no_anatomy", named_reported=tuple(_all_names(reported)))
    lesion = picture().lesion(reported, thresholds.for_target(finding.target), fill=finding.basal)
    return _make_outcome(finding, lesion, rules)


def compute_decision(
    finding: Finding, picture: Callable[[], LesionSegmenter], zones: Zones, thresholds: ThresholdSet
) -> Decision | None:
    """Return everything that thresholds decide about a finding, except the verdicts of boxes without effect.

    Threshold sets with the same decision give the finding the same mask, labels, names and reason. None if no threshold
    matters.
    """
    reported = finding.reported
    if finding.target is None or finding.heart or all(zones.empty(label) for label in reported):
        return None
    return picture().decision(reported, thresholds.for_target(finding.target), fill=finding.basal)


def _make_outcome(finding: Finding, lesion: Lesion, rules: Rules) -> Outcome:
    ungrounded_labels = [label for label in finding.reported if label not in lesion.grounded]
    location_names = name_locations(
        lesion.grounded, lesion.held, lesion.area, min_share=rules.name_min_share, excluded_zones=ungrounded_labels
    )
    return Outcome(
        finding,
        lesion.mask,
        lesion.area,
        lesion.grounded,
        tuple(location_names),
        tuple(_all_names(finding.reported)),
        _reason(lesion, location_names),
        lesion.verdicts,
        int(np.count_nonzero(lesion.verdicts == 0)),
        lesion.outside,
    )


def _reason(lesion: Lesion, location_names: list[str]) -> str | None:
    if lesion.mask is None:
        passed = (lesion.verdicts == CONDITION_BITS["empty_after_refine"]).any()
        return "empty_after_refine" if passed else "no_productive_box"
    if not lesion.grounded:
        return "no_grounded_label"
    return None if location_names else "no_name"


def _all_names(labels: tuple[str, ...]) -> list[str]:
    """Return every valid location that could name the labels, without a mask to choose among a lobe's zones."""
    return merge_locations(place for label in labels for place in list_possible_names(label))
