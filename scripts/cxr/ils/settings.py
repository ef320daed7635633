"""Settings that several stages of ILS share."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Logic, Section, key

RunName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


@dataclass(frozen=True)
class LiteSizes:
    """Sizes of the small model that the engine ``lite`` trains. Those in resources/rosalia are the defaults."""

    image: int = 128  # Side of the image that the mask branch (SAM) receives, pixels
    patch: int = 8  # Side of the mask branch's patches, pixels
    width: int = 32  # Channels of the mask branch's encoder, a multiple of 16
    depth: int = 3  # Layers of the mask branch's encoder
    clip_image: int = 128  # Side of the image that the language model (LLaVA) receives, pixels
    clip_patch: int = 16  # Side of the language model's patches, pixels
    hidden: int = 96  # Hidden channels of the language model, a multiple of 16
    layers: int = 2  # Layers of the language model


class ReportLogic(Section):
    """Rules by which findings become instruction-answer pairs. The value ``paper`` means the paper's rule alone."""

    weak_hedges: Literal["tentative", "block_only"] = key(
        "tentative",
        "Use of findings with a weak hedge, such as 'possible'. tentative: they make positive pairs with a tentative "
        "answer; block_only: they make no positive pair, and no negative pair is made where they may lie.",
        source=PAPER,
    )
    predicted_other: Logic = key(
        "strict",
        "Use of findings that the report explains by something other than a lesion, such as a nipple shadow. strict: "
        "they make no positive pair, and no negative pair is made where they may lie; paper: they make positive pairs.",
    )
    blocking: Logic = key(
        "strict",
        "Locations where a finding forbids negative pairs. strict: wherever it may lie, even if the report names no "
        "zone; paper: only in the zones that the report names.",
    )
    kinds: Logic = key(
        "strict",
        "Hierarchy of lesion types. strict: opacity includes consolidation, and both include pneumonia, atelectasis "
        "and edema, in masks and in negative pairs; paper: the types are independent.",
    )
    joint_location: Logic = key(
        "strict",
        "Findings that the mask of a positive pair covers. strict: all findings of the pair's lesion type in its "
        "location, or the pair is dropped if one has no mask; paper: only the finding that makes the pair.",
    )
    one_answer: Logic = key(
        "strict",
        "Treatment of positive pairs of an image with equal instructions. strict: `basic` pairs are merged, and pairs "
        "whose answers or masks still differ are dropped; paper: all are kept.",
    )


class PromptSettings(Section):
    """Settings by which an instruction-answer pair becomes a model's input, in training and in inference."""

    conversation: Literal["llava_v1", "llava_llama_2"] = key(
        "llava_v1", "Conversation template of LISA that encloses an instruction.", source=AUTHORS
    )
    max_length: int = key(
        512, "Maximum length of a training sample (prompt, image and answer). The end of longer ones is cut.",
        unit="tokens", source=AUTHORS, ge=64,
    )  # fmt: skip
    fit: Literal["pad", "stretch", "published"] = key(
        "pad",
        "How an image and its mask become square. pad: a black border is added; stretch: both are stretched; "
        "published: as pad, but the predicted mask is cropped to the image and stretched, as in the published code.",
    )
