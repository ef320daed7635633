"""Measure why a box is productive for a finding or not, with the numbers that Algorithm 1 compares.

Both come from :class:`cxr.ils.masks.segmenter.LesionSegmenter`, which makes the masks. The numbers stay fractions until
they are printed, so no printed number can contradict the verdict beside it.
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
"""The conditions that compare a number: c1 to c4 of Algorithm 1, by the names of their thresholds."""
MASKS_OUTDATED = "the maps have changed since the masks were made"
"""Shown if a stored verdict differs from the one recomputed from the stored arrays; `snakemake masks` repairs it."""


class BoxJudgement(NamedTuple):
    """A box's numbers for one finding, by the names of ``MEASURED``, and the conditions that it fails."""

    values: dict[str, Fraction | float]
    failed: list[str]

    def agrees(self, verdict: int) -> bool:
        """Return whether a stored verdict fails the same conditions; if not, the arrays have changed since."""
        return self.failed == [name for name in list_failed_conditions(verdict) if name in MEASURED_CONDITIONS]


def thresholds_for(target: str, settings: Mapping) -> dict[str, float]:
    """Return the thresholds of a lesion type, from the settings stored with a masks shard."""
    return settings["thresholds"][threshold_part(target)]


def format_measure(value: Fraction | float, threshold: float = 0.0) -> str:
    """Return a number as text, truncated so that .2496 stays below .25, with three or the threshold's decimals."""
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
    """Return the numbers and failed conditions of each box for a finding, as the masks stage decides them.

    ``boxes``: rows with corners (frame pixels) and confidence; ``labels``: the finding's zone labels, at least one;
    ``zones`` and ``lungs``: {label: bool (H, W)} of the stages anatomy and organs; ``anomaly``: uint8 (H, W), W a
    multiple of 8; ``settings``: those stored with the masks shard.
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
    raise AssertionError("the box conditions do not read the image")
