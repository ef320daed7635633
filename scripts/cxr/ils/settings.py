"""Settings that stages of ILS share."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Logic, Section, key

RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


@dataclass(frozen=True)
class LiteSizes:
    """Sizes of the engine lite's model: sides in pixels, widths in channels. The defaults are the base's."""

    image: int = 128  # Side of the mask branch's image
    patch: int = 8  # Side of the mask branch's patches
    width: int = 32  # Width of the mask branch's encoder, a multiple of 16
    depth: int = 3  # Layers of the mask branch's encoder
    clip_image: int = 128  # Side of the image that the language model receives
    clip_patch: int = 16  # Side of its patches
    hidden: int = 96  # Width of the language model, a multiple of 16
    layers: int = 2  # Layers of the language model


class ReportLogic(Section):
    """How the findings of a report become pairs; ``paper`` applies only rules that the paper states."""

    weak_hedges: Literal["tentative", "block_only"] = key(
        "tentative", "Weakly hedged findings make tentative pairs, or (block_only) only block negatives.", source=PAPER
    )
    predicted_other: Logic = key(
        "strict", "strict: findings explained as non-lesions (nipple shadow) only block negatives; paper: no such rule."
    )
    blocking: Logic = key("strict", "strict: a finding without zone labels blocks negatives wherever it could be.")
    kinds: Logic = key(
        "strict", "strict: opacity includes consolidation; both include pneumonia, atelectasis and edema."
    )
    joint_location: Logic = key(
        "strict", "strict: a pair's mask must include all findings of its type in its location; paper: no such rule."
    )
    one_answer: Logic = key("strict", "strict: an instruction has one answer per study, or its pairs are dropped.")


class PromptSettings(Section):
    """How a pair becomes a model's input, in training and in inference."""

    conversation: Literal["llava_v1", "llava_llama_2"] = key(
        "llava_v1", "LISA's conversation template around an instruction.", source=AUTHORS
    )
    max_length: int = key(
        512, "Maximum length of prompt and answer, image included.", unit="tokens", source=AUTHORS, ge=64
    )
    fit: Literal["pad", "stretch", "published"] = key(
        "pad",
        "How an image becomes square. pad: with a border; stretch: distorted; published: reference masks are "
        "padded, predicted masks cropped and stretched, as in the published code.",
    )
