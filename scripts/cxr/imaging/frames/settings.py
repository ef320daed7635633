"""Settings of the frames stage."""

from typing import Literal

from cxr.base.settings import AUTHORS, Percent, Section, constraint, key


class FramesSettings(Section):
    """Conversion of image files to 8-bit frames of 512 x 512."""

    per_study: Literal["first", "all"] = key(
        "first", "first: the best decodable image of a study; all: every frontal image.", source=AUTHORS
    )
    fit: Literal["pad", "stretch", "crop"] = key("pad", "How non-square images are fitted: pad, stretch or crop.")
    window: Literal["minmax", "voi", "percentile"] = key("minmax", "Grey range: all pixels, VOI window, percentiles.")
    percentiles: tuple[Percent, Percent] = key((0.5, 99.5), "Percentiles that become black and white.", unit="%")

    @constraint
    def _percentiles_rise(self) -> None:
        low, high = self.percentiles
        if low >= high:
            raise ValueError(f"percentiles is [{low}, {high}]: give the lower one first")
