"""Settings of MedGround's scores."""

from typing import Literal

from cxr.base.settings import PAPER, Replicates, Section, Share, key


class ScoringSettings(Section):
    """IoU and Semantic Sensitivity of the answers."""

    tau: Share = key(0.5, "IoU above which an answer is correct; the paper does not state its value.")
    test: Literal["audited", "all"] = key(
        "audited", "Test queries that count if experts audited them (medground.audit).", source=PAPER
    )
    failed: Literal["wrong", "leave_out"] = key(
        "wrong", "wrong: a query without an answer counts as wrong; leave_out: it is excluded."
    )
    replicates: Replicates = key(1000, "Bootstrap replicates, by subject; 0 for none.")
