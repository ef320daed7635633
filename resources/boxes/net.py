"""What the embedded detector looks at and tells."""

from cxr.detection.grid import Grid

CLASSES = (
    "Lung Opacity",
    "Consolidation",
    "Infiltration",
    "Atelectasis",
    "ILD",
    "Pleural effusion",
    "Nodule/Mass",
    "Cardiomegaly",
)
GROUPS = (0, 0, 0, 0, 0, 0, 1, 2)
"""Classes of one group share their predicted box: what fills a part of a lung, what is round and small, the heart."""
LAYOUT = Grid(CLASSES, GROUPS, 256)
SIZE, GRID = LAYOUT.size, LAYOUT.cells
IMPORTANCE = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 1.0)
"""Weight of a positive cell of each class: a nodule has one such cell, another lesion about eight."""
