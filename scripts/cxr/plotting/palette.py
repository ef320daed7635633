"""Colours of organs, zones, lesion types and results, the same in the figures of all stages."""

from cxr.base.lesions import LESION_TYPES
from cxr.plotting.plots import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION

ORGANS = {"right lung": SKY, "left lung": GREEN, "heart": VERMILION, "cardiomediastinum": PURPLE}
LEVELS = (ORANGE, SKY, GREEN, PURPLE)
"""Apical, upper, mid, base: the same four on both sides."""
LESION_COLOURS = {lesion.name: lesion.colour for lesion in LESION_TYPES}
POSITIVE, NEGATIVE = BLUE, ORANGE
"""Positive and negative pairs."""
KEPT, DROPPED = SKY, ORANGE
"""Productive boxes, and boxes that failed a condition."""
