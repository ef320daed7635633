"""The criteria of the healthy pool in their order, and the reasons why an image is excluded."""

from typing import NamedTuple

STAGE = "semisyn_healthy"


class Exclusion(NamedTuple):
    """Why an image is excluded. ``reason``: a code of ``exclusions.REASONS``; ``stage``: that excluded it."""

    reason: str
    detail: str = ""
    stage: str = STAGE


CRITERIA: dict[str, tuple[str, ...]] = {
    "frame": (),
    "view": ("not_pa",),
    "position": ("not_erect",),
    "reference": ("in_reference",),
    "split": ("other_split",),
    "labels": ("no_report", "not_labelled"),
    "finding": ("has_finding",),
    "device": ("has_device",),
    "classifier": ("classifier_positive",),
    "organs": ("no_lungs",),
    "heart": ("no_heart",),
    "lungs": ("lungs_overlap",),
}
"""{criterion: its reasons}, in the order of the checks; the first failure counts."""
CRITERION_BY_STAGE = {"frames": "frame", "organs": "organs", "boxes": "classifier"}
"""{earlier stage: criterion under which its excluded images are counted}."""


def criterion_of(stage: str, reason: str) -> str:
    """Return the criterion of a ledger row. Raises KeyError for an unknown reason of this stage."""
    if stage != STAGE:
        return CRITERION_BY_STAGE[stage]
    owners = {code: name for name, reasons in CRITERIA.items() for code in reasons}
    return owners[reason]
