"""Settings of the stage semisyn_priors."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, constraint, key


class PriorsSettings(Section):
    """Priors of position and size of each finding."""

    source: Literal["paper", "fit"] = key(
        "paper",
        "Priors of Table 10 (paper), or fitted to the boxes of a reference if it has enough (fit).",
        source=PAPER,
    )
    reference: str = key("", "Reference in semisyn.references to whose boxes the priors are fitted.")
    zones: Literal["paper", "fit"] = key(
        "paper",
        "Zones that prompts name: the authors' numbers (paper), or fitted to zones_table (fit).",
        source=AUTHORS,
    )
    zones_table: str = key("", "gold_bbox_coordinate_annotations_1000images.csv of Chest ImaGenome (zones: fit).")
    zones_image_id: str = key(
        "{stem}", "Template of the cohort's image_id of an image in zones_table, as in semisyn.references."
    )
    min_boxes: int = key(20, "Fewest boxes of a fit; a finding with fewer keeps its prior.", ge=3)
    sizes: Literal["placed", "drawn"] = key(
        "placed",
        "Fit of dependent widths and heights: to the experts' boxes as they are (drawn), or so that the sizes match "
        "them after placement, which shrinks boxes to the lung (placed).",
    )

    @constraint
    def _fits_have_their_files(self) -> None:
        if self.source == "fit" and not self.reference:
            raise ValueError("source is 'fit', but reference is empty: name one of semisyn.references")
        if self.zones == "fit" and not self.zones_table:
            raise ValueError("zones is 'fit', but zones_table is empty: give Chest ImaGenome's table")
