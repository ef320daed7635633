"""SAM as published (sam_vit_h_4b8939): names of its tensors, and the sizes of a SAM with any encoder."""

import re
from collections.abc import Callable, Sequence

from transformers import SamConfig
from transformers import SamMaskDecoderConfig as MaskDecoderConfig
from transformers import SamPromptEncoderConfig as PromptEncoderConfig
from transformers import SamVisionConfig as VisionConfig

from cxr.segmentation.head import DECODER_EPS

DECODER_HEADS = 8
"""Attention heads of SAM's mask decoder, the only size that no tensor shows; equal in all published decoders."""
_LAYER = "vision_encoder.layers"


def make_sam_config(
    image: int, patch: int, width: int, depth: int, heads: int, window: int, global_layers: tuple[int, ...],
    out: int = 256, decoder_heads: int = 8, decoder_mlp: int = 2048, iou_hidden: int = 256,
) -> SamConfig:  # fmt: skip
    """Return SAM's configuration from the sides of image and patch in pixels, the encoder's width, depth, heads, window
    side in patches, layers with global attention and output channels, and the sizes of the mask decoder.
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


def make_sam_vit_h_config() -> SamConfig:
    """Return the configuration of SAM with ViT-H (sam_vit_h_4b8939), which LISA and ROSALIA use."""
    return make_sam_config(1024, 16, 1280, 32, 16, 14, (7, 15, 23, 31))


def infer_sam_config(shapes: dict[str, tuple[int, ...]]) -> SamConfig:
    """Return the configuration of a SAM with tensors of these ``shapes``, {our name: shape}.

    For tensors of another net, return that of ViT-H; loading them then reports which tensors do not fit.
    """
    try:
        return _infer_config(shapes)
    except (KeyError, IndexError, ValueError, ZeroDivisionError):
        return make_sam_vit_h_config()


def _infer_config(shapes: dict[str, tuple[int, ...]]) -> SamConfig:
    _, grid, _, width = shapes["vision_encoder.pos_embed"]
    patch = shapes["vision_encoder.patch_embed.projection.weight"][-1]
    layers = sorted(
        int(match[1]) for name in shapes if (match := re.fullmatch(rf"{_LAYER}\.(\d+)\.attn\.rel_pos_h", name))
    )
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


Renamer = Callable[[str], str | None]
"""Returns a tensor's name in another layout, None if the table lacks it."""
_HEADS = ("output_hypernetworks_mlps.#", "iou_prediction_head")
SAM_TABLE: tuple[tuple[str, str], ...] = (
    ("image_encoder.pos_embed", "vision_encoder.pos_embed"),
    ("image_encoder.patch_embed.proj.*", "vision_encoder.patch_embed.projection.*"),
    ("image_encoder.blocks.#.norm1.*", "vision_encoder.layers.#.layer_norm1.*"),
    ("image_encoder.blocks.#.norm2.*", "vision_encoder.layers.#.layer_norm2.*"),
    ("image_encoder.blocks.#.attn.*", "vision_encoder.layers.#.attn.*"),
    ("image_encoder.blocks.#.mlp.*", "vision_encoder.layers.#.mlp.*"),
    ("image_encoder.neck.0.*", "vision_encoder.neck.conv1.*"),
    ("image_encoder.neck.1.*", "vision_encoder.neck.layer_norm1.*"),
    ("image_encoder.neck.2.*", "vision_encoder.neck.conv2.*"),
    ("image_encoder.neck.3.*", "vision_encoder.neck.layer_norm2.*"),
    ("prompt_encoder.pe_layer.positional_encoding_gaussian_matrix", "shared_image_embedding.positional_embedding"),
    ("prompt_encoder.point_embeddings.#.*", "prompt_encoder.point_embed.#.*"),
    ("prompt_encoder.not_a_point_embed.*", "prompt_encoder.not_a_point_embed.*"),
    ("prompt_encoder.no_mask_embed.*", "prompt_encoder.no_mask_embed.*"),
    ("prompt_encoder.mask_downscaling.0.*", "prompt_encoder.mask_embed.conv1.*"),
    ("prompt_encoder.mask_downscaling.1.*", "prompt_encoder.mask_embed.layer_norm1.*"),
    ("prompt_encoder.mask_downscaling.3.*", "prompt_encoder.mask_embed.conv2.*"),
    ("prompt_encoder.mask_downscaling.4.*", "prompt_encoder.mask_embed.layer_norm2.*"),
    ("prompt_encoder.mask_downscaling.6.*", "prompt_encoder.mask_embed.conv3.*"),
    ("mask_decoder.iou_token.*", "mask_decoder.iou_token.*"),
    ("mask_decoder.mask_tokens.*", "mask_decoder.mask_tokens.*"),
    *(
        (f"mask_decoder.transformer.layers.#.norm{n}.*", f"mask_decoder.transformer.layers.#.layer_norm{n}.*")
        for n in (1, 2, 3, 4)
    ),
    *(
        (f"mask_decoder.transformer.layers.#.{part}.*", f"mask_decoder.transformer.layers.#.{part}.*")
        for part in ("self_attn", "cross_attn_token_to_image", "cross_attn_image_to_token", "mlp")
    ),
    ("mask_decoder.transformer.final_attn_token_to_image.*", "mask_decoder.transformer.final_attn_token_to_image.*"),
    ("mask_decoder.transformer.norm_final_attn.*", "mask_decoder.transformer.layer_norm_final_attn.*"),
    ("mask_decoder.output_upscaling.0.*", "mask_decoder.upscale_conv1.*"),
    ("mask_decoder.output_upscaling.1.*", "mask_decoder.upscale_layer_norm.*"),
    ("mask_decoder.output_upscaling.3.*", "mask_decoder.upscale_conv2.*"),
    *((f"mask_decoder.{head}.layers.0.*", f"mask_decoder.{head}.proj_in.*") for head in _HEADS),
    *((f"mask_decoder.{head}.layers.1.*", f"mask_decoder.{head}.layers.0.*") for head in _HEADS),
    *((f"mask_decoder.{head}.layers.2.*", f"mask_decoder.{head}.proj_out.*") for head in _HEADS),
)
"""Patterns of tensor names: (published, ours). A # stands for a number, a * for the rest of the name."""


def _compile_pattern(side: str) -> re.Pattern:
    return re.compile(re.escape(side).replace(r"\#", r"(\d+)").replace(r"\*", "(.+)"))


def _make_format(side: str) -> str:
    return re.sub(r"[#*]", "{}", side)


def make_renamers(table: Sequence[tuple[str, str]]) -> tuple[Renamer, Callable[[str], str]]:
    """Return functions that translate tensor names from the first to the second column of a table, and back.

    The first returns None for a name that the table lacks, the second raises KeyError.
    """

    def translate_back(name: str) -> str:
        if (translated := _translate_name(name, backward)) is None:
            raise KeyError(name)
        return translated

    forward = [(_compile_pattern(first), _make_format(second)) for first, second in table]
    backward = [(_compile_pattern(second), _make_format(first)) for first, second in table]
    return (lambda name: _translate_name(name, forward)), translate_back


def _translate_name(name: str, table: Sequence[tuple[re.Pattern, str]]) -> str | None:
    for pattern, form in table:
        # match whole names: both layouts use layers.0, for different layers
        if match := pattern.fullmatch(name):
            return form.format(*match.groups())
    return None


to_our_name, to_published_name = make_renamers(SAM_TABLE)
"""Return our name of a tensor in SAM's published file, None if it has no such tensor; and back, or raise KeyError."""
