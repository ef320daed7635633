"""What each colour means in this stage's figures."""

from ils.core.plots import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, YELLOW

ORGANS = {"right lung": SKY, "left lung": GREEN, "heart": VERMILION, "cardiomediastinum": PURPLE}
LEVELS = (ORANGE, SKY, GREEN, PURPLE)
"""Apical, upper, mid, base: the same four on both sides."""
LESIONS = {
    "cardiomegaly": VERMILION,
    "pneumonia": ORANGE,
    "atelectasis": SKY,
    "opacity": YELLOW,
    "consolidation": PURPLE,
    "edema": GREEN,
    "effusion": BLUE,
}
POSITIVE, NEGATIVE = BLUE, ORANGE
"""Positive and negative pairs."""
KEPT, DROPPED = SKY, ORANGE
"""Productive boxes, and boxes that failed a condition."""
