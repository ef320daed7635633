"""A model that answers with the token [SEG] and predicts the mask that each one stands for."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from cxr.segmentation.encoder_cache import DiskCache, MemoryCache
from cxr.segmentation.head import resize_logits
from cxr.segmentation.segmenter import Segmenter
from cxr.vlm.segs import SegBatch


@contextmanager
def hidden_states(model: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Yield a list to which every forward pass inside the context appends its last hidden states (N, L, H).

    The state at a position predicts the token after it.
    """
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
        self.embedding_cache: DiskCache | MemoryCache = MemoryCache()
        """Cache of SAM's image embeddings."""

    def embeddings(self, segs: SegBatch) -> torch.Tensor:
        """Return SAM's embedding of each [SEG]'s image, (M, C, h, w)."""
        views = [(view, False) for view in segs.views]
        return self.embedding_cache.get(views, segs.levels, self.segmenter.embed)[segs.image_of]

    def forward(self, segs: SegBatch, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return ``logits`` (N, L, V) of the next tokens and ``masks`` (M, T, T), mask logits in the targets' frame.

        The prompt of a mask is the state that predicts its [SEG], one position before it.
        """
        with hidden_states(self.model) as pass_states:
            logits = self.model(**inputs).logits
        states = pass_states[-1][segs.rows, segs.places - 1]
        side, target = self.segmenter.side, tuple(segs.masks.shape[1:])
        if len(states):
            mask_logits = self.segmenter(states, self.embeddings(segs))
            return {"logits": logits, "masks": resize_logits(mask_logits, side, (side, side), target)}
        # Processes of one training sum their gradients in the order of the operations, and another process may have a
        # [SEG]: without one, a dummy mask is computed whose gradients are zero.
        nothing = pass_states[-1].new_zeros((1, *self.segmenter.shape))
        mask_logits = self.segmenter(pass_states[-1][:1, 0], nothing)
        return {"logits": logits + 0.0 * mask_logits.sum(), "masks": mask_logits[:0]}
