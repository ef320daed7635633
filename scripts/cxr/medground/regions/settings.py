"""Settings of the stage medground_regions."""

from cxr.base.settings import Section, key


class RegionsSettings(Section):
    """Components, their boxes and attributes."""

    min_px: int = key(20, "Components of fewer pixels are dropped (kind ils: under 64).", unit="px", ge=1)
    outline_px: int = key(
        1,
        "Shift of all outlines, outwards and inwards, in the test of robustness: the engine rules prefers queries"
        " whose answer stays. 0: no test.",
        unit="px",
        ge=0,
        le=10,
    )
