"""Settings of the frames stage."""

from typing import Literal

from cxr.base.settings import AUTHORS, Percent, Section, constraint, key


class FramesSettings(Section):
    """Conversion of image files to 8-bit frames of 512 x 512."""

    per_study: Literal["first", "all"] = key(
        "first",
        "Images of a study that become frames. first: only its best decodable image; all: every frontal image.",
        source=AUTHORS,
    )
    fit: Literal["pad", "stretch", "crop"] = key(
        "pad", "How an image becomes square. pad: black borders; stretch: changed aspect ratio; crop: only its centre."
    )
    window: Literal["minmax", "voi", "percentile"] = key(
        "minmax",
        "Pixel values that become black and white. minmax: the lowest and the highest; voi: the VOI window or table of "
        "the DICOM header; percentile: the two `percentiles`.",
    )
    percentiles: tuple[Percent, Percent] = key(
        (0.5, 99.5), "Percentiles of the pixel values that become black and white if `window` is percentile.", unit="%"
    )

    @constraint
    def _percentiles_rise(self) -> None:
        low, high = self.percentiles
        if low >= high:
            raise ValueError(f"percentiles is [{low}, {high}]: give the lower percentile first")
