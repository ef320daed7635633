"""Settings that stages of ILS share."""

from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Logic, Section, constraint, key

RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


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


class PromptSettings(Section):
    """How a pair becomes a model's input, the same in training and when the model is asked."""

    conversation: Literal["llava_v1", "llava_llama_2"] = key(
        "llava_v1", "LISA's conversation template around an instruction.", source=AUTHORS
    )
    max_length: int = key(
        512, "Maximum length of prompt and answer, image included.", unit="tokens", source=AUTHORS, ge=64
    )
    fit: Literal["pad", "stretch"] = key(
        "pad", "pad: a non-square image is padded to the model's square; stretch: it is stretched."
    )
    published_mismatch: bool = key(
        False,
        "Train and score as in the published code: references padded to the square, predictions cropped and stretched.",
        source=AUTHORS,
    )

    @constraint
    def _mismatch_is_of_padded_images(self) -> None:
        if self.published_mismatch and self.fit != "pad":
            raise ValueError(f"published_mismatch is set, but fit is {self.fit!r}: set fit to pad")
