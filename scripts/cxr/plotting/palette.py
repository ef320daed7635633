"""Colours of organs, zones, lesion types and results, the same in the figures of all stages."""

from cxr.base.vocabulary import LESIONS
from cxr.plotting.plots import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, YELLOW

ORGANS = {"right lung": SKY, "left lung": GREEN, "heart": VERMILION, "cardiomediastinum": PURPLE}
LEVELS = (ORANGE, SKY, GREEN, PURPLE)
"""Apical, upper, mid, base: the same four on both sides."""
LESION_COLOURS = dict(zip(LESIONS, (VERMILION, ORANGE, SKY, YELLOW, PURPLE, GREEN, BLUE), strict=True))
POSITIVE, NEGATIVE = BLUE, ORANGE
"""Positive and negative pairs."""
KEPT, DROPPED = SKY, ORANGE
"""Productive boxes, and boxes that failed a condition."""
