"""Settings of MedGround's scores."""

from cxr.base.settings import Section, Share, key


class ScoringSettings(Section):
    """IoU and Semantic Sensitivity of the answers."""

    tau: Share = key(0.5, "IoU above which an answer is correct; the paper prints none.")


class ScoringOptions(ScoringSettings):
    """What the scores depend on."""

    replicates: int = 1000
