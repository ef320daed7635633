"""Gemma 3 and MedGemma. Images are stretched to a square, so box coordinates must be relative to the image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import AutoConfig, Gemma3Config
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from cxr.vlm.conventions import InputSize
from cxr.vlm.families.engine import ChatTemplate, EncodedImages

MODEL_TYPE = "gemma3"
CONVENTION = "grid1000"
VLLM = False  # vLLM would add the opening and closing tokens of an image, which this template already has
TEMPLATE = ChatTemplate(
    start="<bos>",
    user="<start_of_turn>user\n",
    opening="\n\n<start_of_image>",
    picture="<image_soft_token>",
    closing="<end_of_image>\n\n",
    assistant="<end_of_turn>\n<start_of_turn>model\n",
    end="<end_of_turn>",
    between="\n",
)
PREFIXES = {
    "vision": ("model.vision_tower.",),
    "projector": ("model.multi_modal_projector.",),
    "language": ("model.language_model.", "lm_head."),
}
IDLE = ("model.vision_tower.head.",)  # an optional head that no answer depends on


@dataclass(frozen=True)
class Gemma:
    """A Gemma 3 model. ``tokens`` is the number of tokens per image."""

    processor: Gemma3ImageProcessorPil
    tokens: int
    frame = TEMPLATE
    prefixes = PREFIXES
    idle = IDLE

    def pictures(self, pictures: Sequence[np.ndarray]) -> EncodedImages:
        """Encode images, uint8 (H, W, 3), each stretched to the model's square."""
        features = self.processor(
            [Image.fromarray(picture) for picture in pictures], return_tensors="pt", do_pan_and_scan=False
        )
        rows, columns = features["pixel_values"].shape[-2:]
        count = len(pictures)
        return EncodedImages(
            {"pixel_values": features["pixel_values"]}, (self.tokens,) * count, (InputSize(columns, rows),) * count
        )

    def inputs(self, ids: torch.Tensor, picture_id: int) -> dict[str, torch.Tensor]:
        """Return ``token_type_ids`` (N, L), 1 for tokens of an image, which attend to all others of that image."""
        return {"token_type_ids": (ids == picture_id).int()}


def tiny(vocabulary: int, ids: Mapping[str, int], side: int) -> tuple[Gemma3Config, object]:
    """Return a small configuration and an image processor (see :mod:`cxr.vlm.families.engine`)."""
    side = max(32, side // 32 * 32)
    config = Gemma3Config(
        text_config={
            "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 2, "head_dim": 32, "vocab_size": vocabulary, "sliding_window": 512,
            "max_position_embeddings": 4096, "query_pre_attn_scalar": 32,
            "pad_token_id": ids["pad"], "bos_token_id": ids["start"], "eos_token_id": ids["end"],
        },
        vision_config={
            "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
            "image_size": side, "patch_size": 8,
        },
        mm_tokens_per_image=(side // 16) ** 2, image_token_index=ids["picture"], boi_token_index=ids["opening"],
        eoi_token_index=ids["closing"],
    )  # fmt: skip
    return config, Gemma3ImageProcessorPil(size={"height": side, "width": side})


def init_weights(model: torch.nn.Module) -> None:
    """Initialise the image projection in place. The library leaves it zero, so that images would have no effect."""
    with torch.no_grad():
        model.model.multi_modal_projector.mm_input_projection_weight.normal_(std=0.1)


def load(folder: Path) -> Gemma:
    """Return the family object of the model in a folder."""
    processor = Gemma3ImageProcessorPil.from_pretrained(folder, local_files_only=True)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    return Gemma(processor, config.mm_tokens_per_image)
