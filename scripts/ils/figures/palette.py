"""Colours that stay apart for colour-blind readers (Okabe and Ito), one meaning each."""

ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F"

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
