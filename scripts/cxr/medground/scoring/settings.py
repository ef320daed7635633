"""Settings of MedGround's scores."""

from cxr.base.settings import Replicates, Section, Share, key


class ScoringSettings(Section):
    """IoU and Semantic Sensitivity of the answers."""

    tau: Share = key(0.5, "IoU above which an answer is correct; the paper does not state its value.")
    replicates: Replicates = key(1000, "Bootstrap replicates, by subject; 0 for none.")
