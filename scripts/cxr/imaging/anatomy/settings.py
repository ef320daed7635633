"""Settings of the anatomy stage and of its engines."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, Share, key


class CxasSettings(Section):
    threshold: Share = key(
        0.5, "Probability above which a pixel belongs to a structure; a higher one shrinks masks.", source=AUTHORS
    )


class AnatomySettings(Section):
    """Segmentation of the heart and of the 15 zone labels (lungs, lung zones and lobes) on the edited image (paper)."""

    engine: Literal["lite", "cxas"] = key(
        "lite",
        "Source of zones and heart. lite: computed from organ masks of the edited image; cxas: the paper's net of "
        "159 structures.",
    )
    cxas: CxasSettings = key(CxasSettings, "Settings of the engine cxas.")
