"""Settings of the stage semisyn_priors."""

from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Percent, Section, Share, constraint, key
from cxr.semisyn.findings.families import SHAPES


class Priors(Section):
    """Priors of place and size for each finding."""

    source: Literal["paper", "fit"] = key(
        "paper", "paper: those of Table 10; fit: fitted to the boxes of a reference, where it has enough.", source=PAPER
    )
    reference: str = key("", "Name in semisyn.references whose boxes are fitted; its images are the cohort's.")
    zones: Literal["paper", "fit"] = key(
        "paper", "Zones that prompts name. paper: the authors' numbers; fit: fitted to zones_table.", source=AUTHORS
    )
    zones_table: str = key("", "gold_bbox_coordinate_annotations_1000images.csv of Chest ImaGenome (zones: fit).")
    zones_image_id: str = key("{stem}", "The cohort's image_id of an image in zones_table, as in semisyn.references.")
    zones_percentiles: Annotated[list[Percent], Limits(min_length=2, max_length=2)] = key(
        lambda: [5.0, 95.0], "Percentiles of the lower and of the upper edges of a zone's boxes.", unit="%"
    )
    zones_patients: int = key(20, "Fewest patients of a fitted zone; a zone with fewer keeps the paper's.", ge=1)
    alpha: Share = key(0.05, "p of Spearman's test below which two numbers get one law of two dimensions.")
    families: list[Literal[tuple(SHAPES)]] = key(
        lambda: list(SHAPES), "Families that one number may have, by scipy's names.", source=PAPER, min_length=1
    )
    bins: int = key(50, "Bins of the histogram that a family's density is compared with.", ge=2, le=10_000)
    min_boxes: int = key(20, "Fewest boxes of a fit; a finding with fewer keeps its prior.", ge=3)
    far: float = key(
        50.0,
        "Distance of a box's centre from the lung's box above which the fit leaves it out.",
        unit="% of the lung's box",
        ge=0,
    )
    overshoot_percentile: Percent = key(
        2.5,
        "Percentile of the distances to the lung's box that becomes the limit of how far a box may lie outside it.",
        unit="%",
    )
    sizes: Literal["placed", "drawn"] = key(
        "placed",
        "Law of width and height, where they depend on each other. drawn: of people's boxes as they are (mean and "
        "covariance of the logarithms); placed: the law that gives those sizes once the placement has limited its "
        "draws to the lung, which makes them smaller.",
    )

    @constraint
    def _fits_have_their_files(self) -> None:
        if self.source == "fit" and not self.reference:
            raise ValueError("source is 'fit', but reference is empty: name one of semisyn.references")
        if self.zones == "fit" and not self.zones_table:
            raise ValueError("zones is 'fit', but zones_table is empty: give Chest ImaGenome's table")
        if self.zones_percentiles[0] >= self.zones_percentiles[1]:
            raise ValueError(f"zones_percentiles is {self.zones_percentiles}: give the lower one first")
