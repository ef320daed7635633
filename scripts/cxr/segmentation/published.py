"""Published SAM weights (sam_vit_h_4b8939): tensor names, and configurations of SAM with encoders of any size."""

import re
from collections.abc import Callable, Sequence

from transformers import SamConfig, SamMaskDecoderConfig, SamPromptEncoderConfig, SamVisionConfig

from cxr.base.resources import load_resource
from cxr.segmentation.head import DECODER_EPS

RESOURCE_FILES = ("rosalia/sam_names.yaml",)
DECODER_HEADS = 8  # attention heads of the mask decoder in all published SAMs; tensor shapes do not reveal the number
_LAYER = "vision_encoder.layers"


def make_sam_config(
    image: int, patch: int, width: int, depth: int, heads: int, window: int, global_layers: tuple[int, ...],
    out: int = 256, decoder_heads: int = 8, decoder_mlp: int = 2048, iou_hidden: int = 256,
) -> SamConfig:  # fmt: skip
    """Return a SAM configuration. ``width``, ``depth``, ``heads`` and ``out`` (channels) describe the encoder.
    ``image`` and ``patch`` are sides in pixels, ``window`` is a side in patches. ``global_layers``: layers with global
    attention."""
    return SamConfig(
        vision_config=SamVisionConfig(
            hidden_size=width, output_channels=out, num_hidden_layers=depth, num_attention_heads=heads,
            image_size=image, patch_size=patch, window_size=window, global_attn_indexes=list(global_layers),
            num_pos_feats=out // 2, mlp_dim=4 * width, initializer_range=0.02,
        ),
        prompt_encoder_config=SamPromptEncoderConfig(hidden_size=out, image_size=image, patch_size=patch),
        mask_decoder_config=SamMaskDecoderConfig(
            hidden_size=out, mlp_dim=decoder_mlp, num_attention_heads=decoder_heads, iou_head_hidden_dim=iou_hidden,
            layer_norm_eps=DECODER_EPS,
        ),
    )  # fmt: skip


def make_sam_vit_h_config() -> SamConfig:
    """Return the configuration of SAM with ViT-H (sam_vit_h_4b8939), which LISA and ROSALIA use."""
    return make_sam_config(1024, 16, 1280, 32, 16, 14, (7, 15, 23, 31))


def infer_sam_config(shapes: dict[str, tuple[int, ...]]) -> SamConfig:
    """Infer the configuration of a SAM from the shapes of its tensors, {our name: shape}.

    For tensors of another net, return the ViT-H configuration; loading then reports the tensors that do not fit.
    """
    try:
        _, grid, _, width = shapes["vision_encoder.pos_embed"]
        patch = shapes["vision_encoder.patch_embed.projection.weight"][-1]
        layer_name = rf"{_LAYER}\.(\d+)\.attn\.rel_pos_h"
        layers = sorted(int(match[1]) for name in shapes if (match := re.fullmatch(layer_name, name)))
        # a layer with windows of s patches has 2 s - 1 relative positions
        sides = [(shapes[f"{_LAYER}.{layer}.attn.rel_pos_h"][0] + 1) // 2 for layer in layers]
        head = shapes[f"{_LAYER}.0.attn.rel_pos_h"][1]
        windows = [side for side in sides if side != grid]
        out = shapes["mask_decoder.iou_token.weight"][1]
        return make_sam_config(
            grid * patch, patch, width, len(layers), width // head, windows[0] if windows else grid,
            tuple(layer for layer, side in zip(layers, sides, strict=True) if side == grid), out, DECODER_HEADS,
            shapes["mask_decoder.transformer.layers.0.mlp.lin1.weight"][0],
            shapes["mask_decoder.iou_prediction_head.proj_in.weight"][0],
        )  # fmt: skip
    except (KeyError, IndexError, ValueError, ZeroDivisionError):
        return make_sam_vit_h_config()


Renamer = Callable[[str], str | None]  # translates a tensor name to another layout; None if the table lacks the name
SAM_TABLE = tuple(load_resource(RESOURCE_FILES[0]).items())
"""Pairs of patterns of tensor names: published name, our name. # matches a number, * the rest of the name."""


def compile_pattern(pattern: str) -> re.Pattern:
    """Convert a pattern of :data:`SAM_TABLE` to a regular expression."""
    return re.compile(re.escape(pattern).replace(r"\#", r"(\d+)").replace(r"\*", "(.+)"))


def make_renamers(table: Sequence[tuple[str, str]]) -> tuple[Renamer, Callable[[str], str]]:
    """Return two functions: one translates tensor names from the first to the second column of a table, one back.

    For a name that the table lacks, the first function returns None, and the second raises KeyError.
    """

    def compile_rows(source: int, target: int) -> list[tuple[re.Pattern, str]]:
        return [(compile_pattern(row[source]), re.sub(r"[#*]", "{}", row[target])) for row in table]

    def translate(name: str, rows: list[tuple[re.Pattern, str]]) -> str | None:
        # match full names, because both layouts use layers.0, but for different layers
        matches = ((pattern.fullmatch(name), form) for pattern, form in rows)
        return next((form.format(*match.groups()) for match, form in matches if match), None)

    def translate_back(name: str) -> str:
        if (translated := translate(name, backward)) is None:
            raise KeyError(name)
        return translated

    forward, backward = compile_rows(0, 1), compile_rows(1, 0)
    return (lambda name: translate(name, forward)), translate_back


to_our_name, to_published_name = make_renamers(SAM_TABLE)
"""Translate tensor names from SAM's published file to ours (None if unknown), and back (KeyError if unknown)."""
