"""Settings of the stage medground_regions."""

from cxr.base.settings import Section, key


class RegionsSettings(Section):
    """Components, their boxes and attributes."""

    min_px: int = key(20, "Components of fewer pixels are dropped; of the kind ils, those under 64.", unit="px", ge=1)
    outline_px: int = key(
        1,
        "How far the outlines of an image's regions may lie further out or further in. The engine rules asks queries "
        "whose answer then stays the same before those that are fragile. 0: all are equal.",
        unit="px",
        ge=0,
        le=10,
    )
