"""Settings of the organs stage and of its engines."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, Share, key


class ChexmaskSettings(Section):
    """The engine chexmask: published masks of MIMIC-CXR."""

    table: str = key("", "CSV of MIMIC-CXR masks of the CheXmask database (original resolution).")
    min_dice: Share = key(0.7, "Minimum estimated Dice (column Dice RCA (Mean)) of a usable mask.", source=AUTHORS)


class LiteSettings(Section):
    """The engine lite for organs."""

    behind_heart: bool = key(True, "Whether lung masks include the lung behind the heart and mediastinum.")


class OrgansSettings(Section):
    """Right lung, left lung and heart of the image."""

    engine: Literal["lite", "hybridgnet", "chexmask"] = key(
        "lite", "lite: a small U-Net on the CPU; hybridgnet: the paper's net; chexmask: masks of the CheXmask database."
    )
    lite: LiteSettings = key(LiteSettings, "Settings of the engine lite.")
    chexmask: ChexmaskSettings = key(ChexmaskSettings, "Settings of the engine chexmask.")
    max_mirrored: Share = key(0.95, "Maximum probability of a mirrored image; others are excluded (heart_on_right).")
    min_upright: Share = key(
        0.2, "Minimum probability of an upright, non-inverted chest X-ray; others are excluded as not_a_radiograph."
    )
