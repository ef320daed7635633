"""Settings of the stage semisyn_placement."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, Share, key
from cxr.workflow.settings.semisyn.names import FindingName


class Placement(Section):
    """Which healthy image, prompt and boxes each job has."""

    bounds: Literal["repo", "strict"] = key(
        "repo",
        "repo: a box may lie outside its lung's box as far as the prior says (authors' code); strict: not at all "
        "(paper), an effusion is cut at the lung's lower edge.",
        source=AUTHORS,
    )
    tries: int = key(6, "Draws of a box before the job is excluded as no_room.", source=AUTHORS, ge=1, le=1000)
    min_mass: Share = key(1e-9, "Mass of a truncated prior below which a draw fails.")
    heart_exclusion: bool = key(
        True, "Whether a box of the left lung wholly inside the heart's box is drawn anew.", source=AUTHORS
    )
    ctr_step: Share = key(
        0.03, "Least increase of the cardiothoracic ratio by cardiomegaly.", unit="heart width / thorax width"
    )
    unsided: dict[FindingName, Literal["both", "one"]] = key(
        lambda: {"edema": "both"},
        "Lungs of a prompt that names no side, {finding: both or one}; findings that it lacks have one, by a fair coin "
        "(authors' code: one for all).",
    )
    most_per_image: int = key(
        2,
        "Most edited images of one finding that are made from one healthy X-ray, spare ones among them; a run that "
        "needs more is refused. The paper makes 5,000 of each finding from 24,555 X-rays, so at most one.",
        unit="images",
        ge=1,
        le=10_000,
    )
    spare: Share = key(0.05, "Share of jobs planned beyond dataset.per_finding, for those that are excluded.")
