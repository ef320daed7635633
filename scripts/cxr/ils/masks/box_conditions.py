"""Compute the numbers that Algorithm 1 compares with its thresholds, and the conditions that each box fails.

Both come from :class:`cxr.ils.masks.segmenter.LesionSegmenter`, which also makes the masks. The numbers stay exact
fractions until they are printed, so a printed number cannot contradict the conditions that are listed as failed.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import NamedTuple

import numpy as np

from cxr.base.hdf5 import pack
from cxr.base.vocabulary import BOX_CONDITIONS, LUNGS, list_failed_conditions
from cxr.geometry.boxes import CORNERS
from cxr.ils.masks.segmenter import LesionSegmenter
from cxr.ils.masks.settings import Rules
from cxr.ils.masks.thresholds import ThresholdSet, exact_fraction, threshold_part
from cxr.ils.masks.zones import Zones

MEASURED_CONDITIONS = BOX_CONDITIONS[:4]
"""Names of the conditions c1 to c4 of Algorithm 1. Each compares a number with the threshold of the same name."""
MASKS_OUTDATED = "the maps have changed since the masks were made"
"""Message if the stored arrays no longer give a stored verdict. `snakemake masks` makes the masks again."""


class BoxJudgement(NamedTuple):
    """The numbers that Algorithm 1 compares for one box and finding, and the conditions that the box fails."""

    values: dict[str, Fraction | float]  # {condition: number that it compares with its threshold}
    failed: list[str]  # Names of the failed conditions

    def agrees(self, verdict: int) -> bool:
        """Return whether a stored verdict lists the ``failed`` conditions among c1 to c4. If not, arrays changed."""
        return self.failed == [name for name in list_failed_conditions(verdict) if name in MEASURED_CONDITIONS]


def thresholds_for(target: str, settings: Mapping) -> dict[str, float]:
    """Return {threshold name: value} of a lesion type; ``settings``: the settings stored with a shard of masks."""
    return settings["thresholds"][threshold_part(target)]


def format_measure(value: Fraction | float, threshold: float = 0.0) -> str:
    """Return a number as text with three decimals, or more if the threshold has more.

    The number is truncated, not rounded, so that .2496 stays below a threshold of .25.
    """
    digits = max(3, -Decimal(repr(float(threshold))).normalize().as_tuple().exponent)
    if value != value:
        return "nan"
    number = value if isinstance(value, Fraction) else exact_fraction(float(value))
    return f"{Decimal(floor(number * 10**digits)).scaleb(-digits):f}"


def format_threshold(threshold: float) -> str:
    """Return a threshold as text with all its digits, such as .25, 1 or .00005."""
    return f"{Decimal(repr(float(threshold))).normalize():f}"


def judge_boxes(
    boxes: Sequence[Mapping],
    labels: Sequence[str],
    zones: Mapping[str, np.ndarray],
    lungs: Mapping[str, np.ndarray],
    anomaly: np.ndarray,
    *,
    target: str,
    settings: Mapping,
) -> list[BoxJudgement]:
    """Return the numbers and failed conditions of each box for a finding, computed as in the masks stage.

    ``boxes``: rows with corners (frame pixels) and confidence; ``labels``: the finding's zone labels, at least one;
    ``zones`` and ``lungs``: {label: mask, bool (H, W)} from the stages anatomy and organs; ``anomaly``: anomaly map,
    uint8 (H, W), W a multiple of 8; ``target``: lesion type; ``settings``: the settings stored with the shard of masks.
    """
    taus, zone_labels = ThresholdSet.from_settings(settings["thresholds"]).for_target(target), tuple(labels)
    segmenter = LesionSegmenter(
        anomaly=anomaly,
        image=_no_image,
        zones=Zones(pack(np.stack([zones[label] for label in zone_labels])), zone_labels),
        lungs={label: pack(lungs[label]) for label in LUNGS},
        boxes=np.array([[row[corner] for corner in CORNERS] for row in boxes], np.float64).reshape(-1, 4),
        confidence=np.array([row["confidence"] for row in boxes], np.float64),
        rules=Rules.from_job(settings),
        smallest_level=taus.level,
    )
    overlaps, signals = segmenter.zone_overlap(zone_labels).to_fractions(), segmenter.signal(taus.level).to_fractions()
    sizes = map(max, *(overlap.to_fractions() for overlap in segmenter.lung_overlaps))
    numbers = zip(overlaps, segmenter.confidence.tolist(), signals, sizes, strict=True)
    verdicts = segmenter.flag_failed_conditions(zone_labels, taus).tolist()
    judgements = []
    for box_numbers, verdict in zip(numbers, verdicts, strict=True):
        failed = [name for name in list_failed_conditions(verdict) if name in MEASURED_CONDITIONS]
        judgements.append(BoxJudgement(dict(zip(MEASURED_CONDITIONS, box_numbers, strict=True)), failed))
    return judgements


def _no_image() -> np.ndarray:
    raise AssertionError("judge_boxes has no image, because the box conditions must not read one")
