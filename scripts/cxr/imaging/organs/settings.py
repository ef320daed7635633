"""Settings of the organs stage and of its engines."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, Share, key


class ChexmaskSettings(Section):
    """The engine chexmask: published masks of MIMIC-CXR."""

    table: str = key("", "The CSV of MIMIC-CXR masks of the CheXmask database (original resolution).")
    min_dice: Share = key(0.7, "Smallest estimated Dice (column Dice RCA (Mean)), else no_lungs.", source=AUTHORS)


class LiteSettings(Section):
    """The engine lite of the organs."""

    behind_heart: bool = key(True, "Whether lung masks include lung behind heart and mediastinum; else visible lungs.")


class OrgansSettings(Section):
    """Right lung, left lung and heart of the image."""

    engine: Literal["lite", "hybridgnet", "chexmask"] = key(
        "lite", "lite: a small U-Net on the CPU; hybridgnet: the paper's net; chexmask: the CheXmask database's masks."
    )
    lite: LiteSettings = key(LiteSettings, "Settings of the engine lite.")
    chexmask: ChexmaskSettings = key(ChexmaskSettings, "Settings of the engine chexmask.")
    max_mirrored: Share = key(0.95, "Probability of mirroring that excludes an image (heart_on_right); 1: never.")
    min_upright: Share = key(
        0.2, "Probability of an upright, positive chest X-ray below which it is excluded as not_a_radiograph; 0: never."
    )
