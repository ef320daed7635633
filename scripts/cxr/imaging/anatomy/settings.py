"""Settings of the anatomy stage and of its engines."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, Share, key


class CxasSettings(Section):
    """The engine cxas."""

    threshold: Share = key(0.5, "Probability above which a pixel belongs to a structure.", source=AUTHORS)


class AnatomySettings(Section):
    """The 15 zone labels and the heart, on the edited image (paper)."""

    engine: Literal["lite", "cxas"] = key(
        "lite", "lite: the organ net on the edited image, zones by geometry; cxas: the paper's net of 159 structures."
    )
    cxas: CxasSettings = key(CxasSettings, "Settings of the engine cxas.")
    min_labels: int = key(14, "Number of the 16 masks that must be non-empty, else missing_anatomy (D.1).", ge=0, le=16)
    disagreement: Share = key(
        0.05,
        "Largest distance between organs and anatomy in the lungs' outer edges and the heart's lower edge, else "
        "organ_disagreement (D.2).",
        unit="frame widths",
    )
