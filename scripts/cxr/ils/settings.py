"""Settings that stages of ILS share."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Logic, Section, key

RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


@dataclass(frozen=True)
class LiteSizes:
    """Sizes of the engine lite's model: sides in pixels, widths in channels. The base has the defaults."""

    image: int = 128  # Side of the mask branch's image
    patch: int = 8  # Side of the mask branch's patches
    width: int = 32  # Width of the mask branch's encoder, a multiple of 16
    depth: int = 3  # Layers of the mask branch's encoder
    clip_image: int = 128  # Side of the image that the language model receives
    clip_patch: int = 16  # Side of its patches
    hidden: int = 96  # Width of the language model, a multiple of 16
    layers: int = 2  # Layers of the language model


class ReportLogic(Section):
    """How the findings of a report become pairs; ``paper`` follows only what the paper states."""

    weak_hedges: Literal["tentative", "block_only"] = key(
        "tentative", "Weakly hedged findings make tentative pairs, or block_only: only block negatives.", source=PAPER
    )
    predicted_other: Logic = key(
        "strict", "strict: a finding explained by no lesion (nipple shadow, overlap) only blocks negatives."
    )
    blocking: Logic = key("strict", "strict: positive findings without labels block every place where they could be.")
    kinds: Logic = key(
        "strict", "strict: opacity includes consolidation, which includes pneumonia, atelectasis and edema."
    )
    joint_location: Logic = key(
        "strict", "strict: a finding of the type in the location joins the mask if grounded, else drops the pair."
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
    fit: Literal["pad", "stretch", "published"] = key(
        "pad",
        "How an image becomes square. pad; stretch; published: references are padded, predictions cropped and "
        "stretched, as in the published code.",
    )
