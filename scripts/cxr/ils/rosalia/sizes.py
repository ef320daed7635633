"""Derive SAM's sizes from its weights, so that a checkpoint with another encoder than ViT-H can be read."""

import re

from transformers import SamConfig

from cxr.ils.rosalia.config import sam_config, sam_h

DECODER_HEADS = 8
"""Attention heads of SAM's mask decoder: the only size that no tensor shows; all published decoders have the same."""
_LAYER = "sam.vision_encoder.layers"


def sam_sizes(shapes: dict[str, tuple[int, ...]]) -> SamConfig:
    """Return the sizes that the tensors of a model ({our name: shape}) have.

    Returns ViT-H's sizes if the tensors cannot be SAM's; the comparison of each tensor then reports what is wrong.
    """
    try:
        return _told(shapes)
    except (KeyError, IndexError, ValueError, ZeroDivisionError):
        return sam_h()


def _told(shapes: dict[str, tuple[int, ...]]) -> SamConfig:
    _, grid, _, width = shapes["sam.vision_encoder.pos_embed"]
    patch = shapes["sam.vision_encoder.patch_embed.projection.weight"][-1]
    layers = sorted(
        int(found[1]) for name in shapes if (found := re.fullmatch(rf"{_LAYER}\.(\d+)\.attn\.rel_pos_h", name))
    )
    # 2 s - 1 relative positions if a layer attends within windows of s patches; channels of a head
    sides = [(shapes[f"{_LAYER}.{layer}.attn.rel_pos_h"][0] + 1) // 2 for layer in layers]
    head = shapes[f"{_LAYER}.0.attn.rel_pos_h"][1]
    windows = [side for side in sides if side != grid]
    out = shapes["sam.mask_decoder.iou_token.weight"][1]
    return sam_config(
        grid * patch, patch, width, len(layers), width // head, windows[0] if windows else grid,
        tuple(layer for layer, side in zip(layers, sides, strict=True) if side == grid), out, DECODER_HEADS,
        shapes["sam.mask_decoder.transformer.layers.0.mlp.lin1.weight"][0],
        shapes["sam.mask_decoder.iou_prediction_head.proj_in.weight"][0],
    )  # fmt: skip
