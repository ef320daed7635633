"""Settings that stages of ILS share."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Logic, Section, key

RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


@dataclass(frozen=True)
class LiteSizes:
    """Sizes of the engine lite's model, in pixels, channels or layers. The defaults fit the weights in resources."""

    image: int = 128  # Side of the image that the mask branch (SAM) receives, pixels
    patch: int = 8  # Side of the mask branch's patches, pixels
    width: int = 32  # Channels of the mask branch's encoder, a multiple of 16
    depth: int = 3  # Layers of the mask branch's encoder
    clip_image: int = 128  # Side of the image that the language model (LLaVA) receives, pixels
    clip_patch: int = 16  # Side of the language model's patches, pixels
    hidden: int = 96  # Hidden channels of the language model, a multiple of 16
    layers: int = 2  # Layers of the language model


class ReportLogic(Section):
    """Rules by which the findings of a report become pairs. The value ``paper`` applies only rules of the paper."""

    weak_hedges: Literal["tentative", "block_only"] = key(
        "tentative",
        "Use of weakly hedged findings. tentative: they make pairs with a tentative answer; block_only: they make no "
        "pair, but no negative pair is made where they may lie.",
        source=PAPER,
    )
    predicted_other: Logic = key(
        "strict",
        "Use of findings that the report explains as no lesion (nipple shadow). strict: they make no pair, but no "
        "negative pair is made where they may lie; paper: they make pairs like other findings.",
    )
    blocking: Logic = key(
        "strict",
        "Places where a finding forbids negative pairs. strict: everywhere that it may lie, even if the report names "
        "no zone; paper: only in the zones that the report names.",
    )
    kinds: Logic = key(
        "strict",
        "Hierarchy of lesion types. strict: opacity includes consolidation, and both include pneumonia, atelectasis "
        "and edema, in masks and in negative pairs; paper: the types are independent.",
    )
    joint_location: Logic = key(
        "strict",
        "Findings in a pair's mask. strict: all findings of its lesion type in its location, or the pair is dropped; "
        "paper: only the finding from which the pair is made.",
    )
    one_answer: Logic = key(
        "strict", "Pairs of a study with one instruction but different answers. strict: all dropped; paper: all kept."
    )


class PromptSettings(Section):
    """Settings that turn a pair into a model's input, in training and in inference."""

    conversation: Literal["llava_v1", "llava_llama_2"] = key(
        "llava_v1", "Conversation template of LISA that encloses an instruction.", source=AUTHORS
    )
    max_length: int = key(
        512, "Maximum length of instruction, answer and image in training; a longer answer is cut.", unit="tokens",
        source=AUTHORS, ge=64,
    )  # fmt: skip
    fit: Literal["pad", "stretch", "published"] = key(
        "pad",
        "How an image becomes square. pad: a black border is added; stretch: its sides are scaled to equal lengths; "
        "published: reference masks are padded, predicted masks cropped and stretched, as in the published code.",
    )
