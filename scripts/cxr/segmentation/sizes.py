"""SAM's sizes: the published ones, and those of any weights, so that an encoder other than ViT-H can be read."""

import re

from transformers import SamConfig
from transformers import SamMaskDecoderConfig as MaskDecoderConfig
from transformers import SamPromptEncoderConfig as PromptEncoderConfig
from transformers import SamVisionConfig as VisionConfig

from cxr.segmentation.head import DECODER_EPS

DECODER_HEADS = 8
"""Attention heads of SAM's mask decoder: the only size that no tensor shows; all published decoders have the same."""
_LAYER = "vision_encoder.layers"


def sam_config(
    image: int, patch: int, width: int, depth: int, heads: int, window: int, global_layers: tuple[int, ...],
    out: int = 256, decoder_heads: int = 8, decoder_mlp: int = 2048, iou_hidden: int = 256,
) -> SamConfig:  # fmt: skip
    """Return SAM's sizes: sides of image and patch in pixels; the encoder's width, layers, heads, window side in
    patches, layers with global attention and output channels; sizes of the mask decoder.
    """
    return SamConfig(
        vision_config=VisionConfig(
            hidden_size=width, output_channels=out, num_hidden_layers=depth, num_attention_heads=heads,
            image_size=image, patch_size=patch, window_size=window, global_attn_indexes=list(global_layers),
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


def sam_sizes(shapes: dict[str, tuple[int, ...]]) -> SamConfig:
    """Return the sizes that the tensors of a model ({our name: shape}) have.

    Returns ViT-H's sizes if the tensors cannot be SAM's; the comparison of each tensor then reports what is wrong.
    """
    try:
        return _told(shapes)
    except (KeyError, IndexError, ValueError, ZeroDivisionError):
        return sam_h()


def _told(shapes: dict[str, tuple[int, ...]]) -> SamConfig:
    _, grid, _, width = shapes["vision_encoder.pos_embed"]
    patch = shapes["vision_encoder.patch_embed.projection.weight"][-1]
    layers = sorted(
        int(match[1]) for name in shapes if (match := re.fullmatch(rf"{_LAYER}\.(\d+)\.attn\.rel_pos_h", name))
    )
    # 2 s - 1 relative positions if a layer attends within windows of s patches; channels of a head
    sides = [(shapes[f"{_LAYER}.{layer}.attn.rel_pos_h"][0] + 1) // 2 for layer in layers]
    head = shapes[f"{_LAYER}.0.attn.rel_pos_h"][1]
    windows = [side for side in sides if side != grid]
    out = shapes["mask_decoder.iou_token.weight"][1]
    return sam_config(
        grid * patch, patch, width, len(layers), width // head, windows[0] if windows else grid,
        tuple(layer for layer, side in zip(layers, sides, strict=True) if side == grid), out, DECODER_HEADS,
        shapes["mask_decoder.transformer.layers.0.mlp.lin1.weight"][0],
        shapes["mask_decoder.iou_prediction_head.proj_in.weight"][0],
    )  # fmt: skip
