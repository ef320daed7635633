"""Sizes of the dataset: a number of images of all findings together, or a part of all images."""

PARTS = {"fifth": 5, "half": 2, "all": 1}
"""{part: how many such parts make all}; the paper's 7,000, 17,500 and 35,000 images."""


def images_per_finding(size: int | str, quota: int, num_findings: int) -> int:
    """Return how many images of each finding a size has; ``quota``: images asked of each for the whole dataset."""
    return max(1, quota // PARTS[size]) if size in PARTS else int(size) // num_findings
