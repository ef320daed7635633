"""Code that both Qwen families share: the chat template, and the encoding of images as patches of fixed size."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from cxr.vlm.conventions import InputSize
from cxr.vlm.families.engine import ChatTemplate, EncodedImages

TEMPLATE = ChatTemplate(
    start="<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n",
    user="<|im_start|>user\n",
    opening="<|vision_start|>",
    picture="<|image_pad|>",
    closing="<|vision_end|>",
    assistant="<|im_end|>\n<|im_start|>assistant\n",
    end="<|im_end|>",
    between="\n",
)


PREFIXES = {
    "vision": ("model.visual.",),
    "projector": ("model.visual.merger.", "model.visual.deepstack_merger_list."),
    "language": ("model.language_model.", "lm_head."),
}


@dataclass(frozen=True)
class Qwen:
    """A Qwen model. ``processor`` is the PIL version of its image processor, which does not need torchvision."""

    processor: Qwen2VLImageProcessorPil
    frame = TEMPLATE
    prefixes = PREFIXES

    def pictures(self, pictures: Sequence[np.ndarray]) -> EncodedImages:
        """Encode images, uint8 (H, W, 3). Their sides become multiples of a patch, at nearly the same aspect ratio."""
        features = self.processor([Image.fromarray(picture) for picture in pictures], return_tensors="pt")
        grid, patch, merge = features["image_grid_thw"], self.processor.patch_size, self.processor.merge_size
        tokens = tuple(int(count) // merge**2 for count in grid.prod(dim=1))
        sizes = tuple(InputSize(int(columns) * patch, int(rows) * patch) for _, rows, columns in grid)
        return EncodedImages({"pixel_values": features["pixel_values"], "image_grid_thw": grid}, tokens, sizes)

    def inputs(self, ids: torch.Tensor, picture_id: int) -> dict[str, torch.Tensor]:
        """Return ``mm_token_type_ids`` (N, L), 1 for image tokens, from which the model computes 2D positions."""
        return {"mm_token_type_ids": (ids == picture_id).int()}


def load_qwen(folder: Path) -> Qwen:
    """Return the family object of the model in a folder, with its processor."""
    return Qwen(Qwen2VLImageProcessorPil.from_pretrained(folder, local_files_only=True))


def small_processor(side: int, **more: object) -> Qwen2VLImageProcessorPil:
    """Return an image processor for images of at most ``side`` × ``side`` pixels."""
    return Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": side * side}, **more)
