"""SAM's published checkpoints (sam_vit_h_4b8939): names of their tensors, and reading one."""

import re
from collections.abc import Callable, Sequence

Renamer = Callable[[str], str | None]
"""Returns another layout's name of a tensor; None for one that its table has not."""
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
"""Names of tensors: published, ours. A # stands for a number, a * for the rest of the name."""


def _pattern(side: str) -> re.Pattern:
    return re.compile(re.escape(side).replace(r"\#", r"(\d+)").replace(r"\*", "(.+)"))


def _form(side: str) -> str:
    return re.sub(r"[#*]", "{}", side)


def renamers(table: Sequence[tuple[str, str]]) -> tuple[Renamer, Renamer]:
    """Return what gives a tensor's second name for its first one, and what gives the first one for the second."""
    forward = [(_pattern(first), _form(second)) for first, second in table]
    backward = [(_pattern(second), _form(first)) for first, second in table]
    return (lambda name: _translated(name, forward)), (lambda name: _translated(name, backward))


def _translated(name: str, table: Sequence[tuple[re.Pattern, str]]) -> str | None:
    for pattern, form in table:
        # the last linear layer of a three-layer head comes under layers.0 in both layouts: match whole names only
        if match := pattern.fullmatch(name):
            return form.format(*match.groups())
    return None


_OURS, _PUBLISHED = renamers(SAM_TABLE)


def ours_of(name: str) -> str | None:
    """Return our name of a tensor of SAM's own file; None for one that it has not."""
    return _OURS(name)


def published_of(name: str) -> str:
    """Return the name of one of our tensors in SAM's own file. Raises KeyError for one that it has not."""
    if (published_name := _PUBLISHED(name)) is None:
        raise KeyError(name)
    return published_name
