"""[SEG] tokens of answers: positions, images and target masks, and a model that predicts a mask for each."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from cxr.base.hdf5 import Shards
from cxr.segmentation.encoder_cache import DiskCache, MemoryCache
from cxr.segmentation.head import resize_logits
from cxr.segmentation.images import make_mask_target, make_sam_levels, pad_to_square
from cxr.segmentation.segmenter import Segmenter
from cxr.vlm.samples import ImageStore, Sample
from cxr.vlm.tokens import SEG


class MaskStore(Shards):
    """Masks in shards, by mask id, for use inside ``with``."""

    def __init__(self, shards: Sequence[str]):
        super().__init__(shards, "mask_id")

    def has(self, sample: Sample) -> bool:
        """Return whether each [SEG] in a sample's answers has a mask. The id "" stands for an empty mask."""
        num_segs = sum(turn.answer.count(SEG) for turn in sample.turns)
        return num_segs == len(sample.mask_ids) and all(not name or name in self for name in sample.mask_ids)

    def mask(self, mask_id: str) -> np.ndarray:
        """Return a mask, bool (H, W), or an empty (1, 1) mask for an empty id. Raises StoreError for a bad shard."""
        return self.get("mask", mask_id) if mask_id else np.zeros((1, 1), bool)


@dataclass(frozen=True)
class MaskTargets:
    """Targets of a sample's n [SEG] tokens. ``masks``, uint8 (n, T, T) of 0 and 1, are in the order of the tokens.

    ``view`` identifies the image, and is the same for all samples about it. ``levels`` is the input image of SAM, uint8
    (S, S).
    """

    view: str
    levels: torch.Tensor
    masks: torch.Tensor


@dataclass(frozen=True)
class SegBatch:
    """The M [SEG] tokens of a batch with I images.

    ``rows`` and ``places`` (M,) are the row and column of each [SEG] in the token ids of the batch. ``image_of`` (M,)
    is the index of its image. ``views`` identify the images. ``levels`` (I, S, S) and ``masks`` (M, T, T) are as in
    :class:`MaskTargets`.
    """

    rows: torch.Tensor
    places: torch.Tensor
    image_of: torch.Tensor
    views: list[str]
    levels: torch.Tensor
    masks: torch.Tensor

    def to(self, device: torch.device) -> "SegBatch":
        tensor_names = ("rows", "places", "image_of", "levels", "masks")
        return replace(self, **{name: getattr(self, name).to(device) for name in tensor_names})


def join_segs(segs_by_row: Mapping[int, tuple[list[int], MaskTargets]]) -> SegBatch:
    """Join the [SEG] tokens of the rows of a batch. ``segs_by_row``: {row: (positions of its [SEG], their targets)}."""
    targets = [aims for _, aims in segs_by_row.values()]
    levels_by_view = {aims.view: aims.levels for aims in reversed(targets)}
    views = list(dict.fromkeys(aims.view for aims in targets))
    marks = [(row, place, views.index(aims.view)) for row, (places, aims) in segs_by_row.items() for place in places]
    rows, places, image_of = torch.tensor(marks, dtype=torch.long).reshape(-1, 3).unbind(1)
    nothing = torch.zeros((0, 1, 1), dtype=torch.uint8)
    levels = torch.stack([levels_by_view[view] for view in views]) if views else nothing
    masks = torch.cat([aims.masks for aims in targets]) if targets else nothing
    return SegBatch(rows, places, image_of, views, levels, masks)


def mask_targets(sample: Sample, pictures: ImageStore, masks: MaskStore, side: int) -> MaskTargets | None:
    """Return the targets of a sample's [SEG] tokens, in SAM's square of ``side`` px, or None if it has no masks."""
    if not sample.mask_ids:
        return None
    levels = sam_image(pictures.frame(sample), side)
    targets = [torch.from_numpy(make_mask_target(masks.mask(name), side, "pad")) for name in sample.mask_ids]
    return MaskTargets(pictures.view(sample), levels, torch.stack(targets))


def sam_image(frame: np.ndarray, side: int) -> torch.Tensor:
    """Convert a frame, uint8 (H, W), to SAM's image, uint8 (side, side). The frame is first padded to a square."""
    return make_sam_levels(pad_to_square(frame), side)[0]


@contextmanager
def hidden_states(model: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Yield a list to which each forward pass appends the hidden states (N, L, H) that predict the next tokens."""
    states: list[torch.Tensor] = []
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
    try:
        yield states
    finally:
        hook.remove()


class SegmentingModel(nn.Module):
    """A vision-language model and its segmenter, trained together."""

    def __init__(self, model: nn.Module, segmenter: Segmenter):
        super().__init__()
        self.model, self.segmenter = model, segmenter
        self.embedding_cache: DiskCache | MemoryCache = MemoryCache()  # cache of SAM's image embeddings

    def embeddings(self, segs: SegBatch) -> torch.Tensor:
        """Return SAM's embedding of the image of each [SEG], (M, C, h, w)."""
        views = [(view, False) for view in segs.views]
        return self.embedding_cache.get(views, segs.levels, self.segmenter.embed)[segs.image_of]

    def forward(self, segs: SegBatch, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return text ``logits`` (N, L, V), and mask logits ``masks`` (M, T, T) from the states that predict [SEG]."""
        with hidden_states(self.model) as pass_states:
            logits = self.model(**inputs).logits
        states = pass_states[-1][segs.rows, segs.places - 1]
        side, target = self.segmenter.side, tuple(segs.masks.shape[1:])
        if len(states):
            mask_logits = self.segmenter(states, self.embeddings(segs))
            return {"logits": logits, "masks": resize_logits(mask_logits, side, (side, side), target)}
        # The ranks of a training run sum their gradients in the order of the operations, and another rank may have a
        # [SEG]. A rank without a [SEG] therefore computes a dummy mask, whose gradients are zero.
        nothing = pass_states[-1].new_zeros((1, *self.segmenter.shape))
        mask_logits = self.segmenter(pass_states[-1][:1, 0], nothing)
        return {"logits": logits + 0.0 * mask_logits.sum(), "masks": mask_logits[:0]}
