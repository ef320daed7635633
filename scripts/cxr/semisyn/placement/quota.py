"""Count images per finding and their jobs (images to try). The workflow imports this: do not import scipy or h5py."""

import math
from dataclasses import dataclass

from cxr.base.errors import count_phrase


@dataclass(frozen=True)
class PlanOptions:
    """Settings of the plan. per_finding: images of each finding; None: as many as ``sizes`` needs or, with ``auto``, as
    the healthy images allow, at most ``default_most``; most_per_image: limit of uses of an image for a finding; spare:
    fraction of additional jobs; samples: jobs of each finding on which configurations are compared."""

    per_finding: int | None
    sizes: str | list[int]
    default_most: int
    most_per_image: int
    spare: float
    samples: int
    findings: list[str]
    seed: int

    @property
    def fixed(self) -> int | None:
        """Number of images per finding that the settings request; None if the number of healthy images decides."""
        if self.per_finding or self.sizes == "auto":
            return self.per_finding
        return max(self.sizes) // len(self.findings)


def explain_overuse(num_healthy: int, options: PlanOptions) -> str:
    """Return why ``num_healthy`` images are too few for the requested images, or "" if they are enough."""
    allowed, quota = allowed_images(num_healthy, options), options.fixed
    remedy = "give more healthy X-rays" + (" or raise semisyn.placement.most_per_image" if num_healthy else "")
    if not allowed:
        return (
            f"{count_phrase(num_healthy, 'X-ray is', 'X-rays are')} healthy, too few to put a finding into: {remedy}; "
            "results/semisyn/healthy/funnel.tsv tells which criterion excluded the others"
        )
    if quota is None or quota <= allowed:
        return ""
    uses = math.ceil(num_jobs(quota, options.spare) / num_healthy)
    key = "semisyn.dataset.per_finding" if options.per_finding else "semisyn.dataset.sizes"
    pool = count_phrase(num_healthy, "healthy X-ray", "healthy X-rays")
    return (
        f"{key} asks for {quota} images of each finding, so each of {pool} would be used up to {uses} times for one "
        f"finding, but semisyn.placement.most_per_image is {options.most_per_image}: ask for at most {allowed}, "
        f"{remedy}"
    )


def num_jobs(per_finding: int, spare: float) -> int:
    """Return the number of jobs, spare ones included, that are planned for ``per_finding`` images of a finding."""
    return math.ceil(per_finding * (1 + spare))


def allowed_images(num_healthy: int, options: PlanOptions) -> int:
    """Return the largest number of images per finding that uses no healthy image more than ``most_per_image`` times."""
    most = num_healthy * options.most_per_image
    return next(images for images in range(most, -1, -1) if num_jobs(images, options.spare) <= most)


def images_requested(num_healthy: int, options: PlanOptions) -> int:
    """Return the number of images per finding: that of the settings, or as many as the healthy images allow."""
    return min(options.default_most, allowed_images(num_healthy, options)) if options.fixed is None else options.fixed
