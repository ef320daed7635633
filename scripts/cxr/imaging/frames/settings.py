"""Settings of the frames stage."""

from typing import Literal

from cxr.base.settings import AUTHORS, Percent, Section, constraint, key


class FramesSettings(Section):
    """From files to 8-bit frames of 512 x 512."""

    per_study: Literal["first", "all"] = key(
        "first", "first: the best decodable image of a study; all: every frontal one.", source=AUTHORS
    )
    fit: Literal["pad", "stretch", "crop"] = key("pad", "How an image that is not square is fitted to the frame.")
    window: Literal["minmax", "voi", "percentile"] = key("minmax", "Grey range of all pixels, VOI or percentiles.")
    percentiles: tuple[Percent, Percent] = key((0.5, 99.5), "Range kept by window: percentile.", unit="%")

    @constraint
    def _percentiles_rise(self) -> None:
        low, high = self.percentiles
        if low >= high:
            raise ValueError(f"percentiles is [{low}, {high}]: give the lower one first")
