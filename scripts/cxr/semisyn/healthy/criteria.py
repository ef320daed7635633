"""Why an image is not in the healthy pool, and the order in which the criteria are asked."""

from typing import NamedTuple

STAGE = "semisyn_healthy"


class Exclusion(NamedTuple):
    """Why an image stops. ``reason``: a code of ``exclusions.REASONS``; ``stage``: where it stopped."""

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
"""{criterion: its own reasons}, in the order in which they are asked; the first that fails counts."""
CRITERION_BY_STAGE = {"frames": "frame", "organs": "organs", "boxes": "classifier"}
"""{earlier stage: criterion} of the images that an earlier stage has excluded."""


def criterion_of(stage: str, reason: str) -> str:
    """Return the criterion of a row of the ledger. Raises KeyError for a reason that is none of this stage's."""
    if stage != STAGE:
        return CRITERION_BY_STAGE[stage]
    owners = {code: name for name, reasons in CRITERIA.items() for code in reasons}
    return owners[reason]
