"""SAM's sizes as its weights tell them, so that a checkpoint with another encoder than ViT-H is read too."""

import re

from transformers import SamConfig

from cxr.ils.rosalia.config import sam_config, sam_h

DECODER_HEADS = 8
"""Heads of the attention in SAM's mask decoder: the one size that no tensor tells, the same in all published ones."""
_LAYER = "sam.vision_encoder.layers"


def sam_sizes(shapes: dict[str, tuple[int, ...]]) -> SamConfig:
    """Return the sizes that the tensors of a model ({our name: shape}) have.

    Those of ViT-H where the tensors cannot be SAM's: what is wrong with them is told when each is compared.
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
    # 2 s - 1 places beside one another, where a layer looks at squares of s patches; channels of a head
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
