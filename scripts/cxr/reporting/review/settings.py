"""Settings of the review by experts."""

from typing import Literal

from cxr.base.settings import PAPER, Expert, Section, constraint, key


class ReviewSettings(Section):
    """Review by experts, who judge queries or units. A unit is a distinct (mask, lesion type, location) of an image."""

    items: Literal["pairs", "queries"] = key(
        "pairs", "Items that experts judge. pairs: masks and negatives of ILS. queries: test queries of MedGround."
    )
    rule: Literal["all", "majority"] = key(
        "all", "How many experts must accept an item: all or, only for queries, the majority (over half).", source=PAPER
    )
    experts: list[Expert] = key(
        lambda: ["A", "B", "C", "D"], "Names of the experts, which are used in file names.", source=PAPER, min_length=1
    )
    thresholds: str = key("", "Threshold set whose dataset is reviewed. If empty, the first of thresholds.build.")
    split: Literal["train", "validate", "test"] = key("test", "Split that is reviewed.", source=PAPER)
    positives: int = key(
        0, "Number of masks, or of queries, in the sample that each expert judges. 0: all.", unit="units", ge=0
    )
    negatives: int = key(
        0, "Number of negatives (no mask) in the sample that is divided among experts. 0: all.", unit="units", ge=0
    )
    jpeg_quality: int = key(
        0, "JPEG quality of images on the pages. 0: lossless PNG, three times as large as quality 90.", ge=0, le=100
    )
    sheets: list[str] = key(list, "The experts' completed sheets (CSV), or folders with them, for `review_merge`.")
    unsampled: Literal["drop", "keep"] = key("drop", "drop: pairs without a verdict leave the split; keep: they stay.")

    @constraint
    def _experts_are_distinct(self) -> None:
        if (self.items, self.rule) == ("pairs", "majority"):
            raise ValueError("rule is 'majority', but pairs need all experts: set items to queries, or rule to all")
        names = [name.casefold() for name in self.experts]
        if twice := [name for name in self.experts if names.count(name.casefold()) > 1]:
            raise ValueError(f"experts names {twice[0]!r} more than once (case is ignored): rename one")
