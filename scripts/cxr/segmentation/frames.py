"""Mask logits of SAM's decoder, resized to the frames of their targets."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch.nn import functional

Frame = tuple[tuple[int, int], tuple[int, int]]
"""An image's (rows, columns) inside SAM's square, and those of its target."""


def to_frame(logits: torch.Tensor, sam_side: int, resized: tuple[int, int], target: tuple[int, int]) -> torch.Tensor:
    """Return the logits (n, h, w) of SAM's decoder as float32 (n, H, W) in ``target`` = (H, W) (SAM's postprocessing).

    They are resized to the square of ``sam_side``, cropped to its part ``resized`` = (rows, columns), and resized to
    the target, bilinearly. ROSALIA's published mismatch is a choice of ``resized``.
    """
    square = functional.interpolate(
        logits[:, None].float(), (sam_side, sam_side), mode="bilinear", align_corners=False
    )[..., : resized[0], : resized[1]]
    if square.shape[-2:] == tuple(target):  # which would be the same again, for as much time
        return square[:, 0]
    return functional.interpolate(square, tuple(target), mode="bilinear", align_corners=False)[:, 0]


def framed(low_res: torch.Tensor, owners: Sequence[int], frames: Sequence[Frame], sam_side: int) -> list[torch.Tensor]:
    """Resize mask logits (M, 1, h, w) to the target frame of their sample; logits of equal frames are batched.

    ``owners``: index of each mask's sample, M ascending numbers. ``frames``: one of each of the B samples. Return B
    tensors (n, H, W), float32.
    """
    masks = [low_res.new_zeros((0, *target), dtype=torch.float32) for _, target in frames]
    for frame in dict.fromkeys(frames):
        places = [place for place, owner in enumerate(owners) if frames[owner] == frame]
        if not places:
            continue
        counts = Counter(owners[place] for place in places)
        mask_groups = to_frame(low_res[places, 0], sam_side, *frame).split(list(counts.values()))
        for owner, owner_masks in zip(counts, mask_groups, strict=True):
            masks[owner] = owner_masks
    return masks
