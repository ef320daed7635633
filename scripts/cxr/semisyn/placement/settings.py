"""Settings of the stage semisyn_placement."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, Share, key


class PlacementSettings(Section):
    """Assignment of a healthy image, a prompt and boxes to each job."""

    bounds: Literal["repo", "strict"] = key(
        "repo",
        "How far boxes may leave the lung's box. repo: as far as the prior allows (authors' code); strict: not at"
        " all (paper), and an effusion is cut at the lung's lower edge.",
        source=AUTHORS,
    )
    most_per_image: int = key(
        2,
        "Maximum number of jobs of one finding on one healthy X-ray, spare ones included; a run that needs more "
        "is refused (paper: 1).",
        unit="images",
        ge=1,
        le=10_000,
    )
    spare: Share = key(0.05, "Further jobs that replace excluded ones, as a fraction of dataset.per_finding.")
