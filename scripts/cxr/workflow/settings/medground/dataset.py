"""Settings of the dataset."""

from typing import Literal

from cxr.workflow.settings.base import PAPER, Section, Share, key


class Grounding(Section):
    """The dataset of all sources."""

    labels: list[Literal["generic", "class", "replaced"]] = key(
        lambda: ["generic", "class", "replaced"],
        "Baselines without referring language. generic: one query an image, for all boxes; class: one for each class; "
        "replaced: each query's words replaced by its classes.",
        source=PAPER,
        min_length=1,
    )
    pair_overlap: Share = key(0.1, "Greatest IoU of the two answers of a sensitivity pair.")
    pairs_per_image: int = key(3, "Most sensitivity pairs of an image.", ge=1)
