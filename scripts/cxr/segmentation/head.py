"""The path from a language model's hidden state to a mask: projection, SAM, and resizing of mask logits."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedConfig, SamConfig, SamModel
from transformers.initialization import no_init_weights

Module = TypeVar("Module", bound=nn.Module)

DECODER_EPS = 1e-5  # epsilon of the layer norms in SAM's mask decoder (original code; transformers' default: 1e-6)


def forget_dtypes(*configs: PreTrainedConfig) -> None:
    """Remove the dtype from configurations and their nested configurations, in place.

    Published files state the dtype in which they were saved (CLIP: float32), and transformers would use that dtype.
    """
    for config in configs:
        config.dtype = None
        forget_dtypes(*(part for part in vars(config).values() if isinstance(part, PreTrainedConfig)))


def make_empty(build: Callable[[], Module], dtype: torch.dtype = torch.float32) -> Module:
    """Call ``build`` and return its module with uninitialised weights of type ``dtype``."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with no_init_weights():
            return build()
    finally:
        torch.set_default_dtype(before)


def build_sam(config: SamConfig) -> SamModel:
    """Return a SAM with random weights from torch's generator, and set the epsilon in ``config`` to ``DECODER_EPS``."""
    config.mask_decoder_config.layer_norm_eps = DECODER_EPS
    sam = SamModel(config)
    # a second name for a tensor of SAM; it is only used for point prompts
    del sam.prompt_encoder.shared_embedding
    return sam


def build_projection(hidden: int, prompt: int) -> nn.Sequential:
    """Return the net that projects a hidden state (hidden,) to a prompt for SAM (prompt,)."""
    return nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, prompt))


def decode_masks(sam: SamModel, prompts: torch.Tensor, embeddings: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mask logits (M, 1, h, w) and quality estimates (M, 1) of SAM for prompts (M, C) and image embeddings."""
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


Frame = tuple[tuple[int, int], tuple[int, int]]  # (rows, columns) of an image inside SAM's square, and of its mask


def resize_logits(logits: torch.Tensor, side: int, resized: tuple[int, int], target: tuple[int, int]) -> torch.Tensor:
    """Resize logits (n, h, w) of SAM's decoder to float32 (n, H, W), ``target`` = (H, W), as SAM's postprocessing does.

    The logits are resized to (side, side), cropped to ``resized``, and resized to the target, both times bilinearly.
    ``resized``: (rows, columns) of the square that show the image, or (side, side) for no crop.
    """
    how = {"mode": "bilinear", "align_corners": False}
    square = functional.interpolate(logits[:, None].float(), (side, side), **how)
    square = square[..., : resized[0], : resized[1]]
    if square.shape[-2:] == tuple(target):  # the second resizing would change nothing
        return square[:, 0]
    return functional.interpolate(square, tuple(target), **how)[:, 0]


def resize_to_frames(
    low_res: torch.Tensor, owners: Sequence[int], frames: Sequence[Frame], side: int
) -> list[torch.Tensor]:
    """Resize the mask logits (M, 1, h, w) of B samples to their masks' sizes; return B tensors (n, H, W), float32.

    ``owners``: index of each mask's sample, M ascending numbers. ``frames``: per sample, (rows, columns) of the
    image in SAM's square of ``side`` pixels, and (rows, columns) of the mask.
    """
    masks = [low_res.new_zeros((0, *target), dtype=torch.float32) for _, target in frames]
    for frame in dict.fromkeys(frames):
        places = [place for place, owner in enumerate(owners) if frames[owner] == frame]
        if not places:
            continue
        counts = Counter(owners[place] for place in places)
        mask_groups = resize_logits(low_res[places, 0], side, *frame).split(list(counts.values()))
        for owner, owner_masks in zip(counts, mask_groups, strict=True):
            masks[owner] = owner_masks
    return masks
