"""Classes, input size and grid of the detector ``lite``."""

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
"""Groups of classes that share a predicted box: parts of a lung, small round lesions, and the heart."""
LAYOUT = Grid(CLASSES, GROUPS, 256)
SIZE, GRID = LAYOUT.size, LAYOUT.cells
IMPORTANCE = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 1.0)
"""Weight of a positive cell of each class. A nodule has one positive cell, another lesion about eight."""
