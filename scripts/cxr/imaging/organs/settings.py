"""Settings of the organs stage and of its engines."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, Share, key


class ChexmaskSettings(Section):
    table: str = key("", "CSV of the CheXmask database: masks of MIMIC-CXR in original resolution.")
    min_dice: Share = key(0.7, "Minimum estimated Dice of an image's masks (column `Dice RCA (Mean)`).", source=AUTHORS)


class LiteSettings(Section):
    behind_heart: bool = key(True, "Whether lung masks include the lung behind the heart and mediastinum.")


class OrgansSettings(Section):
    """Segmentation of right lung, left lung and heart, and checks of the image."""

    engine: Literal["lite", "hybridgnet", "chexmask"] = key(
        "lite",
        "Source of organ masks. lite: a small U-Net on the CPU; hybridgnet: the paper's net; chexmask: masks of the "
        "CheXmask database.",
    )
    lite: LiteSettings = key(LiteSettings, "Settings of the engine lite.")
    chexmask: ChexmaskSettings = key(ChexmaskSettings, "Settings of the engine chexmask.")
    max_mirrored: Share = key(
        0.95, "Maximum probability that an image is mirrored. Images above it are excluded as heart_on_right."
    )
    min_upright: Share = key(
        0.2,
        "Minimum probability that an image is an upright chest X-ray with white bone. Images below it are excluded as "
        "not_a_radiograph.",
    )
