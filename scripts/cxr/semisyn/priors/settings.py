"""Settings of the stage semisyn_priors."""

from typing import Literal

from cxr.base.settings import PAPER, Section, constraint, key


class PriorsSettings(Section):
    """Priors of position and size of each finding."""

    source: Literal["paper", "fit"] = key(
        "paper",
        "paper: Table 10; fit: fitted to the boxes of a reference, if it has enough.",
        source=PAPER,
    )
    reference: str = key("", "Reference in semisyn.references to whose boxes the priors are fitted.")
    zones_table: str = key(
        "",
        "Chest ImaGenome's gold_bbox_coordinate_annotations_1000images.csv, to which the positions of zones in "
        "prompts are fitted; empty: the authors' numbers.",
    )
    min_boxes: int = key(20, "Fewest boxes of a fit; a finding with fewer keeps its prior.", ge=3)

    @constraint
    def _a_fit_has_its_reference(self) -> None:
        if self.source == "fit" and not self.reference:
            raise ValueError("source is 'fit', but reference is empty: name one of semisyn.references")
