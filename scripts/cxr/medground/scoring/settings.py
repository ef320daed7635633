"""Settings of MedGround's scores."""

from typing import Literal

from cxr.base.settings import PAPER, Replicates, Section, Share, key


class ScoringSettings(Section):
    """IoU and Semantic Sensitivity of the answers."""

    tau: Share = key(0.5, "IoU that a right answer exceeds; the paper does not print its own.")
    test: Literal["audited", "all"] = key(
        "audited", "Which test queries count where experts audited them (medground.audit).", source=PAPER
    )
    failed: Literal["wrong", "leave_out"] = key("wrong", "How a query without an answer counts.")
    replicates: Replicates = key(1000, "Bootstrap replicates, by subject; 0 for none.")
