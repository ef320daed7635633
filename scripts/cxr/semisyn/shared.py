"""Names and sizes that the settings and several stages of SemiSynCXR share."""

from typing import Annotated

from cxr.base.settings import Limits

FindingName = Annotated[str, Limits(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of a finding, of the seven or of a user's file."""
RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
"""Name of a run of detectors."""
ReferenceName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]

CHOSEN_CONFIG = "chosen"
"""Stands for the configuration that each finding has chosen; the dataset uses its images."""
SELECTION = "selection"
"""Value of ``choice``: the stage semisyn_selection chooses the configurations."""
DEFAULT_CONFIG = "lite"
"""Configuration of a finding without a choice."""
WARPED_FINDING = "cardiomegaly"
"""Finding that moves organs: it also changes pixels outside its box, so leak, edges and visible box do not apply."""

TRAIN_SUBSET = "train"
"""The dataset's subset for training."""
BLURS: dict[str, tuple[str, float, float]] = {
    "none": ("none", 1.0, 4.0),
    "gauss_r0.5": ("gauss", 0.5, 4.0),
    "gauss_r1": ("gauss", 1.0, 4.0),
    "gauss_r2": ("gauss", 2.0, 4.0),
    "ggauss_b4": ("ggauss", 1.0, 4.0),
    "ggauss_b6": ("ggauss", 1.0, 6.0),
    "ggauss_b8": ("ggauss", 1.0, 8.0),
}
"""Appendix E's soft masks: {name: (kind, r, exponent)}. It prints r = 0.1 for the last three, which gives flat masks;
the authors' code has 1.0."""
AP_IOUS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""IoUs over which AP is averaged (paper)."""
AP_RECALLS = 101
"""Recall points over which precision is averaged."""
INTERVAL = 0.95
"""Coverage of all confidence intervals."""
PARTS = {"fifth": 5, "half": 2, "all": 1}
"""{size: divisor of the whole dataset}; the paper's 7,000, 17,500 and 35,000 images."""


def images_per_finding(size: int | str, quota: int, num_findings: int) -> int:
    """Return the number of images of each finding in a size. ``quota``: images of each in the whole dataset."""
    return max(1, quota // PARTS[size]) if size in PARTS else int(size) // num_findings
