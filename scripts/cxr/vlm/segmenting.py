"""[SEG] in answers: a token of the vocabulary, and a model that also gives the mask that each one stands for."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from cxr.segmentation.frames import to_frame
from cxr.segmentation.kept import Kept, Remembered
from cxr.segmentation.segmenter import Segmenter
from cxr.vlm.segs import Segs


@contextmanager
def hidden_states(model: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Yield a list that gets the last hidden states (N, L, H) of each of the model's forward passes within.

    They are what its head turns into logits: the state at a position foretells the token after it.
    """
    states: list[torch.Tensor] = []
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
    try:
        yield states
    finally:
        hook.remove()


class Segmenting(nn.Module):
    """A vision-language model and its segmenter, trained together."""

    def __init__(self, model: nn.Module, segmenter: Segmenter):
        super().__init__()
        self.model, self.segmenter = model, segmenter
        self.kept: Kept | Remembered = Remembered()
        """SAM's embeddings of pictures."""

    def embeddings(self, segs: Segs) -> torch.Tensor:
        """Return SAM's embedding of each [SEG]'s image, (M, C, h, w)."""
        views = [(view, False) for view in segs.views]
        return self.kept.get(views, segs.levels, self.segmenter.embed)[segs.image_of]

    def forward(self, segs: Segs, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return ``logits`` (N, L, V) of the next tokens, and ``masks`` (M, T, T), mask logits in the targets' frame.

        A mask's prompt is made of the state that foretells its [SEG], one position before it.
        """
        with hidden_states(self.model) as pass_states:
            logits = self.model(**inputs).logits
        states = pass_states[-1][segs.rows, segs.places - 1]
        side, target = self.segmenter.side, tuple(segs.masks.shape[1:])
        if len(states):
            mask_logits = self.segmenter(states, self.embeddings(segs))
            return {"logits": logits, "masks": to_frame(mask_logits, side, (side, side), target)}
        # Processes of one training add up their gradients in the order of the operations, and another process may have
        # a [SEG]: without one, a mask of nothing is computed, whose gradients are zeros.
        nothing = pass_states[-1].new_zeros((1, *self.segmenter.shape))
        mask_logits = self.segmenter(pass_states[-1][:1, 0], nothing)
        return {"logits": logits + 0.0 * mask_logits.sum(), "masks": mask_logits[:0]}
