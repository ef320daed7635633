"""The thresholds of the judge rules. They are this project's choices; none is a setting."""

from dataclasses import dataclass


@dataclass(frozen=True)
class JudgeThresholds:
    """Where something stands out in a box, on radiographs in the anatomy and the anomaly map."""

    contrast: float = 0.8
    """Effect size against the surroundings from which a region stands out."""
    blob_iou: float = 0.5
    """IoU of a box and the blob in it from which a region stands out."""
    enlarge: float = 0.25
    """Margin of the crop around a box, as a fraction of the box's longer side."""
    stain: str = "hematoxylin"
    """Plane in which coloured images of nuclei are measured: the stain's density (hematoxylin), or luminance (none)."""
    zone_no: float = 0.1
    """Fraction of a box's lung pixels in a zone or lung that its text names below which it is not there."""
    least_lung: float = 0.1
    """Smallest fraction of a box that must be lung, else its zones are unknown."""
    anomaly_level: int = 26
    """Value of the anomaly map from which a pixel counts as anomalous, grey levels."""
    anomaly_yes: float = 0.1
    """Difference of a box's fraction of anomalous pixels and the other lung pixels' from which it stands out."""
    anomaly_no: float = -0.1
    """Difference below which a region counts as normal; between the two the judge abstains."""
    slack: float = 2.0
    """Factor on the logic's margins of size, shape and place, as boxes are measured less exactly than masks."""
