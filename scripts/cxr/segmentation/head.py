"""The nets between a language model's hidden state and a mask: the projection, and SAM with one prompt a mask."""

import torch
from torch import nn
from transformers import SamConfig, SamModel

DECODER_EPS = 1e-5
"""Epsilon of the layer norms in SAM's mask decoder, as in the original code; transformers' default is 1e-6."""


def sam_net(config: SamConfig) -> SamModel:
    """Return SAM with weights drawn from torch's generator; the epsilon in ``config`` becomes the original's."""
    config.mask_decoder_config.layer_norm_eps = DECODER_EPS
    sam = SamModel(config)
    # The same tensor under a second name, used only for point prompts, which are never given.
    del sam.prompt_encoder.shared_embedding
    return sam


def projection(hidden: int, prompt: int) -> nn.Sequential:
    """Return the two linear layers that turn a hidden state (hidden,) into a prompt of SAM (prompt,)."""
    return nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, prompt))


def decoded(sam: SamModel, prompts: torch.Tensor, embeddings: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return SAM's mask logits (M, 1, h, w) and quality estimates (M, 1), one mask for each prompt (M, C).

    ``embeddings``: SAM's embedding of each prompt's image (M, C, h / 4, w / 4).
    """
    if not len(prompts):
        side = 4 * embeddings.shape[-1]
        return prompts.new_zeros(0, 1, side, side), prompts.new_zeros(0, 1)
    masks, iou = sam.mask_decoder(
        image_embeddings=embeddings,
        image_positional_embeddings=sam.get_image_wide_positional_embeddings().expand(len(prompts), -1, -1, -1),
        sparse_prompt_embeddings=prompts[:, None, None],
        dense_prompt_embeddings=sam.prompt_encoder.no_mask_embed.weight[:, :, None, None],
        multimask_output=False,
    )
    return masks[:, 0], iou[:, 0]
