"""Settings of the stage semisyn_dataset."""

from typing import Annotated, Literal

from cxr.base.settings import PAPER, Limits, Section, Share, constraint, key

EMBEDDED_PER_FINDING, PER_FINDING = 6, 5000


class Dataset(Section):
    """The dataset: edited images with their boxes, in several sizes and formats."""

    per_finding: int | None = key(
        None,
        "Images of each finding. null: as many as the largest of sizes needs, or with sizes auto as many as the "
        f"healthy pool allows (placement.most_per_image), at most {PER_FINDING}, so that seven findings have the "
        f"paper's 35,000; at most {EMBEDDED_PER_FINDING} for the embedded cohort.",
        source=PAPER,
        unit="images",
        ge=1,
        le=1_000_000,
    )
    sizes: Literal["auto"] | list[Annotated[int, Limits(gt=0)]] = key(
        "auto",
        "Sizes to export, in images of all findings together; each is part of the next. auto: fifth, half and all, "
        "each by finding, which are the paper's 7,000, 17,500 and 35,000.",
        source=PAPER,
    )
    boxes: Literal["conditioning", "visible"] = key(
        "conditioning",
        "Boxes of the labels. conditioning: those that the edit was asked to fill; visible: those around what can be "
        "seen of it.",
        source=PAPER,
    )
    target: Literal["source", "vindr", "mimic"] = key(
        "source",
        "Readers whose convention the boxes follow: the priors' (source), or a mean height over width that VinDr-CXR's "
        "or MS-CXR's readers have.",
    )
    pixels: Literal["frame", "original"] = key(
        "frame",
        "Pixels of the images: the frame's, or the original's, to which the change is added.",
    )
    validation: Share = key(
        0.05,
        "Fraction of the patients of the split train whose images are exported as val, where no image is of the split "
        "validate; at least one patient of two or more.",
    )
    withhold: bool = key(
        False,
        "Whether the exports leave out what release.withhold names (pixels, ids), so that they can be passed on.",
    )

    @constraint
    def _sizes_rise(self) -> None:
        if self.sizes != "auto" and (not self.sizes or sorted(set(self.sizes)) != self.sizes):
            raise ValueError(f"sizes is {self.sizes}: give rising numbers of images, or auto")
