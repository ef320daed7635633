"""Settings that the masks and the dataset stage share."""

from typing import Literal

from cxr.base.settings import PAPER, Logic, Section, key


class ReportLogic(Section):
    """How the findings of a report become pairs; ``paper`` follows only what the paper states."""

    weak_hedges: Literal["tentative", "block_only"] = key(
        "tentative",
        "tentative: weakly hedged findings make tentative pairs (paper); block_only: they only block negatives.",
        source=PAPER,
    )
    predicted_other: Logic = key(
        "strict",
        "strict: a finding explained by something other than a lesion (nipple shadow, overlap) makes no pair and only "
        "blocks negatives.",
    )
    blocking: Logic = key(
        "strict", "strict: positive findings without labels block every location where they could be."
    )
    kinds: Logic = key(
        "strict", "strict: opacity includes consolidation, which includes pneumonia, atelectasis and edema."
    )
    joint_location: Logic = key(
        "strict",
        "strict: a grounded finding of the same type inside the named location joins the pair's mask; an ungrounded "
        "one drops the pair.",
    )
    one_answer: Logic = key("strict", "strict: within a study, an instruction has one answer.")
