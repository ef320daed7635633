"""Settings of the stage semisyn_placement."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, Share, key


class PlacementSettings(Section):
    """Assignment of a healthy image, a prompt and boxes to each job."""

    bounds: Literal["repo", "strict"] = key(
        "repo",
        "Limits of boxes: outside the lung's box as far as the prior allows (repo, authors' code), or never (strict, "
        "paper), with an effusion cut at the lung's lower edge.",
        source=AUTHORS,
    )
    most_per_image: int = key(
        2,
        "Most jobs of one finding on one healthy X-ray, spare ones included; a run that needs more is refused (paper: "
        "5,000 of each finding from 24,555 X-rays, so at most one).",
        unit="images",
        ge=1,
        le=10_000,
    )
    spare: Share = key(0.05, "Additional jobs that replace excluded ones, as a fraction of dataset.per_finding.")
