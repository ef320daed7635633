"""Settings of the stage semisyn_dataset."""

from typing import Annotated, Literal

from cxr.base.settings import PAPER, Limits, Section, constraint, key

EMBEDDED_PER_FINDING, PER_FINDING = 6, 5000


class DatasetSettings(Section):
    """The dataset: edited images with their boxes, in several sizes and formats."""

    per_finding: int | None = key(
        None,
        "Images of each finding; null: as many as the largest of sizes needs or, with sizes auto, as the healthy pool "
        f"allows (placement.most_per_image), at most {PER_FINDING} (the paper's 35,000 in all), or "
        f"{EMBEDDED_PER_FINDING} for the embedded cohort.",
        source=PAPER,
        unit="images",
        ge=1,
        le=1_000_000,
    )
    sizes: Literal["auto"] | list[Annotated[int, Limits(gt=0)]] = key(
        "auto",
        "Sizes to export, in images of all findings, each a subset of the next; auto: fifth, half and all (paper:"
        " 7,000, 17,500 and 35,000).",
        source=PAPER,
    )
    boxes: Literal["conditioning", "visible"] = key(
        "conditioning",
        "Boxes of the labels: those requested of the edit (conditioning), or the tight boxes of the visible change "
        "(visible).",
        source=PAPER,
    )
    target: Literal["source", "vindr", "mimic"] = key(
        "source",
        "Convention of the boxes. source: that of the priors; vindr, mimic: the mean height-to-width ratio of the"
        " readers of VinDr-CXR or MS-CXR.",
    )
    pixels: Literal["frame", "original"] = key(
        "frame", "Pixels of the images: the edited frame, or the original image plus the change."
    )
    withhold: bool = key(False, "Whether the exports leave out what release.withhold names (pixels, ids).")

    @constraint
    def _sizes_rise(self) -> None:
        if self.sizes != "auto" and (not self.sizes or sorted(set(self.sizes)) != self.sizes):
            raise ValueError(f"sizes is {self.sizes}: give rising numbers of images, or auto")
