"""Sizes of the model's two halves: the class, the published sizes, and reading and writing config.json."""

import json
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from transformers import CLIPVisionConfig, LlavaConfig, SamConfig
from transformers import SamMaskDecoderConfig as MaskDecoderConfig
from transformers import SamPromptEncoderConfig as PromptEncoderConfig
from transformers import SamVisionConfig as VisionConfig

from cxr.base.errors import UserError
from cxr.ils.rosalia.files import write_json
from cxr.segmentation.head import DECODER_EPS

CONFIG = "config.json"


@dataclass(frozen=True)
class RosaliaConfig:
    """Sizes of both halves, and the token that stands for a mask."""

    llava: LlavaConfig
    sam: SamConfig
    seg_id: int

    @property
    def image_id(self) -> int:
        """Id that the input repeats once per image feature; it needs no row in the embedding."""
        return self.llava.image_token_index

    @property
    def eos_id(self) -> int:
        """Id that ends an answer."""
        return self.llava.text_config.eos_token_id


CLIP_L14 = CLIPVisionConfig(
    hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, image_size=224,
    patch_size=14, projection_dim=768,
)  # fmt: skip
"""Sizes of openai/clip-vit-large-patch14, LISA-7B's image encoder."""


def sam_config(
    image: int, patch: int, width: int, depth: int, heads: int, window: int, whole: tuple[int, ...], out: int = 256,
    decoder_heads: int = 8, decoder_mlp: int = 2048, iou_hidden: int = 256,
) -> SamConfig:  # fmt: skip
    """Return SAM's sizes: sides of image and patch in pixels; the encoder's width, layers, heads, window side in
    patches, layers with global attention and output channels; sizes of the mask decoder.
    """
    return SamConfig(
        vision_config=VisionConfig(
            hidden_size=width, output_channels=out, num_hidden_layers=depth, num_attention_heads=heads,
            image_size=image, patch_size=patch, window_size=window, global_attn_indexes=list(whole),
            num_pos_feats=out // 2, mlp_dim=4 * width, initializer_range=0.02,
        ),
        prompt_encoder_config=PromptEncoderConfig(hidden_size=out, image_size=image, patch_size=patch),
        mask_decoder_config=MaskDecoderConfig(
            hidden_size=out, mlp_dim=decoder_mlp, num_attention_heads=decoder_heads, iou_head_hidden_dim=iou_hidden,
            layer_norm_eps=DECODER_EPS,
        ),
    )  # fmt: skip


def sam_h() -> SamConfig:
    """Return the sizes of SAM with ViT-H (sam_vit_h_4b8939), which LISA and ROSALIA use."""
    return sam_config(1024, 16, 1280, 32, 16, 14, (7, 15, 23, 31))


def write_config(folder: str | Path, config: RosaliaConfig) -> None:
    """Write a model's config.json."""
    parts = {"llava": config.llava.to_dict(), "sam": config.sam.to_dict()}
    for part in parts.values():
        part.pop("transformers_version", None)
    write_json(Path(folder) / CONFIG, {"kind": "rosalia", "seg_id": config.seg_id} | parts)


def read_config(folder: str | Path) -> RosaliaConfig:
    """Read a model's config.json. Raises UserError if it is missing, damaged or of another model."""
    path = Path(folder) / CONFIG
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if held.get("kind") != "rosalia":
            raise UserError(f"{path} is not the config of a converted ROSALIA model: convert the published model first")
        return RosaliaConfig(LlavaConfig(**held["llava"]), SamConfig(**held["sam"]), int(held["seg_id"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StrictDataclassError) as error:
        fault = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} is missing or damaged: make the model again ({fault})") from None
