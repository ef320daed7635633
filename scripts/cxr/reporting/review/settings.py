"""Settings of the review by experts."""

from typing import Literal

from cxr.base.settings import PAPER, Expert, Section, constraint, key


class ReviewSettings(Section):
    """Experts judge queries or units: distinct (mask, target, location) of a split; the mask of a negative is empty."""

    items: Literal["pairs", "queries"] = key(
        "pairs", "What experts judge. pairs: masks of ILS; queries: MedGround's test queries, each by every expert."
    )
    rule: Literal["all", "majority"] = key(
        "all", "Experts who must accept a query: all, or more than half. Pairs need all.", source=PAPER
    )
    experts: list[Expert] = key(
        lambda: ["A", "B", "C", "D"], "Names of the experts, used in file names.", source=PAPER, min_length=1
    )
    thresholds: str = key("", "Threshold set whose dataset is reviewed; empty: the first of thresholds.build.")
    split: Literal["train", "validate", "test"] = key("test", "Split to review.", source=PAPER)
    positives: int = key(
        0, "Number of sampled units with a mask, or queries, each judged by all experts; 0: all.", unit="units", ge=0
    )
    negatives: int = key(
        0, "Number of sampled units without a mask, divided among the experts; 0: all.", unit="units", ge=0
    )
    jpeg_quality: int = key(
        0, "JPEG quality of images on the pages (90: a third of PNG's size); 0: lossless PNG.", ge=0, le=100
    )
    sheets: list[str] = key(list, "The experts' completed sheets (CSV), or folders of them, for `review_merge`.")
    unsampled: Literal["drop", "keep"] = key("drop", "Whether the filtered split keeps pairs that no expert judged.")

    @constraint
    def _experts_are_distinct(self) -> None:
        if (self.items, self.rule) == ("pairs", "majority"):
            raise ValueError("rule is 'majority', but pairs need all experts: set items to queries, or rule to all")
        names = [name.casefold() for name in self.experts]
        if twice := [name for name in self.experts if names.count(name.casefold()) > 1]:
            raise ValueError(f"experts names {twice[0]!r} more than once (case is ignored): rename one")
